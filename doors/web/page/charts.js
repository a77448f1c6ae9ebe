// The course of a job over time: ended tasks, and inputs by where they came from.

import { html } from "./parts.js";
import { bytes, duration, rate } from "./words.js";

// Height of the drawn area.
const TOP = 8;
const BOTTOM = 118;

const SOURCES = [
  ["local", "local", (reads) => reads.local.bytes],
  ["peer", "peers", (reads) => reads.peer.bytes],
  ["persistent", "storage", (reads) => reads.persistent.bytes],
  ["files", "cluster files", (reads) => reads.files.own_bytes + reads.files.other_bytes],
];

/** Amounts of each sample for each second. */
function perSecond(samples, amount) {
  return samples.map((sample) => amount(sample) / Math.max(sample.interval_us / 1e6, 1e-6));
}

/** The upper border of an area of steps. */
function steps(samples, values, most) {
  const length = samples.at(-1).at_us;
  const x = (us) => ((us / length) * 1000).toFixed(1);
  const y = (value) => (BOTTOM - (value / most) * (BOTTOM - TOP)).toFixed(1);
  const step = (sample, at) =>
    ` L ${x(sample.at_us - sample.interval_us)} ${y(values[at])} L ${x(sample.at_us)} ${y(values[at])}`;
  return `M 0 ${BOTTOM}${samples.map(step).join("")}`;
}

function Chart({ title, note, label, samples, children }) {
  return html`<figure>
    <figcaption><h2>${title}</h2> <small>${note}</small></figcaption>
    <svg viewBox="0 0 1000 120" preserveAspectRatio="none" role="img" aria-label=${label}>${children}</svg>
    <div class="axis"><small>0</small><small>${duration(samples.at(-1).at_us)}</small></div>
  </figure>`;
}

/** Ended tasks for each second. */
export function Throughput({ samples }) {
  if (samples.length < 2) return html`<p class="lead">There are no samples yet.</p>`;
  const rates = perSecond(samples, (sample) => sample.ended);
  const most = Math.max(...rates, 1e-9);
  const line = steps(samples, rates, most);
  const note = `ended tasks per second, up to ${rate(most)}`;
  const label = `Throughput over ${duration(samples.at(-1).at_us)}: ${note}`;
  return html`<${Chart} title="Throughput" ...${{ note, label, samples }}>
    <path class="area" d=${`${line} L 1000 ${BOTTOM} Z`} /><path class="line" d=${line} />
  <//>`;
}

/** Bytes of inputs for each second, by where they came from, one on the other. */
export function Sources({ samples }) {
  const sums = SOURCES.map(([, , amount]) => samples.reduce((sum, sample) => sum + amount(sample.reads), 0));
  const all = sums.reduce((sum, one) => sum + one, 0);
  if (samples.length < 2 || all === 0) return null;
  const layers = SOURCES.map(([kind, words, amount], at) => ({
    kind,
    words,
    share: Math.round((100 * sums[at]) / all),
    rates: perSecond(samples, (sample) => amount(sample.reads)),
  })).filter((_, at) => sums[at] > 0);
  const below = samples.map(() => 0);
  for (const layer of layers) layer.top = layer.rates.map((value, at) => (below[at] += value));
  const most = Math.max(...below, 1e-9);
  const shares = layers.map(({ words, share }) => `${words} ${share} %`).join(", ");
  const note = html`inputs per second, up to ${bytes(most)}/s:
    ${layers.map(({ kind, words, share }) => html`<span class=${`mark ${kind}`}></span>${words} ${share} %`)}`;
  const label = `Inputs by source over ${duration(samples.at(-1).at_us)}: ${shares}`;
  return html`<${Chart} title="Inputs by source" ...${{ note, label, samples }}>
    ${[...layers].reverse().map(
      ({ kind, top }) =>
        html`<path class=${`source ${kind}`} d=${`${steps(samples, top, most)} L 1000 ${BOTTOM} Z`} />`,
    )}
  <//>`;
}
