// The state of the cluster, as the server tells it. There is one stream of events for the page.

import { BASE } from "./base.js";

export const API = `${BASE}/api/v1`;
// After a stream was refused, as while the server restarts, milliseconds.
const AGAIN_MS = 3000;
// A request is given up after this time.
const DEADLINE_MS = 60_000;

/** An error of the server, with what to do about it. */
export class ApiFailure extends Error {
  constructor(status, { message, hint } = {}) {
    super(message ?? `the server answered with status ${status}`);
    this.status = status;
    this.hint = hint ?? "";
  }
}

export const cluster = {
  jobs: new Map(),
  executors: [],
  // Whether the dispatcher answers; null until that is known.
  isConnected: null,
  // Whether the server answers.
  isHere: true,
  // Whether the server lets this page in: one that has started again has another token.
  isKnown: true,
  isLoaded: false,
};

const readers = new Set();

/** Calls `read` after each change. Returns a function that ends it. */
export function onChange(read) {
  readers.add(read);
  return () => readers.delete(read);
}

let isTold = false;

/** Tells the readers once for all changes of a frame. */
function tell() {
  if (isTold) return;
  isTold = true;
  requestAnimationFrame(() => {
    isTold = false;
    readers.forEach((read) => read());
  });
}

/** Asks the server. Throws an ApiFailure. */
async function ask(path, options) {
  let answer;
  try {
    answer = await fetch(API + path, { signal: AbortSignal.timeout(DEADLINE_MS), ...options });
  } catch {
    throw new ApiFailure(0, { message: "the server of this page does not answer", hint: "start `eyas web` again" });
  }
  if (answer.ok) return answer;
  const { error } = await answer.json().catch(() => ({}));
  throw new ApiFailure(answer.status, error);
}

/** The answer of a path. Throws an ApiFailure. */
export async function api(path, options = {}) {
  return (await ask(path, options)).json();
}

/** The text of a path, such as what a task has printed. Throws an ApiFailure. */
export async function text(path) {
  return (await ask(path, {})).text();
}

/** Follows the cluster without an end. */
export function follow() {
  const stream = new EventSource(`${API}/events?include=state&after=now`);
  const on = (kind, handle) =>
    stream.addEventListener(kind, (event) => {
      handle(JSON.parse(event.data));
      tell();
    });
  stream.onopen = () => {
    [cluster.isHere, cluster.isKnown] = [true, true];
    tell();
  };
  on("dispatcher", ({ is_connected }) => (cluster.isConnected = is_connected));
  on("jobs", ({ jobs, only }) => {
    for (const job of jobs) cluster.jobs.set(job.job, job);
    if (only) {
      const all = new Set(only);
      for (const id of cluster.jobs.keys()) if (!all.has(id)) cluster.jobs.delete(id);
    }
    cluster.isLoaded = true;
  });
  on("executors", (executors) => {
    cluster.executors = executors;
    cluster.isLoaded = true;
  });
  stream.onerror = () => {
    cluster.isHere = false;
    tell();
    if (stream.readyState !== EventSource.CLOSED) return;
    setTimeout(follow, AGAIN_MS);
    // A stream does not say with which status it was refused.
    api("/status").catch(({ status }) => {
      // After too many wrong tokens, 429 stands for 401. What cannot answer shows nothing new.
      [cluster.isHere, cluster.isKnown] = [status > 0 && status < 500, ![401, 429].includes(status)];
      tell();
    });
  };
}
