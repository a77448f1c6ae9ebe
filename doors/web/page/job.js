// One job: counts, failures, the timeline, throughput over time, and its tasks.

import { Sources, Throughput } from "./charts.js";
import { API, api, cluster } from "./cluster.js";
import { Choice, Failure, Link, Search, State, Wide, ended, go, html } from "./parts.js";
import { parameter, tasksBar, total, withParameters } from "./parts.js";
import { Component } from "./preact.js";
import { TaskDetails } from "./task_details.js";
import { Timeline } from "./timeline.js";
import { bytes, count, counted, duration, moment, name, rate } from "./words.js";

// Tasks of a page.
const LIMIT = 50;
// Least time between two questions about a running job, milliseconds.
const EVERY_MS = 2000;
// Failed tasks that are shown above the table.
const FAILURES = 5;
const STATES = ["failed", "blocked", "waiting", "assigned", "suspended", "succeeded", "cancelled"];
const ORDERS = [
  ["", "as submitted"],
  ["ran_us", "longest run"],
  ["queued_us", "longest wait"],
  ["peak_memory_bytes", "most memory"],
  ["tries", "most tries"],
];

function TaskRow({ task, isOpen }) {
  const index = task.task.split(".")[1];
  const toggle = withParameters({ task: isOpen ? "" : index });
  return html`<tr class=${isOpen ? "open" : ""}>
      <td class="number">
        <${Link} to=${toggle} aria-expanded=${isOpen} aria-label=${`Task ${task.task}`}>${index}<//>
      </td>
      <td class="name">${task.id ? `${task.id} ` : ""}${name(task.item)}</td>
      <td><${State} state=${task.state} /></td>
      <td class="name">${task.state === "failed" ? task.status : ""}</td>
      <td>${task.executor ?? ""}</td>
      <td class="number">${task.tries}</td>
      <td class="number">${task.ran_us > 0 ? duration(task.ran_us) : ""}</td>
      <td class="number">${task.peak_memory_bytes > 0 ? bytes(task.peak_memory_bytes) : ""}</td>
    </tr>
    ${isOpen && html`<tr><td colspan="8"><${TaskDetails} job=${task.task.split(".")[0]} index=${index} /></td></tr>`}`;
}

/** A failed task, with the end of its standard error. */
function FailedTask({ job, failure }) {
  const index = failure.task.split(".")[1];
  return html`<li>
    <${Link} to=${withParameters({ task: index })}>Task ${failure.task}<//>
    <span class="name">${failure.id ? `${failure.id} ` : ""}${name(failure.item)}</span>
    <span class="bad-text">${failure.status}</span>
    <a href=${`${API}/jobs/${job}/tasks/${index}/stderr`}>log</a>
    ${failure.stderr && html`<pre tabindex="0">${failure.stderr}</pre>`}
  </li>`;
}

function Failures({ job, failures, failed }) {
  const all = withParameters({ state: "failed", cursor: "", back: "" });
  const shown = failures.slice(0, FAILURES);
  return html`<section aria-label="Failures">
    <h2>Failures</h2>
    <ul class="failures">
      ${shown.map((failure) => html`<${FailedTask} key=${failure.task} ...${{ job, failure }} />`)}
    </ul>
    ${failed > FAILURES && html`<${Link} to=${all}>All ${count(failed)} failed tasks<//>`}
  </section>`;
}

export class Job extends Component {
  state = { tasks: [], next: null, samples: null, failures: [], error: null };

  componentDidMount() {
    this.load();
  }

  componentDidUpdate() {
    const view = cluster.jobs.get(this.props.job);
    const isOther = this.loaded !== this.query();
    // What a running job shows becomes old with each change of it.
    if (isOther || (view && view !== this.seen && Date.now() - this.at > EVERY_MS)) this.load();
    else if (view && view !== this.seen) this.later ??= setTimeout(() => this.load(), EVERY_MS);
  }

  componentWillUnmount() {
    clearTimeout(this.later);
    this.isGone = true;
  }

  query() {
    const query = new URLSearchParams({ limit: LIMIT });
    for (const key of ["state", "text", "cursor"]) if (parameter(key)) query.set(key, parameter(key));
    if (parameter("sort")) {
      query.set("sort", parameter("sort"));
      query.set("order", "descending");
    }
    return query.toString();
  }

  async load() {
    clearTimeout(this.later);
    this.later = null;
    const [{ job }, query] = [this.props, this.query()];
    this.loaded = query;
    this.seen = cluster.jobs.get(job);
    this.at = Date.now();
    try {
      const [{ tasks, next, matches }, { report }] = await Promise.all([
        api(`/jobs/${job}/tasks?${query}`),
        api(`/jobs/${job}/report`),
      ]);
      // A later question may have been answered first.
      if (this.isGone || this.loaded !== query) return;
      this.setState({ tasks, next, matches, samples: report.samples, failures: report.failures, error: null });
    } catch (error) {
      if (!this.isGone) this.setState({ error });
    }
  }

  async change(path, method = "POST") {
    try {
      await api(`/jobs/${this.props.job}${path}`, { method });
      if (method === "DELETE") go("/");
      else this.load();
    } catch (error) {
      this.setState({ error });
    }
  }

  buttons(view) {
    const left = view.tasks.failed + view.tasks.cancelled;
    if (view.state === "running") {
      return html`<button onClick=${() => confirm(`Cancel job ${view.job}?`) && this.change("/cancel")}>Cancel</button>`;
    }
    return left > 0 && html`<button onClick=${() => this.change("/retry")}>Retry ${counted(left, "task")}</button>`;
  }

  /** The task of the URL, if the table does not show it. */
  selected() {
    const [index, { job }] = [parameter("task"), this.props];
    const isShown = this.state.tasks.some((task) => task.task === `${job}.${index}`);
    if (index === "" || isShown) return null;
    return html`<section aria-label="Selected task">
      <div class="head">
        <h2>Task ${job}.${index}</h2>
        <${Link} to=${withParameters({ task: "" })}>Close<//>
      </div>
      <${TaskDetails} key=${index} job=${job} index=${index} />
    </section>`;
  }

  tasks() {
    const { tasks, next, matches } = this.state;
    const [cursor, back] = [parameter("cursor"), parameter("back").split(",").filter(Boolean)];
    const before = withParameters({ cursor: back.at(-1) === "0" ? "" : back.at(-1), back: back.slice(0, -1).join(",") });
    const after = withParameters({ cursor: next, back: [...back, cursor || "0"].join(",") });
    return html`<section aria-label="Tasks">
      <div class="head">
        <h2>Tasks</h2>
        <div class="tools">
          <${Search} name="text" label="Text" />
          <${Choice} name="state" label="State" options=${[["", "all"], ...STATES.map((state) => [state, state])]} />
          <${Choice} name="sort" label="Order" options=${ORDERS} />
        </div>
      </div>
      ${tasks.length === 0
        ? html`<p class="note">No such task.</p>`
        : html`<${Wide} label="Table of tasks">
            <thead>
              <tr>
                <th class="number">Task</th>
                <th>Item</th>
                <th>State</th>
                <th>Failure</th>
                <th>Executor</th>
                <th class="number">Tries</th>
                <th class="number">Ran</th>
                <th class="number">Memory</th>
              </tr>
            </thead>
            <tbody>
              ${tasks.map(
                (task) =>
                  html`<${TaskRow}
                    key=${task.task}
                    task=${task}
                    isOpen=${parameter("task") === task.task.split(".")[1]}
                  />`,
              )}
            </tbody>
          <//>`}
      <nav class="pages" aria-label="Pages of tasks">
        ${back.length > 0 && html`<${Link} to=${before} rel="prev">Earlier<//>`}
        ${next !== null && next !== undefined && html`<${Link} to=${after} rel="next">Next ${LIMIT}<//>`}
        ${matches !== null && matches !== undefined && html`<small>${counted(matches, "task")} found</small>`}
        <span class="export">
          All tasks as <a href=${`${API}/jobs/${this.props.job}/tasks.csv`}>CSV</a>
          ${" "}<a href=${`${API}/jobs/${this.props.job}/tasks.json`}>JSON</a>
        </span>
      </nav>
    </section>`;
  }

  render({ job }) {
    const view = cluster.jobs.get(job);
    if (!view) {
      return html`<p class="note">${cluster.isLoaded ? `There is no job ${job}.` : "Loading…"}</p>`;
    }
    const { tasks } = view;
    const seconds = Math.max(view.elapsed_us / 1e6, 1e-3);
    const facts = [
      ["succeeded", count(tasks.succeeded)],
      ["failed", count(tasks.failed)],
      ["at executors", count(tasks.assigned)],
      ["waiting", count(tasks.waiting + tasks.blocked)],
      ["tasks per second", rate(ended(tasks) / seconds)],
      ["time", duration(view.elapsed_us)],
      ["submitted", `${moment(view.submitted_unix_ms)} by ${view.owner.user}`],
    ];
    return html`<section>
        <p class="kicker">Job ${view.job}</p>
        <div class="head">
          <h1>${view.name} <${State} state=${view.state} /></h1>
          <div class="tools">${this.buttons(view)}</div>
        </div>
        ${view.warnings.map((warning) => html`<p class="warning">${warning}</p>`)}
        <${Failure} error=${this.state.error} />
        <div class="large">${tasksBar(tasks)}</div>
        <small>${count(ended(tasks))} of ${counted(total(tasks), "task")} ended</small>
        <dl class="facts">
          ${facts.map(([term, value]) => html`<div><dt>${term}</dt><dd>${value}</dd></div>`)}
        </dl>
      </section>
      ${tasks.failed > 0 &&
      this.state.failures.length > 0 &&
      html`<${Failures} job=${job} failures=${this.state.failures} failed=${tasks.failed} />`}
      <section><${Timeline} job=${job} /></section>
      ${this.selected()}
      ${this.state.samples &&
      html`<section class="charts">
        <${Throughput} samples=${this.state.samples} /><${Sources} samples=${this.state.samples} />
      </section>`}
      ${this.tasks()}`;
  }
}
