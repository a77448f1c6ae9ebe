// What slots of executors did over the time of a job: staging, computing, delivering; the rest is idle. The server
// draws many tasks together, so that the picture has a bounded size. Each part and switch is in the URL.

import { api, cluster } from "./cluster.js";
import { Failure, Link, go, html, parameter, withParameters } from "./parts.js";
import { Component } from "./preact.js";
import { Geometry, draw } from "./timeline_drawing.js";
import { counted, duration } from "./words.js";

// Least time between two questions about a running job, milliseconds.
const EVERY_MS = 2000;
// A movement that is shorter is a click, pixels.
const CLICK = 5;
// By this factor, a key zooms.
const ZOOM = 2;
const LEGEND = [
  ["staging", "staging", "no task computes, because inputs are fetched"],
  ["computing", "computing", "the program of a task runs"],
  ["open", "at the executor", "staging or computing now"],
  ["delivering", "delivering", "outputs are written, and the result is sent"],
  ["idle", "idle", "no task"],
];

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function share(part, totals) {
  const all = LEGEND.reduce((sum, [kind]) => sum + totals[`${kind}_us`], 0);
  return all > 0 ? (100 * part) / all : 0;
}

function percent(value) {
  return `${value >= 10 || value === 0 ? Math.round(value) : value.toFixed(1)} %`;
}

/** What a task did, in words. */
function words(bar, row) {
  const end = bar.state === "open" ? "runs" : bar.state;
  const parts = [`task ${bar.index} on ${row.executor}, slot ${row.slot}: ${end}`];
  if (bar.started_us > bar.staged_us) parts.push(`staging ${duration(bar.started_us - bar.staged_us)}`);
  if (bar.state !== "open") parts.push(`computing ${duration(bar.ended_us - bar.started_us)}`);
  if (bar.delivered_us > bar.ended_us) parts.push(`delivering ${duration(bar.delivered_us - bar.ended_us)}`);
  if (bar.is_estimated) parts.push("its beginning is estimated");
  return parts.join(", ");
}

/** The name of a row. */
function place(row) {
  if (!row) return "";
  return row.last_slot ? `${row.executor}, slots ${row.slot} to ${row.last_slot}` : row.executor;
}

/** The whole picture in words, and what keys do. */
function summary(totals) {
  const shares = LEGEND.map(([kind, name]) => `${name} ${percent(share(totals[`${kind}_us`], totals))}`);
  return (
    `${counted(totals.slots, "slot")}, ${counted(totals.tasks, "task")}: ${shares.join(", ")}. ` +
    "Arrow keys select tasks, Enter opens one, plus and minus zoom, Escape shows all."
  );
}

function Legend({ totals }) {
  return html`<ul class="legend">
    ${LEGEND.filter(([kind]) => kind !== "open" || totals.open_us > 0).map(
      ([kind, name, meaning]) =>
        html`<li title=${meaning}>
          <span class=${`mark ${kind}`}></span>${name} <b>${percent(share(totals[`${kind}_us`], totals))}</b>
        </li>`,
    )}
  </ul>`;
}

export class Timeline extends Component {
  state = { picture: null, error: null, said: "", brush: null, walked: null };

  componentDidMount() {
    this.redraw = () => this.draw();
    this.scheme = matchMedia("(prefers-color-scheme: dark)");
    this.scheme.addEventListener("change", this.redraw);
    this.observer = new ResizeObserver(() => this.draw());
    if (this.base) this.observer.observe(this.base);
    this.load();
  }

  componentDidUpdate() {
    const view = cluster.jobs.get(this.props.job);
    // While a picture is asked for, which may take seconds, the next one waits.
    const isOld = view && view !== this.seen && !this.isAsking;
    if (this.asked !== this.query() || (isOld && Date.now() - this.at > EVERY_MS)) this.load();
    else if (isOld) this.later ??= setTimeout(() => this.load(), EVERY_MS);
    this.draw();
  }

  componentWillUnmount() {
    clearTimeout(this.later);
    this.scheme.removeEventListener("change", this.redraw);
    this.observer.disconnect();
    this.isGone = true;
  }

  query() {
    const asked = new URLSearchParams();
    const pairs = [
      ["from_us", "from"],
      ["to_us", "to"],
      ["idle", "idle"],
      ["executor", "executor"],
    ];
    for (const [name, ofPage] of pairs) if (parameter(ofPage)) asked.set(name, parameter(ofPage));
    return asked.toString();
  }

  async load() {
    clearTimeout(this.later);
    this.later = undefined;
    const query = this.query();
    [this.asked, this.at, this.seen] = [query, Date.now(), cluster.jobs.get(this.props.job)];
    this.isAsking = true;
    const next = await api(`/jobs/${this.props.job}/timeline?${query}`).then(
      ({ timeline }) => ({ picture: timeline, error: null }),
      (error) => ({ error }),
    );
    // The answer to an earlier question may come late.
    if (this.isGone || this.asked !== query) return;
    this.isAsking = false;
    this.setState(next);
  }

  draw() {
    const { picture, brush, walked } = this.state;
    const canvas = this.base?.querySelector?.("canvas");
    if (!canvas || !picture || canvas.clientWidth === 0) return;
    this.geometry = new Geometry(picture, canvas.clientWidth);
    const selected = walked ?? (parameter("task") === "" ? null : Number(parameter("task")));
    draw(canvas, this.geometry, { selected, brush, color, font: `12px ${getComputedStyle(canvas).fontFamily}` });
  }

  show(from, to) {
    const { end_us: end } = this.state.picture;
    const [first, last] = [Math.max(Math.round(from), 0), Math.min(Math.round(to), end)];
    if (last - first < 2) return;
    const isWhole = first === 0 && last === end;
    go(withParameters({ from: isWhole ? "" : first, to: isWhole ? "" : last }));
  }

  open(index) {
    go(withParameters({ task: index }));
  }

  place(event) {
    const box = event.currentTarget.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  down = (event) => {
    if (event.button !== 0) return;
    event.currentTarget.setPointerCapture(event.pointerId);
    const [x] = this.place(event);
    this.setState({ brush: [x, x] });
  };

  move = (event) => {
    if (!this.geometry) return;
    const [x, y] = this.place(event);
    const { picture, brush } = this.state;
    const bar = this.geometry.barAt(x, y);
    const row = picture.rows[this.geometry.row(y)];
    const said = bar ? words(bar, row) : place(row);
    if (brush) this.setState({ brush: [brush[0], x], said });
    else if (said !== this.state.said) this.setState({ said });
  };

  up = (event) => {
    const { brush } = this.state;
    if (!brush || !this.geometry) return;
    this.setState({ brush: null });
    const [x, y] = this.place(event);
    if (Math.abs(x - brush[0]) > CLICK) {
      const [from, to] = [this.geometry.time(Math.min(x, brush[0])), this.geometry.time(Math.max(x, brush[0]))];
      this.show(from, to);
    } else this.click(x, y);
  };

  /** Opens a task, or an executor of which there is one row, or shows more of what is there. */
  click(x, y) {
    const bar = this.geometry.barAt(x, y);
    if (bar) return this.open(bar.index);
    const row = this.state.picture.rows[this.geometry.row(y)];
    if (!row) return;
    if (row.slot === null && row.last_executor === null) go(withParameters({ executor: row.executor }));
    else if (row.cells) this.zoom(1 / (4 * ZOOM), this.geometry.time(x));
  }

  zoom(factor, around) {
    const { from_us: from, to_us: to } = this.state.picture;
    const [middle, half] = [around ?? (from + to) / 2, ((to - from) * factor) / 2];
    this.show(middle - half, middle + half);
  }

  /** Moves the selection to the next task of the row, or to a task of the next row. */
  walk(along, across) {
    const bars = [...(this.state.picture.bars ?? [])].sort((a, b) => a.row - b.row || a.started_us - b.started_us);
    if (bars.length === 0) return;
    const at = bars.findIndex((bar) => bar.index === this.state.walked);
    const next = at < 0 ? 0 : at + along;
    let bar = bars[Math.min(Math.max(next, 0), bars.length - 1)];
    if (across !== 0 && at >= 0) {
      const rows = bars.filter((other) => (other.row - bars[at].row) * across > 0);
      const nearest = (a, b) => Math.abs(a.row - bars[at].row) - Math.abs(b.row - bars[at].row);
      bar = rows.sort(nearest)[0] ?? bars[at];
    }
    this.setState({ walked: bar.index, said: words(bar, this.state.picture.rows[bar.row]) });
  }

  key = (event) => {
    const act = {
      ArrowLeft: () => this.walk(-1, 0),
      ArrowRight: () => this.walk(1, 0),
      ArrowUp: () => this.walk(0, -1),
      ArrowDown: () => this.walk(0, 1),
      Enter: () => this.state.walked !== null && this.open(this.state.walked),
      Escape: () => go(withParameters({ from: "", to: "", executor: "" })),
      "+": () => this.zoom(1 / ZOOM),
      "-": () => this.zoom(ZOOM),
    }[event.key];
    if (!act || event.ctrlKey || event.metaKey || !this.state.picture) return;
    event.preventDefault();
    act();
  };

  render() {
    const { picture, error, said } = this.state;
    const isPart = parameter("from") || parameter("to") || parameter("executor");
    const isCompressed = parameter("idle") === "compressed";
    const compress = () => go(withParameters({ idle: isCompressed ? "" : "compressed" }));
    const label = picture && summary(picture.totals);
    return html`<figure class="timeline">
      <figcaption>
        <h2>Timeline</h2>
        <small>${parameter("executor") || "slots of executors"}</small>
        <div class="tools">
          ${isPart && html`<${Link} to=${withParameters({ from: "", to: "", executor: "" })}>Show all<//>`}
          <label><input type="checkbox" checked=${isCompressed} onChange=${compress} /> Shorten idle time</label>
        </div>
      </figcaption>
      <${Failure} error=${error} />
      ${picture
        ? html`<${Legend} totals=${picture.totals} />
            <canvas
              role="img"
              tabindex="0"
              aria-label=${label}
              onPointerDown=${this.down}
              onPointerMove=${this.move}
              onPointerUp=${this.up}
              onPointerLeave=${() => this.setState({ said: "" })}
              onPointerCancel=${() => this.setState({ brush: null })}
              onKeyDown=${this.key}
            ></canvas>
            <p class="said" aria-live="polite">
              ${said || (picture.bars ? "Click on a task to explain it. Mark a part to zoom." : "Mark a part to zoom.")}
            </p>`
        : html`<p class="lead">${error ? "" : "Loading…"}</p>`}
    </figure>`;
  }
}
