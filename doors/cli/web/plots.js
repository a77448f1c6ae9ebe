// The charts of a sweep: each shows one measured value over the varied parameter, with one line for each combination of
// the other parameters.
(() => {
  "use strict";

  const room = document.getElementById("charts");
  const { axis, plots } = JSON.parse(document.getElementById("data").textContent);
  const colors = ["accent", "persistent", "local", "delivery", "ink", "peer", "baseline"];
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const font = `12px ${getComputedStyle(document.body).fontFamily}`;
  const figures = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
  const text = (value, unit) =>
    value === null || value === undefined ? "–" : `${figures.format(value)} ${unit}`.trim();

  // A single value is shown in the middle of its axis.
  const [first, last] = [axis.values[0], axis.values[axis.values.length - 1]];
  const margin = last > first ? (last - first) * 0.04 : Math.max(1, first / 2);

  const drawn = plots.map((plot) => {
    const figure = room.appendChild(document.createElement("figure"));
    const caption = figure.appendChild(document.createElement("figcaption"));
    caption.appendChild(document.createElement("h3")).textContent = plot.title;
    caption.appendChild(document.createElement("p")).textContent = plot.note;
    const drawnAxis = (more) => ({
      stroke: () => color("soft"),
      grid: { stroke: () => color("grid"), width: 1 },
      ticks: { stroke: () => color("grid"), width: 1, size: 5 },
      font,
      labelFont: font,
      ...more,
    });
    const series = plot.lines.map((line, i) => ({
      label: line.label,
      stroke: () => color(colors[i % colors.length]),
      // After the last colour, colours are repeated with other dashes.
      dash: i < colors.length ? undefined : [3 + 3 * Math.floor(i / colors.length), 3],
      width: 1.75,
      spanGaps: true,
      points: { show: true, size: 6 },
      value: (_plot, value) => text(value, plot.unit),
    }));
    const options = {
      width: Math.max(200, room.clientWidth / 2 - 30),
      height: 260,
      padding: [8, 12, 0, 0],
      scales: {
        x: { time: false, range: [first - margin, last + margin] },
        y: { range: (_plot, _min, max) => [0, max > 0 ? uPlot.rangeNum(0, max, 0.08, true)[1] : 1] },
      },
      axes: [
        drawnAxis({ label: axis.label, labelSize: 20, labelGap: 0, size: 30, space: 60 }),
        drawnAxis({ label: plot.unit || undefined, labelSize: 18, labelGap: 2, size: 58, space: 32 }),
      ],
      series: [{ label: axis.label, value: (_plot, value) => text(value, "") }, ...series],
      cursor: { y: false, sync: { key: "sweep", scales: ["x", null] } },
    };
    const chart = new uPlot(options, [axis.values, ...plot.lines.map((line) => line.values)], figure);
    // The legend names lines; the axis has a label of its own.
    chart.root.querySelector(".u-legend .u-series").style.display = "none";
    const picture = chart.root.querySelector(".u-wrap");
    picture.setAttribute("role", "img");
    const said = plot.lines.map((line) => `${line.label}: ${line.values.map((v) => text(v, plot.unit)).join(", ")}`);
    picture.setAttribute(
      "aria-label",
      `${plot.title} over ${axis.label} of ${axis.values.map((v) => text(v, "")).join(", ")}. ${said.join("; ")}.`,
    );
    return chart;
  });

  const fit = () => {
    for (const chart of drawn) {
      const figure = chart.root.parentElement;
      const style = getComputedStyle(figure);
      const width = figure.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
      if (width > 0 && chart.width !== width) chart.setSize({ width, height: chart.height });
    }
  };
  fit();
  new ResizeObserver(fit).observe(room);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () =>
    drawn.forEach((chart) => chart.redraw(false, true)),
  );
})();
