// The list of jobs: failures first.

import { cluster } from "./cluster.js";
import { Choice, Link, Search, State, Wide, ended, html, parameter, tasksBar, total } from "./parts.js";
import { count, duration, moment } from "./words.js";

// More rows than this are behind a button: a browser draws each of them again at each change.
const ROWS = 200;

/** Jobs that need a look come first: running ones with failures, then running ones, then failed ones. */
function place(job) {
  const isRunning = job.state === "running";
  if (isRunning && (job.tasks.failed > 0 || job.is_stuck)) return 0;
  if (isRunning) return 1;
  return job.state === "failed" ? 2 : 3;
}

function selected() {
  const [state, name] = [parameter("state"), parameter("name").toLowerCase()];
  const jobs = [...cluster.jobs.values()].filter(
    (job) => (!state || job.state === state) && (!name || job.name.toLowerCase().includes(name)),
  );
  return jobs.sort((a, b) => place(a) - place(b) || b.job - a.job);
}

function Row({ job }) {
  const { tasks } = job;
  return html`<tr>
    <td class="number">${job.job}</td>
    <td class="name">
      <${Link} to=${`/jobs/${job.job}`}>${job.name || "(no name)"}<//>
      ${job.warnings.map((warning) => html`<div class="note-line">${warning}</div>`)}
    </td>
    <td><${State} state=${job.state} /></td>
    <td class="progress">${tasksBar(tasks)}<small>${count(ended(tasks))} of ${count(total(tasks))}</small></td>
    <td class="number">
      ${tasks.failed > 0 &&
      html`<${Link} class="bad-text" to=${`/jobs/${job.job}?state=failed`}>${count(tasks.failed)}<//>`}
    </td>
    <td class="number">${duration(job.elapsed_us)}</td>
    <td>${job.owner.user}</td>
    <td class="number">${moment(job.submitted_unix_ms)}</td>
  </tr>`;
}

export function Jobs() {
  const all = selected();
  const shown = Number(parameter("rows")) || ROWS;
  const more = new URLSearchParams(location.search);
  more.set("rows", shown + ROWS);
  return html`<section aria-label="Jobs">
    <div class="head">
      <h1>Jobs</h1>
      <div class="tools">
        <${Search} name="name" label="Name" />
        <${Choice}
          name="state"
          label="State"
          options=${[["", "all"], ...["running", "failed", "succeeded", "cancelled"].map((state) => [state, state])]}
        />
      </div>
    </div>
    ${all.length === 0
      ? html`<p class="note">
          ${cluster.jobs.size === 0 ? html`No job yet. Submit one with <code>eyas run --each …</code>` : "No such job."}
        </p>`
      : html`<${Wide} label="Table of jobs">
          <thead>
            <tr>
              <th class="number">Job</th>
              <th>Name</th>
              <th>State</th>
              <th>Tasks</th>
              <th class="number">Failures</th>
              <th class="number">Time</th>
              <th>User</th>
              <th class="number">Submitted</th>
            </tr>
          </thead>
          <tbody>
            ${all.slice(0, shown).map((job) => html`<${Row} key=${job.job} job=${job} />`)}
          </tbody>
        <//>`}
    ${all.length > shown && html`<p><${Link} to=${`/?${more}`}>Show more of ${count(all.length)} jobs<//></p>`}
  </section>`;
}
