/** The SQL editor: highlighting, names to complete, several statements, errors at their place. */
import { autocompletion, closeBrackets, closeBracketsKeymap, closeCompletion, completionKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { SQLDialect, sql } from "@codemirror/lang-sql";
import { HighlightStyle, bracketMatching, syntaxHighlighting, syntaxTree } from "@codemirror/language";
import { type Diagnostic, lintGutter, setDiagnostics } from "@codemirror/lint";
import { Compartment, EditorState } from "@codemirror/state";
import { EditorView, drawSelection, highlightActiveLine, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";

const DIALECT = SQLDialect.define({
  keywords:
    "select from where group by order having limit with as join left right full outer inner cross semi anti on using union all except intersect distinct case when then else end and or not in is null like between exists cast asc desc values table create drop alter materialized view index unique include if not exists or replace async primary key check constraint default comment insert into upsert update set delete merge matched by source target truncate load format show tables views indexes handlers jobs runners commands nodes tablets transitions requests progress replication users grants describe explain extended formatted cost wait for request flush cancel build pause resume rename to add column columns type repair sample compact vacuum retain seconds minutes hours days weeks handler process input stream batch consumer changefeed cluster decommission node remove ignore nodes rebuild new cdc generation of balancing move tablet version timestamp interval over partition rows range lateral user role rotate token grant revoke true false",
  types: "boolean tinyint smallint int integer bigint float double decimal string binary date timestamp timestamp_ntz array map struct",
  backslashEscapes: true,
  identifierQuotes: "`",
  slashComments: false,
  spaceAfterDashes: false,
});

const COLOURS = HighlightStyle.define([
  { tag: tags.keyword, color: "var(--sql-keyword)" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--sql-string)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--sql-number)" },
  { tag: tags.comment, color: "var(--muted)", fontStyle: "italic" },
  { tag: tags.typeName, color: "var(--sql-type)" },
]);

const LOOKS = EditorView.theme({
  "&": { color: "var(--ink)", backgroundColor: "var(--panel)", fontSize: "14px", minHeight: "9rem", maxHeight: "24rem" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.55", overflow: "auto" },
  ".cm-content": { caretColor: "var(--ink)", padding: ".6rem 0" },
  ".cm-cursor": { borderLeftColor: "var(--ink)" },
  ".cm-gutters": { backgroundColor: "var(--panel)", color: "var(--muted)", border: "none" },
  ".cm-activeLine": { backgroundColor: "var(--hover)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "var(--selection)" },
  ".cm-tooltip": { backgroundColor: "var(--panel)", color: "var(--ink)", border: "1px solid var(--line)", borderRadius: "6px" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--accent)", color: "var(--on-accent)" },
  ".cm-diagnostic-error": { borderLeftColor: "var(--bad)" },
});

export interface Statement {
  text: string;
  from: number;
}

/** Columns by relation; a system table is `system.history`. */
export type Names = { [relation: string]: string[] };

export class Editor {
  private readonly view: EditorView;
  private readonly names = new Compartment();

  /** In a shadow tree, where styles of the editor are allowed by a policy that knows no styles but those of files. */
  constructor(parent: HTMLElement, text: string, run: () => void, changed: (text: string) => void) {
    const root = parent.shadowRoot ?? parent.attachShadow({ mode: "open" });
    root.replaceChildren();
    this.view = new EditorView({
      root,
      parent: root,
      state: EditorState.create({
        doc: text,
        extensions: [
          keymap.of([{ key: "Mod-Enter", preventDefault: true, run: (view) => (closeCompletion(view), run(), true) }]),
          lineNumbers(),
          history(),
          drawSelection(),
          EditorView.lineWrapping,
          highlightActiveLine(),
          bracketMatching(),
          closeBrackets(),
          autocompletion(),
          lintGutter(),
          syntaxHighlighting(COLOURS),
          LOOKS,
          this.names.of(sql({ dialect: DIALECT })),
          keymap.of([...closeBracketsKeymap, ...completionKeymap, ...historyKeymap, ...defaultKeymap, indentWithTab]),
          EditorView.contentAttributes.of({ "aria-label": "SQL" }),
          EditorView.updateListener.of((update) => update.docChanged && changed(update.state.doc.toString())),
        ],
      }),
    });
  }

  complete(schema: Names): void {
    this.view.dispatch({ effects: this.names.reconfigure(sql({ dialect: DIALECT, schema, upperCaseKeywords: true })) });
  }

  put(text: string): void {
    this.view.dispatch({ changes: { from: 0, to: this.view.state.doc.length, insert: text } });
    this.view.focus();
  }

  /** What is selected; else, all statements, each by itself. */
  statements(): Statement[] {
    const { state } = this.view;
    const { from, to } = state.selection.main;
    if (from !== to) return [{ text: state.sliceDoc(from, to), from }];
    const found: Statement[] = [];
    for (let node = syntaxTree(state).topNode.firstChild; node !== null; node = node.nextSibling)
      if (node.name === "Statement") found.push({ text: state.sliceDoc(node.from, node.to).replace(/;\s*$/, ""), from: node.from });
    return found.filter((one) => one.text.trim() !== "");
  }

  /** Mark an error at the line and column of a statement; without these, at the name that it is about, or at all of it. */
  mark(statement: Statement, message: string, line?: number, column?: number): void {
    const { doc } = this.view.state;
    let from = statement.from;
    let to = Math.min(doc.length, statement.from + statement.text.length);
    if (line !== undefined) {
      const first = doc.lineAt(statement.from);
      const at = doc.line(Math.min(doc.lines, first.number + line - 1));
      from = Math.min(at.to, (line === 1 ? statement.from : at.from) + Math.max(0, (column ?? 1) - 1));
      const word = /^[\w`.]+/.exec(doc.sliceString(from, at.to))?.[0].length ?? 1;
      to = Math.min(doc.length, from + Math.max(1, word));
    } else {
      const named = placeOfName(statement.text, message);
      if (named !== null) [from, to] = [statement.from + named.from, statement.from + named.to];
    }
    const marks: Diagnostic[] = [{ from, to, severity: "error", message }];
    this.view.dispatch(setDiagnostics(this.view.state, marks));
  }

  unmark(): void {
    this.view.dispatch(setDiagnostics(this.view.state, []));
  }

  close(): void {
    this.view.destroy();
  }
}

/** Where the name stands with which a message begins (`table ordrs: expected …`); null if the text does not have it. */
function placeOfName(text: string, message: string): { from: number; to: number } | null {
  const name = /^(?:[a-z]+ )?([\w.$]+): expected /.exec(message)?.[1];
  if (name === undefined) return null;
  const from = text.search(new RegExp(`(?<![\\w.])${name.replaceAll(/[.$]/g, "\\$&")}(?![\\w.])`, "i"));
  return from < 0 ? null : { from, to: from + name.length };
}
