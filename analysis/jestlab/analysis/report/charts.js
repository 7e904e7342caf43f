// Interactive figures: convert series to the shapes of a plot; charts with their controls; grids of small charts.

const MOST_NAMED = 8; // labels: more are named in a legend, have no bands, and are not all shown at first
const MOST_MARKED = 30; // points of a line with markers
const MOST_LISTED = 200; // labels in a menu; a filter finds the others
const SMOOTHINGS = { off: 0, light: 0.6, medium: 0.9, strong: 0.97 }; // weights of an exponential moving average

/** Return the exponential moving average of values, corrected for its start; gaps stay. */
function smoothed(values, weight) {
  let [sum, total] = [0, 0];
  return values.map((value) => {
    if (!Number.isFinite(value)) return NaN;
    [sum, total] = [weight * sum + (1 - weight) * value, weight * total + 1 - weight];
    return sum / total;
  });
}

function curveShapes(one, banded, weight) {
  const { label, x, color, dash, low = [], high = [], lines = [] } = one;
  const shapes = low.length && banded ? [{ kind: "band", label, x, low, high, color }] : [];
  if (banded) for (const seed of lines) shapes.push({ kind: "line", name: "seed", label, x: seed.x, y: seed.y, color, width: 1, opacity: 0.35 });
  if (weight) shapes.push({ kind: "line", name: "seed", label, x, y: one.y, color, width: 1, opacity: 0.25 });
  const y = weight ? smoothed(one.mean ?? one.y, weight) : one.y;
  shapes.push({ kind: "line", label, x, y, color, dash, ...(one.thin ? { width: 1.2, opacity: 0.75 } : {}) });
  if (x.length <= MOST_MARKED) shapes.push({ kind: "marks", label, x, y, color, size: 5 });
  return shapes;
}

/** Return the values of a line for the readout under the pointer. */
function reading(one, weight) {
  const known = weight ? { ...one, y: smoothed(one.mean ?? one.y, weight), y_text: undefined } : one;
  return { ...known, color: one.color, more: (i) => (one.low?.length && !weight ? `[${one.low_text[i]}, ${one.high_text[i]}]` : "") };
}

const STANDINGS = { front: "on the front", ambiguous: "on the front or dominated", dominated: "dominated" };
const FILLS = { front: "full", ambiguous: "half" }; // filled: on the front for certain; open: dominated, or a reference

function paretoShapes(one, interval) {
  const { label, low, high, x_low, x_high, color } = one;
  const name = shortened(one.text);
  const about = one.seeds > 1 ? [`mean [${interval}], ${one.seeds} seeds`] : [];
  const ends = one.seeds > 1 ? ` [${one.low_text}, ${one.high_text}]` : "";
  const mean = [name, `${one.y_text[0]}${ends} at ${one.x_text[0]}`, ...about, STANDINGS[one.standing] ?? "reference"];
  const seeds = one.seed.map((seed, i) => [`${name}, seed ${seed}`, `${one.seed_y_text[i]} at ${one.seed_x_text[i]}`]);
  return [
    ...(one.path ? [{ kind: "line", name: "seed", label, ...one.path, color, width: 1, opacity: 0.4 }] : []),
    ...(one.seeds > 1 ? [{ kind: "marks", label: "", of: label, x: one.seed_x, y: one.seed_y, color, size: 5, opacity: 0.55, texts: seeds }] : []),
    { kind: "bars", label, x: one.x[0], y: one.y[0], x_low, x_high, low, high, color },
    { kind: "marks", label, x: one.x, y: one.y, color, size: 11, fill: FILLS[one.standing] ?? "open", texts: [mean] },
  ];
}

/** Return names for labels: at the mean end of their lines, or at their points, those on the front first. */
function namesOf(series, kind) {
  const names = [];
  for (const [label, lines] of Map.groupBy(series, (one) => one.label)) {
    const ends = lines.map(({ x, y }) => ({ x, y, at: y.findLastIndex(Number.isFinite) })).filter(({ at }) => at >= 0);
    if (!ends.length) continue;
    const [{ group, text, color, standing }] = lines;
    const y = ends.reduce((sum, end) => sum + end.y[end.at], 0) / ends.length;
    const x = Math.max(...ends.map((end) => end.x[end.at]));
    names.push({ label, text: group ?? text, color, x, y, end: kind === "curves", main: standing === "front" });
  }
  return names.sort((a, b) => b.main - a.main);
}

/** Return a figure of runs from a server: series of {label, name, color, dash, x, y}; x may have a list for each axis. */
function runsFigure(y_title, series, x_title = "steps") {
  const axes = series.length && !Array.isArray(series[0].x) ? Object.keys(series[0].x) : [x_title];
  const thin = new Set(series.map((one) => one.label)).size < series.length; // several seeds of a label
  const on = (axis) => (one) => ({ ...one, label: one.label ?? one.name, group: one.label, text: one.name, thin, x: one.x[axis] ?? one.x });
  const variant = (axis) => ({ kind: "curves", x_title: axis, y_title, smooth: true, levels: [], series: series.map(on(axis)) });
  return { variants: Object.fromEntries(axes.map((axis) => [axis, variant(axis)])) };
}

/** A chart in a section with the elements .plot, .tools, .legend, and optionally .caption and details.numbers. */
class Chart {
  constructor(section) {
    this.section = section;
    this.plot = section.querySelector(".plot");
    this.drawing = new Plot(this.plot);
    this.log = {}; // x, y: the reader's choice
    this.shown = new Map();
    this.weight = 0;
    this.plot.addEventListener("zoom", () => (this.reset.hidden = !this.drawing.zoomed));
    this.plot.addEventListener("pin", () => this.markPinned());
    section.querySelector("details.numbers")?.addEventListener("toggle", () => this.tabulate());
  }

  /** Show a figure: {variants: name of an axis → data}. The reader's choices stay. */
  show(figure) {
    this.figure = figure;
    const variants = Object.keys(figure.variants);
    if (!variants.includes(this.variant)) this.variant = variants[0];
    this.labels = new Map(); // the first series of each label
    for (const data of Object.values(figure.variants)) {
      for (const one of data.series) if (!this.labels.has(one.label)) this.labels.set(one.label, one);
    }
    for (const { label, shown } of this.labels.values()) {
      if (!this.shown.has(label)) this.shown.set(label, shown ?? this.shown.size < MOST_NAMED);
    }
    const controls = [...variants, this.labels.size > 1].join();
    if (this.controls !== controls) this.makeControls(variants);
    this.controls = controls;
    this.draw();
  }

  get data() {
    return this.figure.variants[this.variant];
  }

  isLog(side) {
    return this.log[side] ?? this.data[`${side}_log`] ?? false;
  }

  makeControls(variants) {
    const select = (name, options, current, choose) => {
      const field = make("select", { name, "aria-label": name }, ...options.map((option) => make("option", { selected: option === current }, option)));
      field.addEventListener("change", () => choose(field.value));
      field.addEventListener("change", () => this.draw());
      return field;
    };
    this.reset = this.button("Reset zoom", () => this.drawing.zoom(null));
    this.scales = ["x", "y"].map((side) => [side, this.button(`log ${side}`, () => (this.log[side] = !this.isLog(side)))]);
    this.menu = make("details", { class: "menu runs", hidden: this.labels.size < 2 }, make("summary"), make("div", { class: "items" }));
    this.menu.addEventListener("toggle", () => this.fillMenu());
    const smooth = () => make("label", {}, "smooth", select("smooth", Object.keys(SMOOTHINGS), Object.keys(SMOOTHINGS).find((key) => SMOOTHINGS[key] === this.weight), (chosen) => (this.weight = SMOOTHINGS[chosen])));
    this.section.querySelector(".tools").replaceChildren(
      this.reset,
      ...(variants.length > 1 ? [select("over", variants, this.variant, (chosen) => (this.variant = chosen))] : []),
      ...(this.data.smooth ? [smooth()] : []),
      ...this.scales.map(([, made]) => made),
      this.menu,
    );
  }

  /** Return a button that draws the chart again after its action. */
  button(text, act) {
    const made = make("button", { type: "button" }, text);
    made.addEventListener("click", act);
    made.addEventListener("click", () => this.draw());
    return made;
  }

  /** List the labels with checkboxes, only while the menu is open, since there may be thousands. */
  fillMenu() {
    const items = this.menu.querySelector(".items");
    items.replaceChildren();
    if (!this.menu.open) return;
    const filter = make("input", { type: "search", placeholder: "filter", "aria-label": "Filter the runs" });
    const list = make("div");
    const matching = () => [...this.labels.values()].filter((one) => one.text.toLowerCase().includes(filter.value.toLowerCase()));
    const fill = () => {
      const found = matching().sort((a, b) => this.shown.get(b.label) - this.shown.get(a.label));
      list.replaceChildren(...found.slice(0, MOST_LISTED).map((one) => {
        const box = make("input", { type: "checkbox", checked: this.shown.get(one.label) });
        box.addEventListener("change", () => this.shown.set(one.label, box.checked));
        box.addEventListener("change", () => this.draw());
        return make("label", {}, box, swatch(one), one.group ?? one.text);
      }));
    };
    const show = (text, shown) => this.button(text, () => {
      for (const one of matching()) this.shown.set(one.label, shown);
      fill();
    });
    filter.addEventListener("input", fill);
    items.append(...(this.labels.size > 2 * MOST_NAMED ? [filter] : []), show("All", true), show("None", false), list);
    fill();
  }

  visible() {
    return this.data.series.filter((one) => this.shown.get(one.label));
  }

  draw() {
    const { data } = this;
    const series = this.visible();
    const labels = [...this.labels.values()].filter((one) => this.shown.get(one.label));
    const few = labels.length <= MOST_NAMED;
    const shapes = series.flatMap((one) => (data.kind === "curves" ? curveShapes(one, few, this.weight) : paretoShapes(one, data.interval)));
    if (data.front) shapes.unshift({ kind: "line", ...data.front, color: "var(--edge)", width: 1.2, step: true });
    const levels = [
      ...(data.baseline_level ?? []).map((y) => ({ y, color: "var(--muted)", dash: "2,3" })),
      ...data.levels.map(({ y, text }) => ({ y, text: shortened(text), color: "var(--edge)", dash: "6,3" })),
    ];
    const names = namesOf(series, data.kind);
    this.drawing.draw({
      x: { title: data.x_title, log: this.isLog("x") },
      y: { title: data.y_title, log: this.isLog("y") },
      shapes,
      levels,
      names: names.filter((name) => (few ? labels.length > 1 : name.main)),
      readings: data.kind === "curves" ? series.map((one) => reading(one, this.weight)) : null,
      view: `${this.variant} ${this.isLog("x")} ${this.isLog("y")}`, // a zoom means nothing for other axes
    });
    this.reset.hidden = !this.drawing.zoomed;
    for (const [side, button] of this.scales) button.setAttribute("aria-pressed", this.isLog(side));
    this.menu.firstChild.textContent = `${labels.length}/${this.labels.size} runs`;
    this.section.classList.toggle("crowded", !few);
    this.list(labels);
    this.describe(series);
    this.tabulate();
  }

  /** List the shown labels in a legend, where names don't fit into the plot; a press pins a label. */
  list(labels) {
    const legend = this.section.querySelector(".legend");
    legend.replaceChildren(...labels.slice(0, labels.length > 1 ? MOST_LISTED : 0).map((one) => {
      const button = make("button", { type: "button", "data-of": one.label }, swatch(one), shortened(one.group ?? one.text));
      button.addEventListener("click", () => this.drawing.pin(one.label));
      button.addEventListener("pointerenter", () => this.drawing.light(one.label));
      button.addEventListener("pointerleave", () => this.drawing.light());
      return make("li", {}, button);
    }));
    this.markPinned();
  }

  markPinned() {
    const { pinned } = this.drawing;
    for (const each of this.section.querySelectorAll("[data-of]")) each.setAttribute("aria-pressed", each.dataset.of === pinned);
  }

  /** Write the text for screen readers, the caption, and the names of the files of the variant. */
  describe(series) {
    const { data } = this;
    const [about, caption, files] = [".caption", ".numbers p", "[data-plot]:not(img)"].map((name) => this.section.querySelector(name));
    if (data.about) about.textContent = data.about;
    if (caption) caption.textContent = data.caption;
    if (files) files.dataset.plot = data.printed;
    const names = series.slice(0, 2 * MOST_NAMED).map((one) => shortened(one.text)).join(", ") || "no series";
    const kind = data.kind === "curves" ? "Line chart" : "Scatter plot";
    const table = this.section.querySelector("details.numbers") ? " Its data is in the table below." : "";
    this.plot.setAttribute("role", "group");
    this.plot.setAttribute("aria-label", `${kind} of ${data.y_title} over ${data.x_title}: ${names}.${table} Arrow keys read values.`);
  }

  /** Write the data of the visible series as a table, only while its section is open, since it may be long. */
  tabulate() {
    const details = this.section.querySelector("details.numbers");
    if (!details?.open) return;
    const curves = this.data.kind === "curves";
    const cost = this.data.x_title.replace(/ \(.*\)/, "");
    const headers = ["run", curves ? "seeds" : "seed", cost, this.data.y_title, this.data.interval, ...(curves ? [] : ["standing"])];
    const rows = [];
    for (const one of this.visible()) {
      if (curves) {
        one.x.forEach((_, i) => {
          const band = one.low.length ? `${one.low_text[i]} to ${one.high_text[i]}` : "—";
          rows.push([one.text, String(one.seeds), one.x_text[i], one.y_text[i], band]);
        });
      } else {
        const range = one.seeds > 1 ? `${one.low_text} to ${one.high_text}` : "—";
        const mean = one.seeds > 1 ? `mean of ${one.seeds}` : "single run";
        rows.push([one.text, mean, one.x_text[0], one.y_text[0], range, STANDINGS[one.standing] ?? "reference"]);
        one.seed.forEach((seed, i) => rows.push([one.text, String(seed), one.seed_x_text[i], one.seed_y_text[i], "", ""]));
      }
    }
    details.querySelector(".scroll").replaceChildren(table(headers, rows, curves ? [] : [5]));
  }
}

/** Return a short line in the color of a series. */
function swatch({ color, dash }) {
  const line = svg("svg", { class: "key", width: 18, height: 10, "aria-hidden": "true" });
  line.append(svg("path", { d: "M0 5H18", stroke: color, "stroke-width": 3, "stroke-dasharray": dash || "none" }));
  return line;
}

/** A grid of small charts, each a button with the title, the last value, and the curves of a metric. */
class SmallCharts {
  /** `enlarge(name)` is called when a chart is pressed. */
  constructor(grid, enlarge) {
    this.grid = grid;
    this.enlarge = enlarge;
    this.cards = new Map();
  }

  /** Draw metrics: {name, title, value, series: [{label, color, dash, x, y}]}; mark the one that is enlarged. */
  draw(metrics, enlarged) {
    for (const { name, title, value, series } of metrics) {
      if (!this.cards.has(name)) this.add(name);
      const { button, plot } = this.cards.get(name);
      button.setAttribute("aria-pressed", String(name === enlarged));
      button.querySelector(".title").textContent = title ?? name;
      button.querySelector(".value").textContent = value ?? "";
      const shapes = series.map((one) => ({ kind: "line", label: one.label, x: one.x, y: one.y, color: one.color, dash: one.dash, width: 1.5 }));
      plot.draw({ x: { log: false }, y: { log: false }, shapes, levels: [] });
    }
  }

  add(name) {
    const place = make("span", { class: "plot" });
    const button = make("button", { type: "button", class: "small" }, make("span", { class: "title" }), make("span", { class: "value" }), place);
    button.addEventListener("click", () => this.enlarge(name));
    this.grid.append(button);
    this.cards.set(name, { button, plot: new Plot(place, true) });
  }
}

let charts = [];

/** Draw the figures of the page, one at each step; figures that were drawn before keep the reader's choices. */
function* renewCharts() {
  const before = new Map(charts.map((chart) => [chart.section, chart]));
  charts = [];
  for (const section of document.querySelectorAll("section[data-figure]")) {
    const chart = before.get(section) ?? new Chart(section);
    charts.push(chart);
    chart.show(DATA.figures[section.dataset.figure]);
    yield "rest";
  }
}

/** Read the data of the page, show its buttons, and draw its figures. */
function begin() {
  DATA = JSON.parse(document.getElementById("data").textContent);
  awaken(document);
  for (const _ of renewCharts());
}
