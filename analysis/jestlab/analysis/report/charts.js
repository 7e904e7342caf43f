// Interactive figures: convert series to the shapes of a plot; charts with their controls.

const MOST_BANDS = 8; // more bands would hide the lines

function curveShapes(one, banded, interval) {
  const { label, x, y, low, high } = one;
  const colour = one.color;
  const shapes = low.length && banded ? [{ kind: "band", label, x, low, high, colour }] : [];
  const texts = x.map((_, i) => [
    shortened(one.text),
    `${one.y_text[i]} at ${one.x_text[i]}`,
    ...(low.length ? [`${interval} ${one.low_text[i]} to ${one.high_text[i]}, ${one.seeds} seeds`] : []),
  ]);
  shapes.push({ kind: "line", label, x, y, colour, dash: one.dash });
  shapes.push({ kind: "marks", label, x, y, colour, symbol: one.symbol, size: 7, texts });
  return shapes;
}

const STANDINGS = { front: "on the front", ambiguous: "on the front or dominated", dominated: "dominated" };
const FILLS = { front: "full", ambiguous: "half" }; // filled: on the front for certain; open: dominated, or a reference

function paretoShapes(one, interval) {
  const { label, symbol, low, high, x_low, x_high } = one;
  const colour = one.color;
  const name = shortened(one.text);
  const mean = [
    name,
    `${one.y_text[0]}${one.spread_text ? " ± " + one.spread_text : ""} at ${one.x_text[0]}`,
    ...(one.seeds > 1 ? [`${interval} ${one.low_text} to ${one.high_text}, ${one.seeds} seeds`] : []),
    ...(one.standing ? [STANDINGS[one.standing]] : []),
  ];
  const seeds = one.seed.map((seed, i) => [`${name}, seed ${seed}`, `${one.seed_y_text[i]} at ${one.seed_x_text[i]}`]);
  return [
    { kind: "marks", label: "", x: one.seed_x, y: one.seed_y, colour, symbol, size: 5, opacity: 0.55, texts: seeds },
    { kind: "bars", label, x: one.x[0], y: one.y[0], x_low, x_high, low, high, colour },
    { kind: "marks", label, x: one.x, y: one.y, colour, symbol, size: 11, fill: FILLS[one.standing] ?? "open", texts: [mean] },
  ];
}

class Chart {
  constructor(section) {
    this.section = section;
    this.figure = DATA.figures[section.dataset.figure];
    this.plot = section.querySelector(".plot");
    this.variant = Object.keys(this.figure.variants)[0];
    this.log = { x: false, y: this.figure.variants[this.variant].y_log };
    this.shown = new Map();
    this.drawing = new Plot(this.plot);
    section.querySelector("details.numbers").addEventListener("toggle", () => this.tabulate());
  }

  /** Show the current data with the user's choices; yields where the caller may pause. */
  *show() {
    this.figure = DATA.figures[this.section.dataset.figure];
    const variants = Object.keys(this.figure.variants);
    if (!variants.includes(this.variant)) this.variant = variants[0];
    if (variants.join() !== this.variants?.join()) this.makeControls();
    yield* this.listSeries();
    this.tellVariant();
    this.draw();
  }

  get data() {
    return this.figure.variants[this.variant];
  }

  makeControls() {
    const controls = this.section.querySelector(".controls");
    const name = this.section.dataset.figure;
    const variants = (this.variants = Object.keys(this.figure.variants));
    controls.replaceChildren();
    if (variants.length > 1) {
      controls.append(
        this.choice("over", `${name}-variant`, variants, this.variant, (chosen) => {
          this.variant = chosen;
          this.tellVariant();
          this.draw();
        }),
      );
    }
    for (const side of ["x", "y"]) {
      const [first, second] = this.log[side] ? ["log", "linear"] : ["linear", "log"];
      controls.append(
        this.choice(`${side} axis`, `${name}-${side}`, [first, second], first, (chosen) => {
          this.log[side] = chosen === "log";
          this.draw();
        }),
      );
    }
    const reset = make("button", { type: "button" }, "Reset zoom");
    reset.addEventListener("click", () => this.drawing.zoom(null));
    controls.append(reset);
  }

  /** Write the caption and the file names of the current variant. */
  tellVariant() {
    const [caption, files] = [this.section.querySelector(".caption"), this.section.querySelector(".files")];
    if (caption.textContent !== this.data.caption) caption.textContent = this.data.caption;
    files.dataset.plot = this.data.printed;
  }

  /** List the series, each with a checkbox; if the list has the same series already, only update their texts. */
  *listSeries() {
    // Series that are shown come first, since the list may be long.
    const all = this.allSeries().sort((a, b) => b.shown - a.shown);
    if (this.listed?.size === all.length && all.every((one) => this.listed.has(one.label))) {
      for (const one of all) {
        const entry = this.listed.get(one.label);
        entry.one = one;
        if (entry.text.textContent !== one.text) entry.text.textContent = one.text;
      }
      return;
    }
    for (const one of all) if (!this.shown.has(one.label)) this.shown.set(one.label, one.shown);
    this.listed = new Map();
    const list = this.section.querySelector(".series");
    list.replaceChildren(list.querySelector("legend"));
    for (const [i, one] of all.entries()) {
      if (i % 100 === 99) yield "rest"; // there may be a thousand
      const box = make("input", { type: "checkbox", checked: this.shown.get(one.label) });
      box.addEventListener("change", () => {
        this.shown.set(one.label, box.checked);
        this.draw();
      });
      const swatch = svg("svg", { width: 30, height: 12, viewBox: "0 0 30 12", "aria-hidden": "true" });
      const text = make("span", {}, one.text);
      const entry = { one, swatch, text };
      paint(entry, this.data.kind);
      this.listed.set(one.label, entry);
      list.append(make("label", { class: "one" }, box, swatch, text));
    }
    const every = make("button", { type: "button" }, "All");
    const none = make("button", { type: "button" }, "None");
    for (const [button, value] of [[every, true], [none, false]]) {
      button.addEventListener("click", () => {
        for (const label of this.shown.keys()) this.shown.set(label, value);
        for (const box of list.querySelectorAll("input")) box.checked = value;
        this.draw();
      });
    }
    list.append(make("span", { class: "buttons" }, every, none));
    yield "rest";
  }

  allSeries() {
    const seen = new Map();
    for (const variant of Object.values(this.figure.variants)) {
      for (const one of variant.series) if (!seen.has(one.label)) seen.set(one.label, one);
    }
    return [...seen.values()];
  }

  choice(legend, name, options, current, chosen) {
    const set = make("fieldset", {}, make("legend", {}, legend));
    options.forEach((option) => {
      const input = make("input", { type: "radio", name, value: option, checked: option === current });
      input.addEventListener("change", () => chosen(option));
      set.append(make("label", {}, input, make("span", {}, option)));
    });
    return set;
  }

  visible() {
    return this.data.series.filter((one) => this.shown.get(one.label));
  }

  draw() {
    for (const entry of this.listed.values()) paint(entry, this.data.kind);
    const series = this.visible();
    const banded = series.length <= MOST_BANDS;
    const { interval } = this.data;
    const shapes = series.flatMap((one) => (this.data.kind === "curves" ? curveShapes(one, banded, interval) : paretoShapes(one, interval)));
    if (this.data.front) shapes.unshift({ kind: "line", ...this.data.front, colour: css("--muted"), width: 1.5, step: true });
    const levels = [
      ...(this.data.baseline_level ?? []).map((y) => ({ y, colour: css("--ink"), dash: "2,2" })),
      ...this.data.levels.map(({ y, text }) => ({ y, text: shortened(text), colour: css("--muted"), dash: "6,3" })),
    ];
    this.drawing.draw({
      x: { title: this.data.x_title, log: this.log.x },
      y: { title: this.data.y_title, log: this.log.y },
      shapes,
      levels,
      view: `${this.variant} ${this.log.x} ${this.log.y}`, // a zoom means nothing for other axes
    });
    const names = series.map((one) => shortened(one.text)).join(", ") || "no series";
    const kind = this.data.kind === "curves" ? "Line chart" : "Scatter plot";
    this.plot.setAttribute("aria-label", `${kind} of ${this.data.y_title} over ${this.data.x_title}: ${names}. Its data is in the table below.`);
    this.tabulate();
  }

  /** Write the data of the visible series as a table, only while its section is open, since it may be long. */
  tabulate() {
    const details = this.section.querySelector("details.numbers");
    const place = details.querySelector(".scroll");
    if (!details.open) return;
    const curves = this.data.kind === "curves";
    const cost = this.data.x_title.replace(/ \(.*\)/, "");
    const headers = curves
      ? ["run", "seeds", cost, this.data.y_title, this.data.interval]
      : ["run", "seed", cost, this.data.y_title, "± std", this.data.interval, "standing"];
    const rows = [];
    for (const one of this.visible()) {
      if (curves) {
        one.x.forEach((_, i) => {
          const band = one.low.length ? `${one.low_text[i]} to ${one.high_text[i]}` : "—";
          rows.push([one.text, String(one.seeds), one.x_text[i], one.y_text[i], band]);
        });
      } else {
        const range = one.seeds > 1 ? `${one.low_text} to ${one.high_text}` : "—";
        const standing = STANDINGS[one.standing] ?? "reference";
        const mean = one.seeds > 1 ? `mean of ${one.seeds}` : "single run";
        rows.push([one.text, mean, one.x_text[0], one.y_text[0], one.spread_text || "—", range, standing]);
        one.seed.forEach((seed, i) => rows.push([one.text, String(seed), one.seed_x_text[i], one.seed_y_text[i], "", "", ""]));
      }
    }
    place.replaceChildren(table(headers, rows, curves ? [] : [6]));
  }
}

/** Draw the line and marker of a series next to its checkbox. */
function paint(entry, kind) {
  const { swatch, one } = entry;
  const colour = one.color;
  const look = [kind, colour, one.dash, one.symbol].join();
  if (entry.look === look) return;
  entry.look = look;
  swatch.replaceChildren();
  if (kind === "curves") {
    const dash = one.dash || "none";
    swatch.append(svg("line", { x1: 1, x2: 29, y1: 6, y2: 6, stroke: colour, "stroke-width": 2, "stroke-dasharray": dash }));
  }
  swatch.append(svg("path", { fill: colour, d: SYMBOLS[one.symbol](4), transform: "translate(15 6)" }));
}

let charts = [];
onTheme(() => charts.forEach((chart) => chart.draw()));

/** Draw the figures of the page, one at each step; figures that were drawn before keep the user's choices. */
function* renewCharts() {
  const before = new Map(charts.map((chart) => [chart.section, chart]));
  charts = [];
  for (const section of document.querySelectorAll("section[data-figure]")) {
    const chart = before.get(section) ?? new Chart(section);
    charts.push(chart);
    yield* chart.show();
    yield "rest";
  }
}

/** Read the data of the page, show its buttons, and draw its figures. */
function begin() {
  DATA = JSON.parse(document.getElementById("data").textContent);
  awaken(document);
  for (const _ of renewCharts());
}
