// Interactive figures: shapes of series for a plot; charts with their controls; grids of small charts.

const MOST_NAMED = 8; // labels: more are named in a legend, have no bands, and are not all shown at first
const MOST_MARKED = 30; // points of a line with markers
const SMOOTHINGS = { off: 0, light: 0.6, medium: 0.9, strong: 0.97 }; // weights of earlier points

/** Return the exponential moving average of values, corrected for its start; gaps stay. */
function smoothed(values, weight) {
  let [sum, total] = [0, 0];
  return values.map((value) => {
    if (!Number.isFinite(value)) return NaN;
    sum = weight * sum + (1 - weight) * value;
    total = weight * total + 1 - weight;
    return sum / total;
  });
}

/** Return the shapes of a curve; its band and its seeds are drawn if there are few curves. */
function curveShapes(one, isOfFew) {
  const { label, x, y, rough, color, dash, low = [], high = [], lines = [] } = one;
  const line = { kind: "line", label, color };
  const shapes = [];
  if (isOfFew && low.length) shapes.push({ kind: "band", label, x, low, high, color });
  if (isOfFew) shapes.push(...lines.map((seed) => ({ ...line, ...seed, name: "seed" })));
  if (rough) shapes.push({ ...line, x, y: rough, name: "seed" });
  shapes.push({ ...line, x, y, dash, name: one.isThin ? "line thin" : "line" });
  if (x.length <= MOST_MARKED) shapes.push({ kind: "marks", label, x, y, color });
  return shapes;
}

const STANDINGS = { front: "on the front", ambiguous: "on the front or dominated", dominated: "dominated" };
const FILLS = { front: "full", ambiguous: "half" }; // filled: on the front for certain; open: dominated

/** Return the shapes of a point with its interval, its seeds, and its path over training. */
function paretoShapes(one, interval) {
  const { label, low, high, x_low, x_high, color } = one;
  const [x, y] = [one.x[0], one.y[0]];
  const shapes = [{ kind: "bars", label, x, y, x_low, x_high, low, high, color }];
  if (one.path) shapes.unshift({ kind: "line", name: "seed", label, ...one.path, color });
  const name = shortened(one.text);
  const hasSeveral = one.seeds > 1;
  const ends = hasSeveral ? ` [${one.low_text}, ${one.high_text}]` : "";
  const text = [name, `${one.y_text[0]}${ends} at ${one.x_text[0]}`];
  if (hasSeveral) {
    const at = (i) => `${one.seed_y_text[i]} at ${one.seed_x_text[i]}`;
    const texts = one.seed.map((seed, i) => [`${name}, seed ${seed}`, at(i)]);
    shapes.push({ kind: "marks", name: "seeds", label, x: one.seed_x, y: one.seed_y, color, texts });
    text.push(`mean [${interval}], ${one.seeds} seeds`);
  }
  text.push(STANDINGS[one.standing] ?? "reference");
  const fill = FILLS[one.standing] ?? "open";
  return [...shapes, { kind: "marks", label, x: [x], y: [y], color, main: true, fill, texts: [text] }];
}

/** Return names for labels: at the mean end of their lines, or at their points, those on the front first. */
function namesOf(series, kind) {
  const names = [];
  for (const [label, lines] of Map.groupBy(series, (one) => one.label)) {
    const ends = lines
      .map(({ x, y }) => [x, y, y.findLastIndex(Number.isFinite)])
      .filter(([, , last]) => last >= 0)
      .map(([x, y, last]) => [x[last], y[last]]);
    if (!ends.length) continue;
    const [{ group, text, color, standing }] = lines;
    const y = ends.reduce((sum, [, end]) => sum + end, 0) / ends.length;
    const x = Math.max(...ends.map(([end]) => end));
    const where = { x, y, end: kind === "curves", main: standing === "front" };
    names.push({ label, text: group ?? text, color, ...where });
  }
  return names.sort((a, b) => b.main - a.main);
}

/** Return a figure of runs: {label, name, color, dash, x, y}; x may have a list for each axis. */
function runsFigure(y_title, series) {
  const isOfSeeds = new Set(series.map((one) => one.label)).size < series.length; // several of a label
  const axes = series.length && !Array.isArray(series[0].x) ? Object.keys(series[0].x) : ["steps"];
  const over = (axis) => (one) => ({
    ...one,
    x: one.x[axis] ?? one.x,
    label: one.label ?? one.name,
    text: one.name,
    group: one.label,
    isThin: isOfSeeds,
  });
  const variant = { kind: "curves", y_title, smooth: true, levels: [] };
  const variants = axes.map((axis) => [axis, { ...variant, x_title: axis, series: series.map(over(axis)) }]);
  return { variants: Object.fromEntries(variants) };
}

/** Return a short line in the color of a series. */
function swatch({ color, dash }) {
  const line = svg("svg", { class: "key", width: 18, height: 10, "aria-hidden": "true" });
  line.append(svg("path", { d: "M0 5H18", stroke: color, "stroke-dasharray": dash || "none" }));
  return line;
}

/** Return a menu of options, and call `choose` with the chosen one. */
function select(name, options, current, choose) {
  const items = options.map((option) => make("option", { selected: option === current }, option));
  const field = make("select", { name, "aria-label": name }, ...items);
  field.addEventListener("change", () => choose(field.value));
  return field;
}

/** Return a button that acts when it is pressed. */
function button(content, act, attributes = {}) {
  const made = make("button", { type: "button", ...attributes }, ...content);
  made.addEventListener("click", act);
  return made;
}

/** An interactive figure in a section: the plot, its tools, its legend, and its data as a table. */
class Chart {
  constructor(section) {
    this.section = section;
    this.plot = section.querySelector(".plot");
    this.drawing = new Plot(this.plot);
    this.log = {}; // x, y: the reader's choice
    this.shown = new Map(); // label → whether it is drawn
    this.weight = 0;
    this.plot.addEventListener("zoom", () => (this.reset.hidden = !this.drawing.zoomed));
    section.querySelector("details.numbers")?.addEventListener("toggle", () => this.tabulate());
  }

  /** Show a figure: {variants: name of an axis → data}. The reader's choices stay. */
  show(figure) {
    this.figure = figure;
    const variants = Object.keys(figure.variants);
    if (!variants.includes(this.variant)) this.variant = variants[0];
    this.labels = new Map(); // the first series of each label
    for (const one of Object.values(figure.variants).flatMap((data) => data.series)) {
      if (!this.labels.has(one.label)) this.labels.set(one.label, one);
      if (!this.shown.has(one.label)) this.shown.set(one.label, one.shown ?? this.shown.size < MOST_NAMED);
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

  /** Change a choice of the reader, and draw the chart again. */
  change(choice) {
    Object.assign(this, choice);
    this.draw();
  }

  makeControls(variants) {
    this.reset = button(["Reset zoom"], () => this.drawing.zoom(null));
    const toggle = (side) => this.change({ log: { ...this.log, [side]: !this.isLog(side) } });
    this.scales = ["x", "y"].map((side) => [side, button([`log ${side}`], () => toggle(side))]);
    this.menu = make("button", { type: "button", class: "menu runs", hidden: this.labels.size < 2 });
    this.items = make("div", { popover: true, class: "items runs" });
    this.items.addEventListener("toggle", () => this.fillMenu());
    this.menu.popoverTargetElement = this.items;
    const tools = [this.reset];
    const over = select("over", variants, this.variant, (variant) => this.change({ variant }));
    if (variants.length > 1) tools.push(over);
    if (this.data.smooth) tools.push(this.makeSmoothing());
    tools.push(...this.scales.map(([, made]) => made), this.menu, this.items);
    this.section.querySelector(".tools").replaceChildren(...tools);
  }

  makeSmoothing() {
    const names = Object.keys(SMOOTHINGS);
    const current = names.find((name) => SMOOTHINGS[name] === this.weight);
    const field = select("smooth", names, current, (name) => this.change({ weight: SMOOTHINGS[name] }));
    const title = "Exponential moving average, which lags behind the curve";
    return make("label", { title }, "smooth", field);
  }

  /** List the labels with checkboxes, only while the menu is open, since there may be hundreds. */
  fillMenu() {
    this.items.replaceChildren();
    if (!this.items.matches(":popover-open")) return;
    const showAll = (isShown) => () => {
      for (const label of this.labels.keys()) this.shown.set(label, isShown);
      this.fillMenu();
      this.draw();
    };
    this.items.append(button(["All"], showAll(true)), button(["None"], showAll(false)));
    this.items.append(...[...this.labels.values()].map((one) => this.menuItem(one)));
  }

  menuItem(one) {
    const box = make("input", { type: "checkbox", checked: this.shown.get(one.label) });
    box.addEventListener("change", () => {
      this.shown.set(one.label, box.checked);
      this.draw();
    });
    return make("label", {}, box, swatch(one), one.group ?? one.text);
  }

  /** Return the shown series; smoothed ones have their values in `rough`. Thinned values have a `mean`. */
  visible() {
    const series = this.data.series.filter((one) => this.shown.get(one.label));
    if (!this.weight) return series;
    return series.map((one) => ({ ...one, y: smoothed(one.mean ?? one.y, this.weight), rough: one.y }));
  }

  draw() {
    const { data } = this;
    const isCurves = data.kind === "curves";
    const series = this.visible();
    const labels = [...this.labels.values()].filter((one) => this.shown.get(one.label));
    const areFew = labels.length <= MOST_NAMED;
    const shapesOf = (one) => (isCurves ? curveShapes(one, areFew) : paretoShapes(one, data.interval));
    const front = data.front ? [{ kind: "line", name: "front", ...data.front, color: "var(--edge)" }] : [];
    const [x, y] = ["x", "y"].map((side) => ({ title: data[`${side}_title`], log: this.isLog(side) }));
    this.drawing.draw({
      x,
      y,
      shapes: [...front, ...series.flatMap(shapesOf)],
      levels: this.levels(),
      names: namesOf(series, data.kind).filter((name) => (areFew ? labels.length > 1 : name.main)),
      readings: isCurves ? series : null,
      view: `${this.variant} ${x.log} ${y.log}`, // a zoom means nothing for other axes
    });
    this.reset.hidden = !this.drawing.zoomed;
    for (const [side, each] of this.scales) each.setAttribute("aria-pressed", this.isLog(side));
    this.menu.textContent = `${labels.length}/${this.labels.size} labels`;
    this.section.classList.toggle("crowded", !areFew);
    this.list(labels);
    this.describe(series);
    this.tabulate();
  }

  /** Return the final value of the baseline, and those of references with their names. */
  levels() {
    const baseline = (this.data.baseline_level ?? []).map((y) => ({ y, color: "var(--muted)", dash: "2,3" }));
    const references = this.data.levels.map(({ y, text }) => ({ y, text: shortened(text) }));
    return [...baseline, ...references.map((one) => ({ ...one, color: "var(--muted)", dash: "6,3" }))];
  }

  /** List the shown labels in a legend, where names don't fit into the plot; the pointer highlights one. */
  list(labels) {
    const items = (labels.length > 1 ? labels : []).map((one) => {
      const item = make("li", {}, swatch(one), shortened(one.group ?? one.text));
      item.addEventListener("pointerenter", () => this.drawing.light(one.label));
      item.addEventListener("pointerleave", () => this.drawing.light());
      return item;
    });
    const legend = this.section.querySelector(".legend");
    legend.replaceChildren(...items);
    legend.tabIndex = items.length > MOST_NAMED ? 0 : -1; // a long one scrolls
  }

  /** Write the caption, the names of the files of the variant, and the text for screen readers. */
  describe(series) {
    const { data } = this;
    const part = (name) => this.section.querySelector(name);
    if (data.about) part(".caption").textContent = data.about;
    if (data.caption) part(".numbers p").textContent = data.caption;
    const files = part("[data-plot]:not(img)");
    if (files) files.dataset.plot = data.printed;
    const names = series.slice(0, 2 * MOST_NAMED).map((one) => shortened(one.text));
    const kind = data.kind === "curves" ? "Line chart" : "Scatter plot";
    const table = part("details.numbers") ? " Its data is in the table below." : "";
    const what = `${kind} of ${data.y_title} over ${data.x_title}: ${names.join(", ") || "no series"}.`;
    this.plot.setAttribute("role", "group");
    this.plot.setAttribute("aria-label", `${what}${table} Arrow keys read values.`);
  }

  /** Write the data of the visible series as a table, which may be long, only while its section is open. */
  tabulate() {
    const details = this.section.querySelector("details.numbers");
    if (!details?.open) return;
    const { data } = this;
    const isCurves = data.kind === "curves";
    const cost = data.x_title.replace(/ \(.*\)/, "");
    const headers = ["run", isCurves ? "seeds" : "seed", cost, data.y_title, data.interval];
    const rows = this.visible().flatMap(isCurves ? curveRows : pointRows);
    const shown = isCurves ? table(headers, rows) : table([...headers, "standing"], rows, [5]);
    details.querySelector(".scroll").replaceChildren(shown);
  }
}

/** Return a row of the table for each point of a curve. */
function curveRows(one) {
  return one.x_text.map((x, i) => {
    const band = one.low.length ? `${one.low_text[i]} to ${one.high_text[i]}` : "—";
    return [one.text, String(one.seeds), x, one.y_text[i], band];
  });
}

/** Return a row for the mean of a label, and one for each of its seeds. */
function pointRows(one) {
  const { text, seeds, seed_x_text, seed_y_text } = one;
  const kind = seeds > 1 ? `mean of ${seeds}` : "single run";
  const range = seeds > 1 ? `${one.low_text} to ${one.high_text}` : "—";
  const mean = [text, kind, one.x_text[0], one.y_text[0], range, STANDINGS[one.standing] ?? "reference"];
  return [mean, ...one.seed.map((seed, i) => [text, String(seed), seed_x_text[i], seed_y_text[i], "", ""])];
}

/** A grid of small charts, each a button with the title, the last value, and the curves of a metric. */
class SmallCharts {
  /** `enlarge(name)` is called when a chart is pressed. */
  constructor(grid, enlarge) {
    this.grid = grid;
    this.enlarge = enlarge;
    this.cards = new Map();
  }

  /** Draw metrics: {name, title, value, series: [{label, color, dash, x, y}]}; mark the enlarged one. */
  draw(metrics, enlarged) {
    for (const { name, title, value, series } of metrics) {
      if (!this.cards.has(name)) this.add(name);
      const { card, plot } = this.cards.get(name);
      card.setAttribute("aria-pressed", String(name === enlarged));
      card.querySelector(".title").textContent = title ?? name;
      card.querySelector(".value").textContent = value ?? "";
      const shapes = series.map((one) => ({ ...one, kind: "line", name: "line" }));
      plot.draw({ x: { log: false }, y: { log: false }, shapes, levels: [] });
    }
  }

  add(name) {
    const place = make("span", { class: "plot" });
    const content = [make("span", { class: "title" }), make("span", { class: "value" }), place];
    const card = button(content, () => this.enlarge(name), { class: "small" });
    this.grid.append(card);
    this.cards.set(name, { card, plot: new Plot(place, true) });
  }
}

let charts = [];

/** Draw the figures of the page, one at each step; those drawn before keep the reader's choices. */
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
