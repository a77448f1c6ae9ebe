// Where the page is: behind a reverse proxy, its paths may begin with that of the proxy.

/** The beginning of all paths; empty, or `/eyas` for a page at `/eyas/`. */
export const BASE = new URL("..", import.meta.url).pathname.replace(/\/$/, "");

/** The path of the view, without the beginning. */
export function path() {
  const whole = location.pathname;
  return whole.startsWith(`${BASE}/`) ? whole.slice(BASE.length) : "/";
}
