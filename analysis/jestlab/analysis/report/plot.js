// A chart as SVG: axes, bands, lines, markers, error bars, and names, with zoom, a crosshair, and highlighted labels.
// These pages need only lines and points: a charting library would make up most of the size of a mailed page.

const NUMBER = new Intl.NumberFormat("en", { maximumSignificantDigits: 6 });
const COMPACT = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 5 });
const NEAR = 28; // pixels from the pointer to the nearest point
const DRAGGED = 6; // pixels: a shorter drag is a click
const NAMED_FROM = 460; // pixels: a narrower plot has a legend instead of names
const LINE = 15; // pixels between names
const WIDEST = 180; // pixels of a name
const MOST_READ = 12; // lines of the readout

/** Outlines of markers by the dash of a label, so that labels with the same color differ, as their lines do. */
const SHAPES = {
  "": (r) => `M${-r} 0A${r} ${r} 0 1 1 ${r} 0A${r} ${r} 0 1 1 ${-r} 0Z`,
  "10,3": (r) => `M${-r} ${-r}H${r}V${r}H${-r}Z`,
  "10,3,2,3": (r) => `M0 ${-1.3 * r}L${1.3 * r} 0L0 ${1.3 * r}L${-1.3 * r} 0Z`,
  "4,2": (r) => `M0 ${-1.2 * r}L${1.2 * r} ${r}H${-1.2 * r}Z`,
  "16,3,2,3,2,3": (r) => `M0 ${1.2 * r}L${1.2 * r} ${-r}H${-1.2 * r}Z`,
};

/** Return about `count` positions of ticks from low to high. */
function ticks(low, high, count, log) {
  if (log) {
    const found = [];
    for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; power++) {
      for (const digit of [1, 2, 5]) found.push(digit * 10 ** power);
    }
    const inside = found.filter((tick) => tick >= low && tick <= high);
    const decades = inside.filter((tick) => Number.isInteger(Math.log10(tick)));
    if (inside.length > count && decades.length > 1) return decades;
    if (inside.length > 1) return inside;
  }
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((digit) => digit * power).find((each) => each >= rough);
  const found = [];
  for (let i = Math.ceil(low / step); i * step <= high; i++) found.push(Number((i * step).toPrecision(12)));
  return found;
}

function tickText(value) {
  return (Math.abs(value) >= 1e5 ? COMPACT : NUMBER).format(value).replace("-", "−");
}

/** Return the width of a text in the font of the plot, pixels. */
function widthOf(text) {
  widthOf.context ??= document.createElement("canvas").getContext("2d");
  widthOf.context.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  return widthOf.context.measureText(text).width;
}

/** Move positions apart to at least `gap`, each as little as possible, between low and high; return them in order. */
function spread(wanted, gap, low, high) {
  const order = wanted.map((_, i) => i).sort((a, b) => wanted[a] - wanted[b]);
  const blocks = []; // neighbors that touch: sum of (position − offset), number, first offset
  order.forEach((at, i) => {
    blocks.push({ sum: wanted[at] - i * gap, count: 1 });
    while (blocks.length > 1 && blocks.at(-2).sum / blocks.at(-2).count > blocks.at(-1).sum / blocks.at(-1).count) {
      const { sum, count } = blocks.pop();
      blocks.at(-1).sum += sum;
      blocks.at(-1).count += count;
    }
  });
  const placed = [];
  const most = Math.max(low, high - (wanted.length - 1) * gap);
  const fitted = blocks.flatMap(({ sum, count }) => Array(count).fill(Math.min(most, Math.max(low, sum / count))));
  order.forEach((at, i) => (placed[at] = fitted[i] + i * gap));
  return placed;
}

class Plot {
  /** Create an empty plot in an element of the page; a small one has few ticks, and doesn't react. */
  constructor(place, small = false) {
    this.place = place;
    this.small = small;
    this.id = `plot-${(Plot.count = (Plot.count ?? 0) + 1)}`;
    this.zoomed = null; // {x: [low, high], y: [low, high]}
    this.lit = ""; // the highlighted label
    this.pinned = ""; // the label that stays highlighted
    this.tip = make("div", { class: "tip", role: "status", hidden: true });
    this.svg = svg("svg", { "aria-hidden": "true" });
    place.replaceChildren(this.svg, ...(small ? [] : [this.tip]));
    new ResizeObserver(() => this.scene && this.width !== place.clientWidth && this.render()).observe(place);
    if (small) return;
    place.tabIndex = 0;
    place.addEventListener("keydown", (event) => this.typed(event));
    place.addEventListener("blur", () => this.leave());
    this.svg.addEventListener("pointermove", (event) => this.moved(event));
    this.svg.addEventListener("pointerleave", () => this.leave());
    this.svg.addEventListener("pointerdown", (event) => this.pressed(event));
    this.svg.addEventListener("dblclick", () => this.zoom(null));
  }

  /** Draw a scene: {x, y: {title, log}, shapes, levels, names, view}. The zoom is kept if `view` is unchanged. */
  draw(scene) {
    if (this.scene?.view !== scene.view) this.zoomed = null;
    this.scene = scene;
    this.render();
  }

  zoom(to) {
    this.zoomed = to;
    this.render();
    this.place.dispatchEvent(new Event("zoom"));
  }

  /** Return the lowest and highest value of an axis, with some room. */
  range(side) {
    if (this.zoomed) return this.zoomed[side];
    const log = this.scene[side].log;
    let [low, high] = [Infinity, -Infinity];
    const see = (value) => {
      if (!Number.isFinite(value) || (log && value <= 0)) return;
      if (value < low) low = value;
      if (value > high) high = value;
    };
    for (const shape of this.scene.shapes) {
      const of = side === "x" ? [shape.x, shape.x_low, shape.x_high] : [shape.y, shape.low, shape.high];
      for (const each of of) {
        if (Array.isArray(each)) each.forEach(see);
        else if (typeof each === "number") see(each);
      }
    }
    if (side === "y") for (const level of this.scene.levels) see(level.y);
    if (low > high) [low, high] = log ? [1, 10] : [0, 1];
    if (log) {
      const room = high > low ? (high / low) ** 0.05 : 1.3;
      return [low / room, high * room];
    }
    const share = side === "x" && this.scene.readings ? 0.015 : 0.06;
    const room = high > low ? share * (high - low) : 0.1 * Math.abs(high) || 0.5;
    return [low - room, high + room];
  }

  render() {
    const width = (this.width = this.place.clientWidth || 640);
    const height = (this.height = this.place.clientHeight || 300);
    const { shapes, levels, x, y } = this.scene;
    for (const [name, value] of Object.entries({ width, height, viewBox: `0 0 ${width} ${height}` })) this.svg.setAttribute(name, value);
    this.ranges = { x: this.range("x"), y: this.range("y") };
    const yTicks = ticks(...this.ranges.y, this.small ? 3 : Math.max(2, height / 60), y.log);
    const letters = Math.max(0, ...yTicks.map((tick) => widthOf(tickText(tick))));
    const names = !this.small && width >= NAMED_FROM ? this.scene.names ?? [] : [];
    const atEnds = names.filter((name) => name.end);
    const margin = Math.max(0, ...atEnds.map((name) => Math.min(WIDEST, widthOf(name.text)) + 20));
    this.frame = this.small
      ? { left: 8 + letters, right: width - 6, top: 6, bottom: height - 20 }
      : { left: 36 + letters, right: width - Math.max(12, margin), top: 12, bottom: height - 46 };
    const { left, right, top, bottom } = this.frame;
    const xTicks = ticks(...this.ranges.x, this.small ? 3 : Math.max(2, (right - left) / 80), x.log);
    this.svg.replaceChildren();

    const area = { x: left, y: top, width: Math.max(0, right - left), height: Math.max(0, bottom - top) };
    this.add("clipPath", { id: this.id }).append(svg("rect", area));
    this.add("rect", { ...area, class: "ground" });
    for (const tick of xTicks) this.write(tickText(tick), { x: this.at("x", tick), y: bottom + 16, "text-anchor": "middle" });
    for (const tick of yTicks) {
      const at = this.at("y", tick);
      this.add("line", { x1: left, x2: right, y1: at, y2: at, class: "grid" });
      this.write(tickText(tick), { x: left - 6, y: at + 4, "text-anchor": "end" });
    }
    this.add("path", { d: `M${left} ${bottom}H${right}`, class: "axis" });
    if (!this.small) {
      this.write(x.title, { x: (left + right) / 2, y: height - 8, "text-anchor": "middle", class: "title x" });
      const middle = (top + bottom) / 2;
      this.write(y.title, { x: 12, y: middle, "text-anchor": "middle", class: "title y", transform: `rotate(-90 12 ${middle})` });
    }

    // Added to the page only when complete: otherwise each query of a color would compute all styles again.
    this.inside = svg("g", { "clip-path": `url(#${this.id})` });
    this.points = [];
    for (const level of levels) {
      const at = this.at("y", level.y);
      const line = { x1: left, x2: right, y1: at, y2: at, stroke: level.colour, "stroke-dasharray": level.dash };
      this.inside.append(svg("line", { ...line, "stroke-width": 1.2, class: "level" }));
      if (level.text && !this.small) this.write(level.text, { x: left + 6, y: at - 4, class: "name" });
    }
    for (const shape of shapes) this.inside.append(this[shape.kind](shape));
    this.svg.append(this.inside);
    this.nameEnds(atEnds, right, top, bottom);
    this.namePoints(names.filter((name) => !name.end));
    this.parts = Map.groupBy(this.svg.querySelectorAll("[data-label]"), (element) => element.dataset.label);
    this.leave();
  }

  add(tag, attributes) {
    const element = svg(tag, attributes);
    this.svg.append(element);
    return element;
  }

  write(text, attributes) {
    this.add("text", attributes).textContent = text;
  }

  /** Write the names of lines right of their ends, moved apart, and joined to the ends. */
  nameEnds(names, right, top, bottom) {
    const clamped = (name) => Math.min(bottom, Math.max(top, this.at("y", name.y)));
    const places = spread(names.map(clamped), LINE, top + 4, bottom - 4);
    names.forEach((name, i) => {
      const from = { x: Math.min(right, this.at("x", name.x)), y: clamped(name) };
      if (!Number.isFinite(from.x) || !Number.isFinite(from.y)) return;
      const group = this.add("g", { class: "end", "data-label": name.label, style: `color: ${name.colour}` });
      group.append(svg("path", { d: `M${from.x + 2} ${from.y}L${right + 6} ${places[i]}H${right + 10}`, class: "leader" }));
      this.nameIn(group, name, { x: right + 13, y: places[i] + 4 });
    });
  }

  /** Write the names of points next to them, where they cover no other point or name; leave out those without room. */
  namePoints(names) {
    const taken = this.points.filter((point) => !point.label || point.size).map(({ px, py }) => ({ x: px - 5, y: py - 5, width: 10, height: 10 }));
    const { left, right, top, bottom } = this.frame;
    for (const name of names) {
      const [px, py] = [this.at("x", name.x), this.at("y", name.y)];
      const width = Math.min(WIDEST, widthOf(name.text));
      const inside = (box) => box.x >= left && box.x + width <= right && box.y >= top && box.y + box.height <= bottom;
      const free = (box) => taken.every((other) => box.x > other.x + other.width || other.x > box.x + width || box.y > other.y + other.height || other.y > box.y + box.height);
      const places = [[10, -7], [-width - 10, -7], [-width / 2, -24], [-width / 2, 10], [8, -24], [8, 10], [-width - 8, -24], [-width - 8, 10]];
      const boxes = places.map(([dx, dy]) => ({ x: px + dx, y: py + dy, width, height: 14 })).filter(inside);
      const box = boxes.find(free) ?? (name.must ? boxes[0] : undefined);
      if (!box) continue;
      taken.push(box);
      const group = this.add("g", { class: "end", "data-label": name.label, style: `color: ${name.colour}` });
      this.nameIn(group, name, { x: box.x, y: box.y + 11 });
    }
  }

  nameIn(group, { text }, place) {
    let shown = text;
    while (shown.length > 4 && widthOf(shown) > WIDEST) shown = `${shown.slice(0, -2)}…`;
    const element = svg("text", place);
    element.textContent = shown;
    if (shown !== text) element.append(svg("title", {}));
    if (shown !== text) element.lastChild.textContent = text;
    group.append(element);
  }

  /** Return the position of a value, pixels; NaN where a logarithmic axis has none. */
  at(side, value) {
    const [low, high] = this.ranges[side];
    const along = this.scene[side].log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
    const { left, right, top, bottom } = this.frame;
    return side === "x" ? left + along * (right - left) : bottom - along * (bottom - top);
  }

  /** Return the value at a position. */
  value(side, pixels) {
    const [low, high] = this.ranges[side];
    const { left, right, top, bottom } = this.frame;
    const along = side === "x" ? (pixels - left) / (right - left) : (bottom - pixels) / (bottom - top);
    return this.scene[side].log ? low * (high / low) ** along : low + along * (high - low);
  }

  path(xs, ys, step = false) {
    let drawn = "";
    let before = false;
    xs.forEach((x, i) => {
      const [px, py] = [this.at("x", x), this.at("y", ys[i] ?? NaN)];
      const known = Number.isFinite(px) && Number.isFinite(py);
      if (known) drawn += !before ? `M${px.toFixed(1)} ${py.toFixed(1)}` : step ? `H${px.toFixed(1)}V${py.toFixed(1)}` : `L${px.toFixed(1)} ${py.toFixed(1)}`;
      before = known;
    });
    return drawn;
  }

  band({ x, low, high, colour, label }) {
    const around = this.path([...x, ...[...x].reverse()], [...high, ...[...low].reverse()]);
    return svg("path", { d: around ? `${around}Z` : "", fill: colour, "fill-opacity": 0.1, class: "band", "data-label": label });
  }

  line({ x, y, colour, dash, width = 2, opacity = 1, step, label = "", name = step ? "front" : "line" }) {
    const style = { fill: "none", stroke: colour, "stroke-width": width, "stroke-dasharray": dash || "none", "stroke-opacity": opacity };
    return svg("path", { d: this.path(x, y, step), ...style, class: name, "data-label": label });
  }

  bars({ x, y, x_low, x_high, low, high, colour, label }) {
    const group = svg("g", { stroke: colour, "stroke-width": 1.5, class: "bars", "data-label": label });
    const [px, py] = [this.at("x", x), this.at("y", y)];
    if (!Number.isFinite(px) || !Number.isFinite(py)) return group;
    const from = (side, value, edge) => (this.scene[side].log && value <= 0 ? edge : this.at(side, value));
    if (high > low) {
      const [top, bottom] = [this.at("y", high), from("y", low, this.frame.bottom)];
      group.append(svg("path", { d: `M${px} ${bottom}V${top}`, class: "of-y", "data-low": low, "data-high": high }));
    }
    if (x_high > x_low) {
      const [start, end] = [from("x", x_low, this.frame.left), this.at("x", x_high)];
      group.append(svg("path", { d: `M${start} ${py}H${end}`, class: "of-x", "data-low": x_low, "data-high": x_high }));
    }
    return group;
  }

  marks({ x, y, colour, dash = "", size, fill = "full", opacity = 1, texts, label, of = label }) {
    const group = svg("g", { class: "marks", "data-label": label, opacity });
    const outline = (SHAPES[dash] ?? SHAPES[""])(size / 2);
    const inside = fill === "full" ? colour : fill === "half" ? this.half(colour) : "var(--paper)";
    x.forEach((value, i) => {
      const [px, py] = [this.at("x", value), this.at("y", y[i] ?? NaN)];
      if (!Number.isFinite(px) || !Number.isFinite(py)) return;
      const place = { transform: `translate(${px.toFixed(1)} ${py.toFixed(1)})`, "data-fill": fill };
      const border = size > 9 ? { stroke: colour, "stroke-width": 2 } : {};
      group.append(svg("path", { d: outline, fill: inside, ...place, ...border }));
      if (texts) this.points.push({ px, py, text: texts[i], colour, label: of, size: size > 9 });
    });
    return group;
  }

  /** Return a paint that fills only the left half. */
  half(colour) {
    const id = `${this.id}-half-${colour.replace(/\W+/g, "-")}`;
    const gradient = this.add("linearGradient", { id });
    gradient.append(svg("stop", { offset: 0.5, "stop-color": colour }), svg("stop", { offset: 0.5, "stop-color": "var(--paper)" }));
    return `url(#${id})`;
  }

  // Highlight one label, and read the values under the pointer; zoom by dragging.

  /** Highlight a label and dim the others; without a label, the pinned one. */
  light(label) {
    for (const element of this.parts.get(this.lit) ?? []) element.classList.remove("lit");
    this.lit = label || this.pinned;
    for (const element of this.parts.get(this.lit) ?? []) element.classList.add("lit");
    this.svg.classList.toggle("dimmed", this.lit !== "");
  }

  pin(label) {
    this.pinned = this.pinned === label ? "" : label;
    this.light();
    this.place.dispatchEvent(new Event("pin"));
  }

  leave() {
    this.crosshair?.remove();
    this.tip.hidden = true;
    this.cursor = null;
    this.light();
  }

  placeOf(event) {
    const box = this.svg.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  moved(event) {
    const [x, y] = this.placeOf(event);
    if (this.from) {
      this.select(x, y);
      return;
    }
    const named = event.target.closest(".end")?.dataset.label;
    const { left, right } = this.frame;
    if (named || x < left - NEAR || x > right + NEAR) {
      this.leave();
      this.light(named);
    } else if (this.scene.readings) {
      this.read(x, y);
    } else {
      const nearest = this.points.reduce((best, point) => (Math.hypot(point.px - x, point.py - y) < Math.hypot(best.px - x, best.py - y) ? point : best), { px: 1e9, py: 1e9 });
      if (Math.hypot(nearest.px - x, nearest.py - y) < NEAR) this.tell(nearest);
      else this.leave();
    }
  }

  /** Show the values of all lines at the recorded position nearest to x, the highest first. */
  read(x, y) {
    const { readings } = this.scene;
    let column = null;
    for (const one of readings) {
      for (const value of one.x) {
        const px = this.at("x", value);
        if (column === null || Math.abs(px - x) < Math.abs(column.px - x)) column = { px, value };
      }
    }
    if (column === null) return this.leave();
    const rows = [];
    for (const one of readings) {
      let at = 0;
      one.x.forEach((value, i) => {
        if (Math.abs(value - column.value) <= Math.abs(one.x[at] - column.value)) at = i;
      });
      const far = Math.abs(this.at("x", one.x[at]) - column.px);
      if (!(far < NEAR) || !Number.isFinite(one.y[at])) continue;
      rows.push({ one, at, py: this.at("y", one.y[at]) });
    }
    rows.sort((a, b) => b.one.y[b.at] - a.one.y[a.at]);
    const near = rows.reduce((best, row) => (Math.abs(row.py - y) < Math.abs((best?.py ?? 1e9) - y) ? row : best), null);
    this.light(near && Math.abs(near.py - y) < NEAR ? near.one.label : "");
    this.cross(column.px, rows.map((row) => [row.py, row.one.colour]));
    const lines = rows.slice(0, MOST_READ).map(({ one, at }) => {
      const text = [one.y_text?.[at] ?? tickText(one.y[at]), one.more?.(at)].filter(Boolean).join(" ");
      const name = make("span", {}, make("i", { class: "swatch", style: `background: ${one.colour}` }), shortened(one.text, 32));
      return make("div", { class: one.label === this.lit ? "row lit" : "row" }, name, make("span", { class: "value" }, text));
    });
    const rest = rows.length - lines.length;
    const [amount] = rows.map(({ one, at }) => one.x_text?.[at]);
    const { title } = this.scene.x;
    const heading = amount && title.includes("(") ? amount : `${amount ?? tickText(column.value)} ${title}`; // a unit is in both
    this.cursor = column;
    this.show(column.px, y, make("strong", {}, heading), ...lines, ...(rest > 0 ? [make("div", {}, `${rest} more`)] : []));
  }

  /** Show the text of a point: its first line names the run. */
  tell(point) {
    this.light(point.label);
    this.cross(null, [[point.py, point.colour, point.px]]);
    const [name, ...lines] = point.text;
    this.show(point.px, point.py, make("strong", {}, name), ...lines.map((line) => make("div", {}, line)));
    this.cursor = point;
  }

  cross(px, dots) {
    this.crosshair?.remove();
    this.crosshair = svg("g", { class: "crosshair" });
    if (px !== null) this.crosshair.append(svg("path", { d: `M${px} ${this.frame.top}V${this.frame.bottom}` }));
    for (const [py, colour, at = px] of dots) this.crosshair.append(svg("circle", { cx: at, cy: py, r: px === null ? 9 : 3.5, stroke: colour }));
    this.inside.append(this.crosshair);
  }

  show(px, py, ...content) {
    this.tip.replaceChildren(...content);
    this.tip.hidden = false;
    const right = px > (this.frame.left + this.frame.right) / 2;
    this.tip.style.left = right ? "" : `${px + 14}px`;
    this.tip.style.right = right ? `${this.width - px + 14}px` : "";
    this.tip.style.top = `${Math.max(0, Math.min(py - 16, this.height - this.tip.offsetHeight))}px`;
  }

  /** Left and right move the crosshair, up and down choose a label, 0 resets the zoom, Escape ends everything. */
  typed(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") {
      if (this.pinned) this.pin("");
      this.leave();
    } else if (event.key === "0") this.zoom(null);
    else if (step && event.key.endsWith("t")) this.step(step);
    else if (step) {
      const labels = [...new Set(this.scene.shapes.map((shape) => shape.label).filter(Boolean))];
      const at = labels.indexOf(this.pinned);
      this.pin(labels[(Math.max(at, step > 0 ? -1 : 0) + step + labels.length) % labels.length] ?? "");
      if (this.cursor && this.scene.readings) this.read(this.cursor.px, -1e9);
    } else return;
    event.preventDefault();
  }

  /** Move the crosshair, or the chosen point, to the next position. */
  step(by) {
    const { left, right, top } = this.frame;
    const all = this.scene.readings ? this.scene.readings.flatMap((one) => one.x.map((x) => ({ px: this.at("x", x) }))) : this.points;
    const inside = all.filter(({ px }) => px >= left - 1 && px <= right + 1).sort((a, b) => a.px - b.px || a.py - b.py);
    const from = this.cursor ? inside.findIndex((each) => each === this.cursor || each.px >= this.cursor.px - 0.01) : by > 0 ? -1 : inside.length;
    let at = from + by;
    while (this.scene.readings && this.cursor && inside[at] && Math.abs(inside[at].px - this.cursor.px) < 1) at += by;
    const next = inside[Math.max(0, Math.min(inside.length - 1, at))];
    if (!next) return;
    if (this.scene.readings) this.read(next.px, top - 1e9);
    else this.tell(next);
  }

  pressed(event) {
    const named = event.target.closest(".end")?.dataset.label;
    if (event.button || named || event.pointerType === "touch") {
      if (named) this.pin(named);
      else this.moved(event);
      return;
    }
    this.from = this.placeOf(event);
    this.svg.setPointerCapture(event.pointerId);
    const end = (last) => {
      this.svg.removeEventListener("pointerup", end);
      this.svg.removeEventListener("pointercancel", end);
      const [[x0, y0], [x1, y1]] = [this.from, this.placeOf(last)];
      this.from = null;
      this.box?.remove();
      if (last.type === "pointercancel" || Math.hypot(x1 - x0, y1 - y0) < DRAGGED) return;
      // A drag along one axis doesn't zoom the other.
      const along = (side, a, b) =>
        Math.abs(a - b) < 2 * DRAGGED ? this.ranges[side] : [this.value(side, a), this.value(side, b)].sort((p, q) => p - q);
      this.zoom({ x: along("x", x0, x1), y: along("y", y0, y1) });
    };
    this.svg.addEventListener("pointerup", end);
    this.svg.addEventListener("pointercancel", end);
  }

  select(x, y) {
    const [x0, y0] = this.from;
    this.box?.remove();
    this.box = svg("rect", { x: Math.min(x, x0), y: Math.min(y, y0), width: Math.abs(x - x0), height: Math.abs(y - y0), class: "chosen" });
    this.svg.append(this.box);
  }
}
