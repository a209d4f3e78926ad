/** What the browser keeps for a user: until it signs out, or another one signs in. */

/** The text of the page SQL. */
export const TEXT = "ebla-sql";
/** The texts that were run. */
export const BEFORE = "ebla-sql-history";
const OWNER = "ebla-sql-user";

/** What is kept belongs to this user from now on; that of another one goes. */
export function keepFor(user: string): void {
  if (localStorage.getItem(OWNER) !== user) forget();
  localStorage.setItem(OWNER, user);
}

export function forget(): void {
  for (const one of [TEXT, BEFORE, OWNER]) localStorage.removeItem(one);
}
