// Where a timeline's rows and times are on its canvas, and the drawing of it.

// Space for the names of executors, and for the times below, pixels.
const NAMES = 84;
const NARROW_NAMES = 52;
const TIMES = 22;
// Marks of times are this far apart at least.
const MARK_EVERY = 90;
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400];
const KINDS = ["staging", "computing", "delivering", "open"];

/** A time such as "90 s" or "2.5 ms", with as many figures as the distance between marks needs. */
function mark(us, stepUs) {
  if (us === 0) return "0";
  if (stepUs >= 3600e6) return `${us / 3600e6} h`;
  if (stepUs >= 60e6) return `${us / 60e6} min`;
  if (stepUs >= 1e6) return `${us / 1e6} s`;
  if (stepUs >= 1e3) return `${us / 1e3} ms`;
  return `${us} µs`;
}

/** The smallest step for times of which `count` fit into a length. */
function stepFor(us, count) {
  const least = us / Math.max(count, 1);
  const seconds = STEPS.find((step) => step * 1e6 >= least);
  if (least >= 1e6) return (seconds ?? Math.ceil(least / 86400e6) * 86400) * 1e6;
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1)));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least);
}

export class Geometry {
  constructor(picture, width) {
    this.picture = picture;
    this.width = width;
    this.names = width < 500 ? NARROW_NAMES : NAMES;
    const { rows, axis } = picture;
    this.rowHeight = rows.length <= 16 ? 18 : rows.length <= 40 ? 11 : 6;
    this.height = rows.length * this.rowHeight + TIMES;
    this.length = Math.max(axis.at(-1)[1], 1);
  }

  /** The position of a time, pixels. */
  x(moment) {
    const { axis, from_us: first, to_us: last } = this.picture;
    const us = Math.min(Math.max(moment, first), last);
    const after = Math.max(axis.findIndex(([real]) => real >= us), 1);
    const [[from, at], [to, end]] = [axis[after - 1], axis[after]];
    const place = at + ((us - from) / Math.max(to - from, 1)) * (end - at);
    return this.names + (place / this.length) * (this.width - this.names);
  }

  /** The time at a position. */
  time(x) {
    const { axis } = this.picture;
    const share = (x - this.names) / (this.width - this.names);
    const place = Math.min(Math.max(share, 0), 1) * this.length;
    const after = Math.max(axis.findIndex(([, at]) => at >= place), 1);
    const [[from, at], [to, end]] = [axis[after - 1], axis[after]];
    return Math.round(from + ((place - at) / Math.max(end - at, 1e-9)) * (to - from));
  }

  row(y) {
    const row = Math.floor(y / this.rowHeight);
    return row >= 0 && row < this.picture.rows.length ? row : null;
  }

  /** The task at a position, if tasks are drawn one by one. Short ones are a few pixels wide. */
  barAt(x, y) {
    const row = this.row(y);
    const bars = (this.picture.bars ?? []).filter((bar) => bar.row === row);
    const isAt = (bar) => x >= this.x(bar.staged_us) - 2 && x <= this.x(bar.delivered_us) + 2;
    return bars.findLast(isAt) ?? null;
  }
}

function drawBar(context, geometry, bar, colors) {
  const y = bar.row * geometry.rowHeight + 1;
  const height = geometry.rowHeight - 2;
  const isOpen = bar.state === "open";
  const parts = [
    [bar.staged_us, bar.started_us, "staging"],
    [bar.started_us, bar.ended_us, isOpen ? "open" : "computing"],
    [bar.ended_us, bar.delivered_us, "delivering"],
  ];
  for (const [from, to, kind] of parts) {
    const x = geometry.x(from);
    const width = geometry.x(to) - x;
    if (width <= 0) continue;
    context.fillStyle = colors[kind];
    // Tasks that follow each other are told apart by a gap.
    context.fillRect(x, y, Math.max(kind === "computing" && width > 3 ? width - 1 : width, 0.5), height);
  }
  if (bar.state === "succeeded" || isOpen) return;
  context.fillStyle = colors[bar.state === "failed" ? "bad" : "gone"];
  context.fillRect(geometry.x(bar.ended_us) - 3, y, 3, height);
}

function drawCells(context, geometry, row, at, colors) {
  const { columns } = geometry.picture;
  const width = (geometry.width - geometry.names) / columns;
  const [top, height] = [at * geometry.rowHeight + 1, geometry.rowHeight - 2];
  for (let column = 0; column < columns; column += 1) {
    const x = geometry.names + column * width;
    // From below: what slots did, and above that nothing.
    let y = top + height;
    for (const kind of ["computing", "open", "delivering", "staging"]) {
      const part = (row.cells[kind][column] / 1000) * height;
      if (part <= 0) continue;
      y -= part;
      context.fillStyle = colors[kind];
      context.fillRect(x, y, width + 0.3, part);
    }
    if (row.cells.failed[column] > 0) {
      context.fillStyle = colors.bad;
      context.fillRect(x, top, Math.max(width, 2), 3);
    }
  }
}

function drawNames(context, geometry, colors) {
  const { rows } = geometry.picture;
  context.fillStyle = colors.soft;
  context.textAlign = "left";
  const longest = geometry.names < NAMES ? 7 : 12;
  let below = 0;
  rows.forEach((row, at) => {
    const y = at * geometry.rowHeight;
    const isFirst = at === 0 || rows[at - 1].executor !== row.executor;
    if (!isFirst || y < below) return;
    const name = row.last_executor ? `${row.executor} …` : row.executor;
    const shown = name.length > longest ? `${name.slice(0, longest - 1)}…` : name;
    context.fillText(shown, 0, y + Math.min(geometry.rowHeight, 14) - 2);
    below = y + 12;
  });
}

function drawTimes(context, geometry, colors) {
  const { from_us: from, to_us: to, axis } = geometry.picture;
  const bottom = geometry.height - TIMES;
  const stepUs = stepFor(to - from, (geometry.width - geometry.names) / MARK_EVERY);
  let last = -MARK_EVERY;
  for (let us = Math.ceil(from / stepUs) * stepUs; us <= to; us += stepUs) {
    const x = geometry.x(us);
    if (x - last < MARK_EVERY / 2) continue;
    last = x;
    context.fillStyle = colors.line;
    context.fillRect(x, 0, 1, bottom + 4);
    context.fillStyle = colors.soft;
    context.textAlign = x > geometry.width - 30 ? "right" : "center";
    context.fillText(mark(us, stepUs), x, geometry.height - 6);
  }
  // Stretches that are drawn shorter.
  context.fillStyle = colors.gone;
  for (let at = 1; at < axis.length; at += 1) {
    const [[before, begin], [after, end]] = [axis[at - 1], axis[at]];
    if (after - before <= (end - begin) * 1.01 + 1) continue;
    const [x, until] = [geometry.x(before), geometry.x(after)];
    for (let y = 0; y < bottom; y += 6) context.fillRect((x + until) / 2, y, 2, 3);
  }
}

/** Draws a picture, the selected task, and the part that is being marked. */
export function draw(canvas, geometry, { selected, brush, color, font }) {
  const density = globalThis.devicePixelRatio || 1;
  const [width, height] = [Math.round(geometry.width * density), Math.round(geometry.height * density)];
  if (canvas.width !== width || canvas.height !== height) {
    canvas.width = width;
    canvas.height = height;
  }
  canvas.style.height = `${geometry.height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(density, 0, 0, density, 0, 0);
  context.clearRect(0, 0, geometry.width, geometry.height);
  context.font = font;
  const names = [...KINDS, "idle", "bad", "gone", "soft", "line", "ink", "accent"];
  const colors = Object.fromEntries(names.map((name) => [name, color(name)]));
  const { rows, bars } = geometry.picture;
  rows.forEach((row, at) => {
    context.fillStyle = colors.idle;
    const y = at * geometry.rowHeight + 1;
    context.fillRect(geometry.names, y, geometry.width - geometry.names, geometry.rowHeight - 2);
    if (row.cells) drawCells(context, geometry, row, at, colors);
  });
  drawTimes(context, geometry, colors);
  bars?.forEach((bar) => drawBar(context, geometry, bar, colors));
  drawNames(context, geometry, colors);
  const chosen = bars?.find((bar) => bar.index === selected);
  if (chosen) {
    const x = geometry.x(chosen.staged_us);
    context.strokeStyle = colors.ink;
    context.lineWidth = 2;
    context.strokeRect(
      x - 1,
      chosen.row * geometry.rowHeight,
      Math.max(geometry.x(chosen.delivered_us) - x + 2, 3),
      geometry.rowHeight,
    );
  }
  if (brush) {
    context.fillStyle = colors.accent;
    context.globalAlpha = 0.25;
    context.fillRect(Math.min(...brush), 0, Math.abs(brush[1] - brush[0]), geometry.height - TIMES);
    context.globalAlpha = 1;
  }
}
