// The charts of a job's report, which show the summary views of the data diffusion papers: demand and throughput, hit
// rates, queue, processors, utilisation and tasks over time. All charts share one time axis, one cursor and one zoom.
//
// The data of the page are columns of numbers with one value for each sample; this script computes rates and shares.
(() => {
  "use strict";

  const room = document.getElementById("charts");
  const { job, baseline } = JSON.parse(document.getElementById("data").textContent);
  if (!room) return;

  // ---- Numbers for people ----

  const exact = new Intl.NumberFormat("en");
  const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
  const threeFigures = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
  const figures = (value) => (Math.abs(value) >= 1000 ? exact.format(Math.round(value)) : threeFigures.format(value));

  const duration = (seconds) => {
    if (seconds < 1) return `${figures(seconds * 1000)} ms`;
    if (seconds < 60) return `${figures(seconds)} s`;
    const whole = Math.round(seconds);
    if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
    return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  };

  // The largest unit in which the largest value is 1 or more.
  const scaleFor = (largest, units) => units.findLast(([, factor]) => largest >= factor) ?? units[0];
  const rateUnits = [
    ["b/s", 1],
    ["kb/s", 1e3],
    ["Mb/s", 1e6],
    ["Gb/s", 1e9],
    ["Tb/s", 1e12],
  ];
  const timeUnits = [
    ["ms", 1e-3],
    ["s", 1],
    ["min", 180],
    ["h", 3 * 3600],
    ["d", 3 * 86400],
  ];
  const secondsIn = { ms: 1e-3, s: 1, min: 60, h: 3600, d: 86400 };

  // ---- From samples to lines ----

  // One grid of times for all charts: the beginning, and every end of an interval, also of the baseline. A sample is valid
  // from the end of the sample before to its own end.
  const startOf = (columns) => Math.max(0, columns.at_us[0] - columns.interval_us[0]);
  const courses = baseline ? [job, baseline] : [job];
  const ends = new Set(courses.flatMap((columns) => columns.at_us));
  const gridUs = [...new Set([Math.min(...courses.map(startOf)), ...ends])].sort((a, b) => a - b);

  const onGrid = (columns, values) => {
    let sample = 0;
    return gridUs.map((at) => {
      while (sample < values.length && columns.at_us[sample] < at) sample += 1;
      return sample < values.length ? values[sample] : null;
    });
  };
  const each = (columns, value) =>
    onGrid(
      columns,
      columns.at_us.map((_, i) => value(i)),
    );
  const perSecond = (columns, amounts, factor) =>
    each(columns, (i) => (columns.interval_us[i] > 0 ? (amounts[i] * factor * 1e6) / columns.interval_us[i] : null));
  const percent = (part, whole) => (whole > 0 ? (100 * part) / whole : null);
  const thousandths = (columns, amounts) => each(columns, (i) => amounts[i] / 1000);

  const throughput = (columns) =>
    perSecond(
      columns,
      columns.at_us.map(
        (_, i) =>
          columns.local_bytes[i] + columns.peer_bytes[i] + columns.persistent_bytes[i] + columns.files_bytes[i],
      ),
      8,
    );
  const hitRate = (columns, counts) =>
    each(columns, (i) =>
      percent(
        counts[i],
        columns.local_count[i] + columns.peer_count[i] + columns.persistent_count[i] + columns.files_count[i],
      ),
    );

  // The average over time of the intervals that have a value.
  const average = (values) => {
    let [all, time] = [0, 0];
    for (let i = 1; i < values.length; i += 1) {
      if (values[i] === null) continue;
      all += values[i] * (gridUs[i] - gridUs[i - 1]);
      time += gridUs[i] - gridUs[i - 1];
    }
    return time > 0 ? all / time : null;
  };
  const sum = (amounts) => amounts.reduce((all, amount) => all + amount, 0);
  const overTime = (columns, amounts) => sum(amounts.map((amount, i) => amount * columns.interval_us[i]));
  const largest = (values) => values.reduce((most, value) => Math.max(most, value ?? 0), 0);

  // ---- What is drawn ----

  // `rest` of a chart selects the number that its legend shows while the cursor is elsewhere: the average over time, the
  // maximum, or the `overall` of each line. `as` of a line is `stack` (on top of the stacked lines after it), `area`,
  // `line` or `dashes`; a line may be `thin`; `color` is a colour of the style. A line that `bursts` may be cut at the top
  // of the chart: the tasks of a job arrive all at once, and would make every other line look flat.
  const columns = job;
  const bySource = (values) => [
    ...(sum(columns.files_bytes) > 0
      ? [{ label: "Cluster files", color: "files", as: "stack", values: values("files") }]
      : []),
    { label: "Persistent", color: "persistent", as: "stack", values: values("persistent") },
    { label: "Peer", color: "peer", as: "stack", values: values("peer") },
    { label: "Local", color: "local", as: "stack", values: values("local") },
  ];
  const bytesFrom = {
    local: columns.local_bytes,
    peer: columns.peer_bytes,
    persistent: columns.persistent_bytes,
    files: columns.files_bytes,
  };
  const countFrom = {
    local: columns.local_count,
    peer: columns.peer_count,
    persistent: columns.persistent_count,
    files: columns.files_count,
  };
  const charts = [
    {
      title: "Demand and throughput",
      note: "Input bytes of arrived tasks (demand), and of ended tasks by source (throughput)",
      wide: true,
      height: 300,
      unit: "rate",
      rest: "average",
      lines: [
        ...bySource((source) => perSecond(job, bytesFrom[source], 8)),
        { label: "Throughput", color: "soft", as: "line", thin: true, values: throughput(job) },
        ...(baseline
          ? [{ label: "Baseline throughput", color: "baseline", as: "line", thin: true, values: throughput(baseline) }]
          : []),
        {
          label: "Demand",
          color: "demand",
          as: "dashes",
          bursts: true,
          values: perSecond(job, columns.arrived_bytes, 8),
        },
      ],
    },
    {
      title: "Hit rates",
      note: "Local is the hit rate: inputs on the node's own disk. Peer: other nodes' disks. Persistent: storage",
      wide: true,
      height: 190,
      unit: "percent",
      rest: "overall",
      lines: bySource((source) => hitRate(job, countFrom[source])).map((line) => ({
        ...line,
        overall: percent(sum(countFrom[line.color]), sum(Object.values(countFrom).map(sum))),
      })),
    },
    {
      title: "Queue",
      note: "Tasks that are ready to run, and tasks at executors, which run or fetch inputs first (staging)",
      unit: "count",
      rest: "maximum",
      lines: [
        { label: "Waiting", color: "accent", as: "area", values: each(job, (i) => columns.waiting[i]) },
        { label: "At executors", color: "delivery", as: "line", values: each(job, (i) => columns.assigned[i]) },
      ],
    },
    {
      title: "Tasks per second",
      note: "Rates at which tasks arrived and ended",
      unit: "perSecond",
      rest: "average",
      lines: [
        { label: "Ended", color: "accent", as: "area", values: perSecond(job, columns.ended, 1) },
        { label: "Arrived", color: "demand", as: "dashes", bursts: true, values: perSecond(job, columns.arrived, 1) },
      ],
    },
    {
      title: "Executors and processors",
      note: "Number of executors, of their processors, and of busy processors",
      unit: "count",
      rest: "maximum",
      lines: [
        { label: "Busy", color: "accent", as: "area", values: thousandths(job, columns.busy_milli) },
        { label: "Processors", color: "demand", as: "line", values: thousandths(job, columns.capacity_milli) },
        { label: "Executors", color: "delivery", as: "dashes", values: each(job, (i) => columns.executors[i]) },
      ],
    },
    {
      title: "Utilisation",
      note: "Share of processors that run a task",
      unit: "percent",
      rest: "overall",
      lines: [
        {
          label: "Busy",
          color: "accent",
          as: "area",
          overall: percent(overTime(job, columns.busy_milli), overTime(job, columns.capacity_milli)),
          values: each(job, (i) => percent(columns.busy_milli[i], columns.capacity_milli[i])),
        },
      ],
    },
  ];

  // ---- Drawing ----

  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const font = (size) => `${size}px ${getComputedStyle(document.body).fontFamily}`;

  const lengthS = (gridUs[gridUs.length - 1] - gridUs[0]) / 1e6;
  const [timeUnit] = scaleFor(lengthS, timeUnits);
  const time = gridUs.map((at) => at / 1e6 / secondsIn[timeUnit]);
  const whole = { min: time[0], max: time[time.length - 1] };
  const jobEnd = job.at_us[job.at_us.length - 1] / 1e6 / secondsIn[timeUnit];
  if (whole.min === whole.max) whole.max += 1;

  const ROOM_FOR_BURSTS = 1.5;
  const tallest = (chart) => {
    const steady = Math.max(...chart.lines.filter((line) => !line.bursts).map((line) => largest(line.values)));
    return steady > 0 ? steady : Math.max(...chart.lines.map((line) => largest(line.values)));
  };

  const units = {
    rate: (chart) => {
      const [name, factor] = scaleFor(tallest(chart), rateUnits);
      return { axis: name, factor, text: (value) => `${figures(value)} ${name}` };
    },
    percent: () => ({ axis: "%", factor: 1, top: 100, text: (value) => `${figures(value)} %` }),
    count: () => ({ axis: "", factor: 1, text: (value) => figures(value) }),
    perSecond: () => ({ axis: "tasks/s", factor: 1, text: (value) => `${figures(value)} /s` }),
  };

  // Adds to each stacked line the visible stacked lines after it.
  const stacked = (lines, values, shown) => {
    const sums = gridUs.map(() => 0);
    const data = [...values];
    for (let i = lines.length - 1; i >= 0; i -= 1) {
      if (lines[i].as !== "stack" || !shown(i)) continue;
      data[i] = values[i].map((value, at) => (value === null ? null : (sums[at] += value)));
    }
    return [time, ...data];
  };

  const plots = [];
  let zooming = false;
  const button = document.getElementById("whole");

  const zoom = ({ min, max }) => {
    zooming = true;
    for (const plot of plots) plot.setScale("x", { min, max });
    zooming = false;
    button.disabled = min <= whole.min && max >= whole.max;
  };

  const draw = (chart) => {
    const unit = units[chart.unit](chart);
    const limit = (ROOM_FOR_BURSTS * tallest(chart)) / unit.factor;
    const values = chart.lines.map((line) => line.values.map((v) => (v === null ? null : v / unit.factor)));
    const summaries = values.map((v, i) =>
      ({ average, maximum: largest, overall: () => chart.lines[i].overall })[chart.rest](v),
    );
    const restShort = { average: "avg", maximum: "max", overall: "overall" }[chart.rest];
    const summary = (i) => (summaries[i] === null ? "–" : unit.text(summaries[i]));

    const figure = document.createElement("figure");
    figure.classList.toggle("wide", Boolean(chart.wide));
    const caption = figure.appendChild(document.createElement("figcaption"));
    caption.appendChild(document.createElement("h3")).textContent = chart.title;
    caption.appendChild(document.createElement("p")).textContent = chart.note;
    room.append(figure);

    const axis = (more) => ({
      stroke: () => color("soft"),
      grid: { stroke: () => color("grid"), width: 1 },
      ticks: { stroke: () => color("grid"), width: 1, size: 5 },
      font: font(12),
      labelFont: font(12),
      ...more,
    });
    const step = uPlot.paths.stepped({ align: -1 });
    const series = chart.lines.map((line, i) => ({
      label: line.label,
      stroke: () => color(line.color),
      fill:
        line.as === "stack" || line.as === "area" ? () => color(line.as === "area" ? "area" : line.color) : undefined,
      width: line.as === "stack" ? 0 : line.thin ? 1.1 : 1.75,
      dash: line.as === "dashes" ? [5, 3] : undefined,
      paths: step,
      points: { show: false },
      value: (_plot, _value, _series, at) => {
        if (at === null || at === undefined) return `${summary(i)} ${restShort}`;
        return values[i][at] === null ? "–" : unit.text(values[i][at]);
      },
    }));
    const options = {
      width: Math.max(200, room.clientWidth / (chart.wide ? 1 : 2) - 30),
      height: chart.height ?? 190,
      padding: [8, 12, 0, 0],
      // The grid is drawn over the areas; under them, it would be hidden.
      drawOrder: ["series", "axes"],
      scales: {
        x: { time: false, range: (_plot, min, max) => (min === null ? [whole.min, whole.max] : [min, max]) },
        y: {
          range: (_plot, _min, max) => {
            const most = chart.lines.some((line) => line.bursts) ? Math.min(max, limit) : max;
            return [0, unit.top ?? (most > 0 ? uPlot.rangeNum(0, most, 0.08, true)[1] : 1)];
          },
        },
      },
      axes: [
        axis({ label: `Time since submission (${timeUnit})`, labelSize: 20, labelGap: 0, size: 30, space: 60 }),
        axis({
          label: unit.axis || undefined,
          labelSize: 18,
          labelGap: 2,
          size: unit.axis ? 40 : 58,
          space: 32,
          incrs: unit.top
            ? [10, 20, 25, 50]
            : chart.unit === "count"
              ? [1, 2, 5].flatMap((n) => [...Array(15).keys()].map((e) => n * 10 ** e)).sort((a, b) => a - b)
              : undefined,
          values: (_plot, ticks) => ticks.map((tick) => (Math.abs(tick) >= 1000 ? short.format(tick) : figures(tick))),
        }),
      ],
      series: [
        {
          label: "Time",
          class: "time",
          value: (_plot, _value, _series, at) =>
            at === null || at === undefined ? "" : `until ${duration(gridUs[at] / 1e6)}`,
        },
        ...series,
      ],
      cursor: {
        y: false,
        sync: { key: "job", scales: ["x", null], setSeries: false },
        points: {
          size: 7,
          width: 1.5,
          stroke: () => color("card"),
          fill: (_plot, i) => color(chart.lines[i - 1].color),
        },
        // The sample whose interval contains the cursor, not the sample whose end is nearest.
        dataIdx: (_plot, _series, nearest, at) =>
          time[nearest] < at && nearest + 1 < time.length ? nearest + 1 : nearest,
      },
      hooks: {
        setScale: [
          (plot, key) => {
            if (key === "x" && !zooming && plots.length === charts.length) zoom(plot.scales.x);
          },
        ],
        setSeries: [
          (plot, i) => {
            if (i === null) return;
            plot.root.querySelectorAll(".u-series")[i].firstChild.setAttribute("aria-pressed", plot.series[i].show);
            if (chart.lines[i - 1].as !== "stack") return;
            const { min, max } = plot.scales.x;
            plot.setData(
              stacked(chart.lines, values, (line) => plot.series[line + 1].show),
              false,
            );
            plot.setScale("x", { min, max });
          },
        ],
      },
    };
    const plot = new uPlot(
      options,
      stacked(chart.lines, values, () => true),
      figure,
    );
    plots.push(plot);

    const picture = plot.root.querySelector(".u-wrap");
    picture.tabIndex = 0;
    picture.setAttribute("role", "img");
    const said = chart.lines.map(
      (line, i) => `${line.label}: ${chart.rest} ${summary(i)}, maximum ${unit.text(largest(values[i]))}`,
    );
    picture.setAttribute(
      "aria-label",
      `${chart.title} over time. ${said.join("; ")}. The table below has the numbers.`,
    );
    picture.addEventListener("keydown", (event) => walk(plot, event));
    plot.root.querySelectorAll(".u-series:not(.time) th").forEach((label, i) => {
      // The colour is given by name, so that the mark follows the light, dark and print styles.
      const { as, color: name } = chart.lines[i];
      const mark = label.querySelector(".u-marker");
      mark.style.cssText =
        as === "stack" || as === "area"
          ? `background: var(--${as === "area" ? "area" : name}); border: 1px solid var(--${name})`
          : `width: 18px; height: 0; border-top: 2px ${as === "dashes" ? "dashed" : "solid"} var(--${name})`;
      label.tabIndex = 0;
      label.setAttribute("role", "button");
      label.setAttribute("aria-pressed", "true");
      label.title = "Show or hide";
      label.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        label.click();
      });
    });
  };

  // The arrow keys move the cursor from sample to sample; Escape ends a zoom.
  const walk = (plot, event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Escape") zoom(whole);
    if (!by) return;
    event.preventDefault();
    const from = plot.cursor.idx ?? (by > 0 ? 0 : time.length);
    const at = Math.min(time.length - 1, Math.max(0, from + by));
    plot.setCursor({ left: plot.valToPos(time[at], "x"), top: plot.over.clientHeight / 2 }, true, true);
  };

  const fit = () => {
    plots.forEach((plot, i) => {
      const figure = plot.root.parentElement;
      const style = getComputedStyle(figure);
      const width = figure.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
      const height = charts[i].height ?? 190;
      if (width > 0 && (plot.width !== width || plot.height !== height)) plot.setSize({ width, height });
    });
  };

  const recolor = () => plots.forEach((plot) => plot.redraw(false, true));

  charts.forEach(draw);
  fit();
  document.querySelector(".tools").hidden = false;
  button.addEventListener("click", () => zoom(whole));
  if (jobEnd < whole.max) {
    const only = document.getElementById("this-job");
    only.hidden = false;
    only.addEventListener("click", () => zoom({ min: whole.min, max: jobEnd }));
  }
  new ResizeObserver(fit).observe(room);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolor);
  // The charts are drawn again for the colours and width of paper, and again after printing.
  const print = (on) => {
    document.documentElement.classList.toggle("print", on);
    for (const plot of plots) plot.setCursor({ left: -10, top: -10 });
    fit();
    recolor();
  };
  addEventListener("beforeprint", () => print(true));
  addEventListener("afterprint", () => print(false));
})();
