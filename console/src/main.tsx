import { signal } from "@preact/signals";
import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { type Problem, me, refused, signIn, signOut, start } from "./api";
import { ChangeDialog, Outcome } from "./change";
import { connection, follow, numbers } from "./live";
import { Builds } from "./pages/builds";
import { Cluster } from "./pages/cluster";
import { Explorer } from "./pages/explorer";
import { Statements } from "./pages/statements";
import { Views } from "./pages/views";
import { Failure } from "./ui";
import { number } from "./words";
import "./style.css";

/** `#/views/card` is the page `views` about `card`; `#/explore/orders/id = 7`, the rows of `orders` where that holds. */
const path = signal(parts());

function parts(): string[] {
  return location.hash.replace(/^#\/?/, "").split("/").map(plain);
}

/** What an address has escaped; as it is written, if that is no escape. */
function plain(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

addEventListener("hashchange", () => (path.value = parts()));

const PAGES = [
  { key: "explore", title: "Explorer", page: Explorer },
  { key: "sql", title: "SQL", page: Statements },
  { key: "views", title: "Views", page: Views },
  { key: "builds", title: "Builds", page: Builds },
  { key: "cluster", title: "Cluster", page: Cluster },
];

function App() {
  if (refused.value) return <SignIn />;
  if (me.value === null) return <Starting />;
  const [key = "", name, where] = path.value;
  const shown = PAGES.find((one) => one.key === key) ?? PAGES[0]!;
  const Page = shown.page;
  document.title = `${name ? `${name} · ` : ""}${shown.title} · Ebla`;
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => skip(event)}>
        Skip to the page
      </a>
      <Top shown={shown.key} />
      <Lost />
      <main id="main" tabIndex={-1} class={shown.key}>
        <h1 class="sr">{shown.title}</h1>
        <Page name={name} where={where} />
      </main>
      <ChangeDialog />
      <Outcome />
    </>
  );
}

function skip(event: Event): void {
  event.preventDefault();
  document.getElementById("main")?.focus();
}

function Top({ shown }: { shown: string }) {
  return (
    <header class="top">
      <a class="brand" href="#/explore">
        <Mark />
        Ebla
      </a>
      <nav aria-label="Pages">
        {PAGES.map((one) => (
          <a key={one.key} href={`#/${one.key}`} aria-current={one.key === shown ? "page" : undefined}>
            {one.title}
          </a>
        ))}
      </nav>
      <div class="row end who">
        <span class={`live ${connection.value}`} title="The newest version">
          <span class="dot" aria-hidden="true" />
          {connection.value === "live" ? `version ${number(numbers.value?.version)}` : connection.value}
        </span>
        <Theme />
        {me.value?.token && (
          <>
            <span class="user">
              {me.value.name} <span class="muted">{me.value.role}</span>
            </span>
            <button type="button" class="quiet" onClick={signOut}>
              Sign out
            </button>
          </>
        )}
      </div>
    </header>
  );
}

function Mark() {
  return (
    <svg viewBox="0 0 32 32" width="22" height="22" aria-hidden="true">
      <rect x="4" y="3" width="24" height="26" rx="6" class="clay" />
      <path d="M10 10h5l-5 3zM17 10h5l-5 3zM10 16h5l-5 3zM17 16h5l-5 3zM10 22h5l-5 3z" class="wedge" />
    </svg>
  );
}

function Lost() {
  if (connection.value !== "lost") return null;
  return (
    <div class="lost" role="alert">
      The connection to the node is lost. What is shown is as it was; it is taken up again by itself.
    </div>
  );
}

// ---- light and dark --------------------------------------------------------------------------------------

const THEME = "ebla-theme";
const dark = matchMedia("(prefers-color-scheme: dark)");

/** Put on the colours that the user has chosen, or those of the system. Pictures on canvases draw themselves again. */
function dress(): void {
  const chosen = localStorage.getItem(THEME) ?? "auto";
  document.documentElement.dataset.theme = chosen === "auto" ? (dark.matches ? "dark" : "light") : chosen;
  dispatchEvent(new Event(THEME));
}

function Theme() {
  const [theme, put] = useState(localStorage.getItem(THEME) ?? "auto");
  useEffect(() => {
    localStorage.setItem(THEME, theme);
    dress();
  }, [theme]);
  return (
    <label class="theme">
      <span class="sr">Colours</span>
      <select value={theme} onChange={(event) => put(event.currentTarget.value)}>
        <option value="auto">Auto</option>
        <option value="light">Light</option>
        <option value="dark">Dark</option>
      </select>
    </label>
  );
}

// ---- the user --------------------------------------------------------------------------------------------

function Starting() {
  const [problem, fail] = useState<Problem | null>(null);
  useEffect(() => {
    const begin = () => start().then(() => fail(null), fail);
    void begin();
    const timer = setInterval(() => me.value === null && void begin(), 2000);
    return () => clearInterval(timer);
  }, []);
  return <main class="starting">{problem ? <Failure problem={problem} /> : <p class="muted">One moment…</p>}</main>;
}

function SignIn() {
  const [given, put] = useState("");
  const [keep, setKeep] = useState(false);
  const [problem, fail] = useState<Problem | null>(null);

  async function submit(event: Event): Promise<void> {
    event.preventDefault();
    fail(null);
    try {
      await signIn(given.trim(), keep);
    } catch (error) {
      fail(error as Problem);
    }
  }

  return (
    <main class="signin">
      <form class="panel" onSubmit={submit}>
        <h1>
          <Mark /> Ebla
        </h1>
        <label>
          Token
          <input type="password" autocomplete="current-password" required value={given} onInput={(event) => put(event.currentTarget.value)} />
        </label>
        <label class="check">
          <input type="checkbox" checked={keep} onChange={(event) => setKeep(event.currentTarget.checked)} />
          Keep me signed in on this computer
        </label>
        <Failure problem={problem} />
        <button type="submit" class="primary">
          Sign in
        </button>
        <p class="muted">
          An administrator makes users and tokens: <code>CREATE USER ada ROLE reader</code>
        </p>
      </form>
    </main>
  );
}

dark.addEventListener("change", dress);
dress();
render(<App />, document.getElementById("app")!);
void follow();
