// Small parts that the views share.

import { BASE, path } from "./base.js";
import htm from "./htm.js";
import { h } from "./preact.js";
import { count } from "./words.js";

export const html = htm.bind(h);

/** Goes to a view: its path, without that of the page. */
export function go(url, isReplaced = false) {
  history[isReplaced ? "replaceState" : "pushState"](null, "", BASE + url);
  dispatchEvent(new PopStateEvent("popstate"));
}

/** The present view with other parameters; empty ones are left out. */
export function withParameters(changes) {
  const parameters = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value === "" || value === null || value === undefined) parameters.delete(name);
    else parameters.set(name, value);
  }
  const query = parameters.toString();
  return path() + (query ? `?${query}` : "");
}

export function parameter(name) {
  return new URLSearchParams(location.search).get(name) ?? "";
}

/** A link within this page. */
export function Link({ to, children, ...others }) {
  const follow = (event) => {
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.button !== 0) return;
    event.preventDefault();
    go(to);
    scrollTo(0, 0);
  };
  return html`<a href=${BASE + to} onClick=${follow} ...${others}>${children}</a>`;
}

export function State({ state }) {
  return html`<span class=${`state ${state}`}>${state}</span>`;
}

/** A table that is wider than a narrow window; the keyboard can scroll it, too. */
export function Wide({ label, children }) {
  return html`<div class="wide" tabindex="0" role="group" aria-label=${label}><table>${children}</table></div>`;
}

/** A bar of parts, each with a class, a number and a noun. Its text is for screen readers. */
export function Bar({ parts, label }) {
  const shown = parts.filter((part) => part.value > 0);
  const said = shown.map((part) => `${count(part.value)} ${part.name}`).join(", ");
  const words = label ?? (said || "nothing");
  return html`<div class="bar" role="img" aria-label=${words} title=${words}>
    ${shown.map((part) => html`<span class=${part.kind} style=${{ flexGrow: part.value }}></span>`)}
  </div>`;
}

export function tasksBar(tasks) {
  return html`<${Bar}
    parts=${[
      { kind: "good", value: tasks.succeeded, name: "succeeded" },
      { kind: "bad", value: tasks.failed, name: "failed" },
      { kind: "gone", value: tasks.cancelled, name: "cancelled" },
      { kind: "busy", value: tasks.assigned, name: "at executors" },
      { kind: "rest", value: tasks.waiting + tasks.blocked, name: "waiting" },
    ]}
  />`;
}

export function total(tasks) {
  return ended(tasks) + tasks.blocked + tasks.waiting + tasks.assigned;
}

export function ended(tasks) {
  return tasks.succeeded + tasks.failed + tasks.cancelled;
}

export function Failure({ error }) {
  if (!error) return null;
  return html`<p class="warning" role="alert"><b>${error.message}</b>${error.hint ? ` — ${error.hint}` : ""}</p>`;
}

/** A field whose value is a parameter of the URL. */
export function Search({ name, label }) {
  const change = (event) => go(withParameters({ [name]: event.target.value, cursor: "", back: "" }), true);
  return html`<label class="field"
    ><span>${label}</span>
    <input type="search" id="search" value=${parameter(name)} onInput=${change} autocomplete="off" spellcheck=${false}
  /></label>`;
}

/** A choice whose value is a parameter of the URL. */
export function Choice({ name, label, options }) {
  const change = (event) => go(withParameters({ [name]: event.target.value, cursor: "", back: "" }));
  const present = parameter(name);
  return html`<label class="field"
    ><span>${label}</span>
    <select onChange=${change}>
      ${options.map(([value, words]) => html`<option value=${value} selected=${value === present}>${words}</option>`)}
    </select></label
  >`;
}
