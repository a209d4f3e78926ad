/** Conditions of a query for first rows. */
import { useState } from "preact/hooks";

export type Operator = "eq" | "lt" | "lte" | "gt" | "gte" | "between" | "prefix" | "in" | "null" | "not null";

export interface Filter {
  column: string;
  operator: Operator;
  value: string;
  high?: string;
}

const WORDS: [Operator, string][] = [
  ["eq", "="],
  ["lt", "<"],
  ["lte", "≤"],
  ["gt", ">"],
  ["gte", "≥"],
  ["between", "between"],
  ["prefix", "begins with"],
  ["in", "one of"],
  ["null", "is NULL"],
  ["not null", "is not NULL"],
];

/** The `where` of a query: by column a list of conditions. Values are texts, which the node reads by the column's type. */
export function asWhere(filters: Filter[]): { [column: string]: object[] } | null {
  const found: { [column: string]: object[] } = {};
  for (const one of filters) (found[one.column] ??= []).push(condition(one));
  return filters.length ? found : null;
}

function condition({ operator, value, high }: Filter): object {
  switch (operator) {
    case "null":
    case "not null":
      return { null: operator === "null" };
    case "between":
      return { between: [value || null, high || null] };
    case "in":
      return { in: asValues(value) };
    default:
      return { [operator]: value };
  }
}

/** `open, 'sent, or lost'`: values between commas. Quotes of either kind keep a value as it is; two of them are one. */
export function asValues(text: string): string[] {
  const found = text.matchAll(/\s*(?:'((?:[^']|'')*)'|"((?:[^"]|"")*)")\s*(?:,|$)|([^,]+)/g);
  return [...found]
    .map(([, single, double, plain]) => single?.replaceAll("''", "'") ?? double?.replaceAll('""', '"') ?? (plain!.trim() || null))
    .filter((one) => one !== null);
}

/** `id = 7, day = 2026-11-18`, as messages name a row; nothing of a text that is not certainly this. */
export function asFilters(text: string): Filter[] {
  if (!/^\w+ = [^,=…]+(, \w+ = [^,=…]+)*$/.test(text)) return [];
  return text.split(", ").map((one) => {
    const [column = "", value = ""] = one.split(" = ");
    return value === "None" ? { column, operator: "null", value: "" } : { column, operator: "eq", value };
  });
}

/** Columns of an index by which the query would be sought: what is equal first, then the order, then a range. */
export function suggestIndex(filters: Filter[], order: string[]): string[] {
  const points = filters.filter((one) => ["eq", "in", "null"].includes(one.operator)).map((one) => one.column);
  const sorted = order.map((one) => (one.startsWith("-") ? `${one.slice(1)} DESC` : one));
  const ranges = filters.filter((one) => ["lt", "lte", "gt", "gte", "between", "prefix"].includes(one.operator));
  const found: string[] = [];
  for (const one of [...points, ...sorted, ...ranges.map((range) => range.column)])
    if (!found.some((before) => before.replace(/ DESC$/, "") === one.replace(/ DESC$/, ""))) found.push(one);
  return found;
}

export function Filters(given: { columns: { name: string; type: string }[]; filters: Filter[]; change: (filters: Filter[]) => void }) {
  const [column, setColumn] = useState(given.columns[0]?.name ?? "");
  const [operator, setOperator] = useState<Operator>("eq");
  const [value, setValue] = useState("");
  const [high, setHigh] = useState("");
  const bare = operator === "null" || operator === "not null";

  function add(event: Event): void {
    event.preventDefault();
    given.change([...given.filters, { column, operator, value, ...(operator === "between" ? { high } : {}) }]);
    setValue("");
    setHigh("");
  }

  return (
    <div class="filters">
      <form class="row" onSubmit={add} aria-label="Add a filter">
        <select aria-label="Column" value={column} onChange={(event) => setColumn(event.currentTarget.value)}>
          {given.columns.map((one) => (
            <option key={one.name}>{one.name}</option>
          ))}
        </select>
        <select aria-label="Condition" value={operator} onChange={(event) => setOperator(event.currentTarget.value as Operator)}>
          {WORDS.map(([key, word]) => (
            <option key={key} value={key}>
              {word}
            </option>
          ))}
        </select>
        {!bare && (
          <input aria-label="Value" placeholder={operator === "in" ? "a, b, 'c, d'" : "value"} value={value} onInput={(event) => setValue(event.currentTarget.value)} />
        )}
        {operator === "between" && <input aria-label="Upper value" placeholder="and" value={high} onInput={(event) => setHigh(event.currentTarget.value)} />}
        <button type="submit">Filter</button>
      </form>
      {given.filters.length > 0 && (
        <ul class="chips">
          {given.filters.map((one, at) => (
            <li key={at}>
              {inWords(one)}
              <button type="button" class="quiet" aria-label={`Remove ${inWords(one)}`} onClick={() => given.change(given.filters.toSpliced(at, 1))}>
                ×
              </button>
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

function inWords({ column, operator, value, high }: Filter): string {
  const word = WORDS.find(([key]) => key === operator)![1];
  if (operator === "null" || operator === "not null") return `${column} ${word}`;
  return operator === "between" ? `${column} between ${value} and ${high}` : `${column} ${word} ${value}`;
}
