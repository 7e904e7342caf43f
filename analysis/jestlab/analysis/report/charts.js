// Interactive figures: series as Plotly's traces, charts and their controls.

const MOST_BANDS = 8; // more of them would hide the lines

function curveTraces(one, banded) {
  const colour = ink(one.colour);
  const name = literal(shortened(one.text));
  const traces = [];
  if (one.low.length && banded) {
    traces.push({
      x: [...one.x, ...[...one.x].reverse()],
      y: [...one.high, ...[...one.low].reverse()],
      fill: "toself",
      fillcolor: faint(colour, 0.16),
      line: { width: 0 },
      mode: "lines",
      hoverinfo: "skip",
    });
  }
  traces.push({
    x: one.x,
    y: one.y,
    mode: "lines+markers",
    line: { color: colour, width: 2, dash: one.dash },
    marker: { color: colour, size: 7, symbol: one.symbol },
    text: one.x_text.map((x, i) => {
      const band = one.low.length ? `<br>${one.low_text[i]} to ${one.high_text[i]} over ${one.seeds} seeds` : "";
      return `<b>${name}</b><br>${one.y_text[i]} at ${x}${band}`;
    }),
    hovertemplate: "%{text}<extra></extra>",
  });
  return traces;
}

const STANDINGS = { front: "on the front", ambiguous: "on the front or dominated", dominated: "dominated" };

function paretoTraces(one, place) {
  const colour = ink(one.colour);
  const name = literal(shortened(one.text));
  // Filled: on the front for certain; half filled (by `halve`): may be either; open: dominated, or a reference.
  const fill = one.standing === "front" ? colour : css("--paper");
  const bars = (low, value, high) => ({
    type: "data",
    symmetric: false,
    array: [high - value],
    arrayminus: [value - low],
    visible: high > low,
    color: colour,
    thickness: 1.5,
  });
  return [
    {
      x: one.seed_x,
      y: one.seed_y,
      mode: "markers",
      marker: { color: faint(colour, 0.55), size: 5, symbol: one.symbol },
      text: one.seed.map((seed, i) => `<b>${name}</b>, seed ${seed}<br>${one.seed_y_text[i]} at ${one.seed_x_text[i]}`),
      hovertemplate: "%{text}<extra></extra>",
    },
    {
      uid: `${one.standing === "ambiguous" ? HALF : "mean-"}${place}`,
      x: one.x,
      y: one.y,
      mode: "markers",
      marker: {
        color: fill,
        size: 11,
        symbol: one.symbol,
        line: { color: colour, width: 2 },
      },
      error_x: bars(one.x_low, one.x[0], one.x_high),
      error_y: bars(one.low, one.y[0], one.high),
      text: [
        `<b>${name}</b><br>${one.y_text[0]}${one.spread_text ? " ± " + one.spread_text : ""} at ${one.x_text[0]}` +
          (one.seeds > 1 ? `<br>${one.low_text} to ${one.high_text} over ${one.seeds} seeds` : "") +
          (one.standing ? `<br>${STANDINGS[one.standing]}` : ""),
      ],
      hovertemplate: "%{text}<extra></extra>",
    },
  ];
}

const HALF = "half-"; // begins the id of a trace whose markers are half filled

/** Fill the left half of markers. Plotly has no such symbols, but its elements have the ids of their traces. */
function halve(plot, ground) {
  for (const marker of plot.querySelectorAll(`[class*=" trace${HALF}"] path.point`)) {
    const colour = getComputedStyle(marker).stroke;
    const id = `${HALF}${colour.replace(/\W+/g, "-")}`;
    const drawing = marker.closest("svg");
    drawing.querySelector(`#${id}`)?.remove(); // of the other color scheme
    const gradient = svg("linearGradient", { id });
    gradient.append(
      svg("stop", { offset: 0.5, "stop-color": colour }),
      svg("stop", { offset: 0.5, "stop-color": ground }),
    );
    drawing.append(gradient);
    marker.style.fill = `url(#${id})`;
  }
}

function frontTrace(front) {
  return {
    x: front.x,
    y: front.y,
    mode: "lines",
    line: { color: css("--muted"), width: 1.5, shape: "hv" },
    hoverinfo: "skip",
  };
}

function axis(title, log) {
  return {
    title: { text: literal(title), standoff: 10 },
    type: log ? "log" : "linear",
    automargin: true,
    gridcolor: css("--grid"),
    linecolor: css("--muted"),
    zeroline: false,
    ticks: "outside",
    tickcolor: css("--muted"),
    exponentformat: "B",
    separatethousands: true,
    minexponent: 5,
    dtick: log ? "D2" : undefined,
  };
}

/** A horizontal line across the whole plot. */
function line(y, color, dash) {
  return { type: "line", layer: "below", xref: "paper", x0: 0, x1: 1, y0: y, y1: y, line: { color, dash, width: 1.2 } };
}

class Chart {
  constructor(section) {
    this.section = section;
    this.figure = DATA.figures[section.dataset.figure];
    this.plot = section.querySelector(".plot");
    this.variant = Object.keys(this.figure.variants)[0];
    this.log = { x: false, y: this.figure.variants[this.variant].y_log };
    this.shown = new Map();
    for (const variant of Object.values(this.figure.variants)) {
      for (const one of variant.series) {
        if (!this.shown.has(one.label)) this.shown.set(one.label, one.shown);
      }
    }
    this.makeControls();
    this.draw();
    this.plot.on("plotly_afterplot", () => halve(this.plot, css("--paper")));
    halve(this.plot, css("--paper"));
  }

  get data() {
    return this.figure.variants[this.variant];
  }

  makeControls() {
    const controls = this.section.querySelector(".controls");
    const name = this.section.dataset.figure;
    const variants = Object.keys(this.figure.variants);
    if (variants.length > 1) {
      controls.append(
        this.choice("over", `${name}-variant`, variants, (chosen) => {
          this.variant = chosen;
          this.section.querySelector(".caption").textContent = this.data.caption;
          this.draw();
        }),
      );
    }
    for (const side of ["x", "y"]) {
      controls.append(
        this.choice(`${side} axis`, `${name}-${side}`, this.log[side] ? ["log", "linear"] : ["linear", "log"], (chosen) => {
          this.log[side] = chosen === "log";
          this.draw();
        }),
      );
    }
    const reset = make("button", { type: "button" }, "Reset zoom");
    reset.addEventListener("click", () => this.draw(true));
    controls.append(reset);

    const list = this.section.querySelector(".series");
    const swatches = (this.swatches = []);
    // Series that are shown come first, since the list may be long.
    for (const one of this.allSeries().sort((a, b) => b.shown - a.shown)) {
      const box = make("input", { type: "checkbox", checked: this.shown.get(one.label) });
      box.addEventListener("change", () => {
        this.shown.set(one.label, box.checked);
        this.draw();
      });
      const swatch = svg("svg", { width: 30, height: 12, viewBox: "0 0 30 12", "aria-hidden": "true" });
      swatches.push([swatch, one]);
      const label = make("label", { class: "one" }, box, swatch, make("span", {}, one.text));
      list.append(label);
    }
    const all = make("button", { type: "button" }, "All");
    const none = make("button", { type: "button" }, "None");
    for (const [button, value] of [[all, true], [none, false]]) {
      button.addEventListener("click", () => {
        for (const label of this.shown.keys()) this.shown.set(label, value);
        for (const box of list.querySelectorAll("input")) box.checked = value;
        this.draw();
      });
    }
    list.append(make("span", { class: "buttons" }, all, none));
    const details = this.section.querySelector("details.numbers");
    details.addEventListener("toggle", () => this.tabulate());
  }

  allSeries() {
    const seen = new Map();
    for (const variant of Object.values(this.figure.variants)) {
      for (const one of variant.series) if (!seen.has(one.label)) seen.set(one.label, one);
    }
    return [...seen.values()];
  }

  choice(legend, name, options, chosen) {
    const set = make("fieldset", {}, make("legend", {}, legend));
    options.forEach((option, i) => {
      const input = make("input", { type: "radio", name, value: option, checked: i === 0 });
      input.addEventListener("change", () => chosen(option));
      set.append(make("label", {}, input, make("span", {}, option)));
    });
    return set;
  }

  visible() {
    return this.data.series.filter((one) => this.shown.get(one.label));
  }

  draw(whole = false) {
    for (const [swatch, one] of this.swatches) paint(swatch, one, this.data.kind);
    const series = this.visible();
    const banded = series.length <= MOST_BANDS;
    const traces = series.flatMap((one, place) =>
      this.data.kind === "curves" ? curveTraces(one, banded) : paretoTraces(one, place),
    );
    if (this.data.front) traces.unshift(frontTrace(this.data.front));
    const lines = [
      ...(this.data.baseline_level ?? []).map((y) => line(y, css("--ink"), "2px,2px")),
      ...this.data.levels.map(({ y }) => line(y, css("--muted"), "6px,3px")),
    ];
    const named = this.data.levels.map(({ y, text }) => ({
      text: literal(shortened(text)),
      xref: "paper",
      x: 0.01,
      y: this.log.y ? Math.log10(y) : y,
      xanchor: "left",
      yanchor: "bottom",
      showarrow: false,
      font: { size: 12, color: css("--muted") },
    }));
    const layout = {
      shapes: lines,
      annotations: named,
      margin: { l: 56, r: 12, t: 12, b: 48 },
      height: Math.max(300, Math.min(460, this.plot.clientWidth * 0.62)),
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: "system-ui, sans-serif", size: 13, color: css("--ink") },
      showlegend: false,
      hovermode: "closest",
      dragmode: "zoom",
      hoverlabel: { bgcolor: css("--paper"), bordercolor: css("--muted"), font: { color: css("--ink") }, align: "left" },
      xaxis: axis(this.data.x_title, this.log.x),
      yaxis: axis(this.data.y_title, this.log.y),
      // A new value resets the zoom, which means nothing for other axes.
      uirevision: whole ? Math.random() : `${this.variant} ${this.log.x} ${this.log.y}`,
    };
    const names = series.map((one) => shortened(one.text)).join(", ") || "no series";
    const kind = this.data.kind === "curves" ? "Line chart" : "Scatter plot";
    this.plot.setAttribute("aria-label", `${kind} of ${this.data.y_title} over ${this.data.x_title}: ${names}. Its data is in the table below.`);
    this.drawn = Plotly.react(this.plot, traces, layout, { displayModeBar: false, responsive: true, doubleClick: "reset" });
    this.tabulate();
  }

  /** The data of what is shown, as a table: made when it is opened, since it may be long. */
  tabulate() {
    const details = this.section.querySelector("details.numbers");
    const place = details.querySelector(".scroll");
    if (!details.open) return;
    const curves = this.data.kind === "curves";
    const headers = curves
      ? ["run", "seeds", this.data.x_title.replace(/ \(.*\)/, ""), this.data.y_title, "lowest to highest"]
      : ["run", "seed", "training FLOPs", this.data.y_title, "± std", "lowest to highest", "standing"];
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

/** The line and marker of a series, for its checkbox. */
function paint(swatch, one, kind) {
  const colour = ink(one.colour);
  swatch.replaceChildren();
  if (kind === "curves") {
    const dash = one.dash === "solid" ? "none" : one.dash === "dash" ? "6,3" : one.dash.replaceAll("px", "");
    swatch.append(svg("line", { x1: 1, x2: 29, y1: 6, y2: 6, stroke: colour, "stroke-width": 2, "stroke-dasharray": dash }));
  }
  const shapes = {
    circle: ["circle", { cx: 15, cy: 6, r: 4 }],
    square: ["rect", { x: 11.3, y: 2.3, width: 7.4, height: 7.4 }],
    diamond: ["polygon", { points: "15,1 20,6 15,11 10,6" }],
    "triangle-up": ["polygon", { points: "15,1.5 20,10 10,10" }],
    "triangle-down": ["polygon", { points: "15,10.5 20,2 10,2" }],
    "triangle-left": ["polygon", { points: "10,6 18.5,1 18.5,11" }],
    "triangle-right": ["polygon", { points: "20,6 11.5,1 11.5,11" }],
    cross: ["polygon", { points: "13.5,1 16.5,1 16.5,4.5 20,4.5 20,7.5 16.5,7.5 16.5,11 13.5,11 13.5,7.5 10,7.5 10,4.5 13.5,4.5" }],
    x: ["path", { d: "M11 2L19 10M19 2L11 10", stroke: colour, "stroke-width": 2.5 }],
    pentagon: ["polygon", { points: "15,1 20,4.7 18,10.5 12,10.5 10,4.7" }],
    hexagon: ["polygon", { points: "15,1 19.4,3.5 19.4,8.5 15,11 10.6,8.5 10.6,3.5" }],
  };
  const [tag, attributes] = shapes[one.symbol];
  swatch.append(svg(tag, { fill: colour, ...attributes }));
}

const charts = [...document.querySelectorAll("section[data-figure]")].map((section) => new Chart(section));
DARK.addEventListener("change", () => charts.forEach((chart) => chart.draw()));
