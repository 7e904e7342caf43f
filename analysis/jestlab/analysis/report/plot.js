// A chart as SVG: axes, bands, lines, markers, error bars, and names, with zoom, a crosshair, and highlighted labels.
// These pages need only lines and points: a charting library would make up most of the size of a mailed page.

const NUMBER = new Intl.NumberFormat("en", { maximumSignificantDigits: 6 });
const COMPACT = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 5 });
const NEAR = 28; // pixels from the pointer to the nearest point
const MAIN = 9; // pixels: the markers of means are larger
const DRAGGED = 6; // pixels: a shorter drag is a click
const NAMED_FROM = 460; // pixels: a narrower plot has a legend instead of names
const LINE = 15; // pixels between names
const LONGEST = 26; // letters of a name
const MOST_READ = 12; // lines of the readout

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

/** Move positions apart to at least `gap`, downward, and upward where they would exceed `high`; return them in order. */
function spread(wanted, gap, low, high) {
  const placed = [...wanted];
  const order = wanted.map((_, i) => i).sort((a, b) => wanted[a] - wanted[b]);
  order.forEach((at, i) => (placed[at] = Math.max(wanted[at], i ? placed[order[i - 1]] + gap : low)));
  order.reverse().forEach((at, i) => (placed[at] = Math.min(placed[at], i ? placed[order[i - 1]] - gap : high)));
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
    const { shapes, levels, readings } = this.scene;
    const log = this.scene[side].log;
    const parts = side === "x" ? ["x", "x_low", "x_high"] : ["y", "low", "high"];
    let [low, high] = [Infinity, -Infinity];
    for (const value of [...shapes, ...levels].flatMap((shape) => parts.flatMap((part) => shape[part] ?? []))) {
      if (!Number.isFinite(value) || (log && value <= 0)) continue;
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
    if (low > high) [low, high] = log ? [1, 10] : [0, 1];
    if (log) {
      const room = high > low ? (high / low) ** 0.05 : 1.3;
      return [low / room, high * room];
    }
    const share = side === "x" && readings ? 0.015 : 0.06;
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
    const margin = Math.max(0, ...atEnds.map((name) => widthOf(shortened(name.text, LONGEST)) + 20));
    this.frame = this.small
      ? { left: 8 + letters, right: width - 6, top: 6, bottom: height - 20 }
      : { left: 36 + letters, right: width - Math.max(12, margin), top: 12, bottom: height - 46 };
    const { left, right, top, bottom } = this.frame;
    const xTicks = ticks(...this.ranges.x, this.small ? 3 : Math.max(2, (right - left) / 80), x.log);
    this.svg.replaceChildren();

    const area = { x: left, y: top, width: Math.max(0, right - left), height: Math.max(0, bottom - top) };
    this.add("clipPath", { id: this.id }).append(svg("rect", area));
    for (const tick of xTicks) this.add("text", { x: this.at("x", tick), y: bottom + 16, "text-anchor": "middle" }, tickText(tick));
    for (const tick of yTicks) {
      const at = this.at("y", tick);
      this.add("line", { x1: left, x2: right, y1: at, y2: at, class: "gridline" });
      this.add("text", { x: left - 6, y: at + 4, "text-anchor": "end" }, tickText(tick));
    }
    this.add("path", { d: `M${left} ${bottom}H${right}`, class: "axis" });
    if (!this.small) {
      this.add("text", { x: (left + right) / 2, y: height - 8, "text-anchor": "middle", class: "title x" }, x.title);
      const middle = (top + bottom) / 2;
      this.add("text", { x: 12, y: middle, "text-anchor": "middle", class: "title y", transform: `rotate(-90 12 ${middle})` }, y.title);
    }

    // Added to the page only when complete: otherwise each query of a color would compute all styles again.
    this.inside = svg("g", { "clip-path": `url(#${this.id})` });
    this.points = [];
    for (const level of levels) {
      const at = this.at("y", level.y);
      const line = { x1: left, x2: right, y1: at, y2: at, stroke: level.color, "stroke-dasharray": level.dash };
      this.inside.append(svg("line", { ...line, "stroke-width": 1.2, class: "level" }));
      if (level.text && !this.small) this.add("text", { x: left + 6, y: at - 4, class: "name" }, level.text);
    }
    for (const shape of shapes) this.inside.append(this[shape.kind](shape));
    this.svg.append(this.inside);
    this.nameEnds(atEnds, right, top, bottom);
    this.namePoints(names.filter((name) => !name.end));
    const recorded = new Set((this.scene.readings ?? []).flatMap((one) => one.x));
    const columns = new Map([...recorded].map((value) => [Math.round(this.at("x", value)), value]));
    const stops = this.scene.readings ? [...columns].map(([px, value]) => ({ px, value })) : this.points;
    this.stops = stops.filter(({ px }) => px >= left - 1 && px <= right + 1).sort((a, b) => a.px - b.px);
    this.leave();
  }

  add(tag, attributes, text = "") {
    const element = svg(tag, attributes);
    element.textContent = text;
    this.svg.append(element);
    return element;
  }

  /** Write the names of lines right of their ends, moved apart, and joined to the ends. */
  nameEnds(names, right, top, bottom) {
    const heights = names.map((name) => Math.min(bottom, Math.max(top, this.at("y", name.y))));
    const places = spread(heights, LINE, top + 4, bottom - 4);
    names.forEach((name, i) => {
      const end = Math.min(right, this.at("x", name.x));
      if (!Number.isFinite(end) || !Number.isFinite(heights[i])) return;
      const group = this.nameAt(name, right + 13, places[i] + 4);
      group.append(svg("path", { d: `M${end + 2} ${heights[i]}L${right + 6} ${places[i]}H${right + 10}`, class: "leader" }));
    });
  }

  /** Write the names of points next to them, where they cover no other point or name; leave out those without room. */
  namePoints(names) {
    const taken = this.points.filter((point) => point.main).map(({ px, py }) => ({ x: px - 5, y: py - 5, width: 10, height: 10 }));
    const { left, right, top, bottom } = this.frame;
    for (const name of names) {
      const [px, py] = [this.at("x", name.x), this.at("y", name.y)];
      const width = widthOf(shortened(name.text, LONGEST));
      const inside = (box) => box.x >= left && box.x + width <= right && box.y >= top && box.y + box.height <= bottom;
      const free = (box) => taken.every((other) => box.x > other.x + other.width || other.x > box.x + width || box.y > other.y + other.height || other.y > box.y + box.height);
      const places = [10, -width - 10, -width / 2].flatMap((dx) => [-7, -24, 10].map((dy) => ({ x: px + dx, y: py + dy, width, height: 14 })));
      const box = places.filter(inside).find(free);
      if (!box) continue;
      taken.push(box);
      this.nameAt(name, box.x, box.y + 11);
    }
  }

  nameAt({ label, text, color }, x, y) {
    const group = this.add("g", { class: "end", "data-label": label, style: `color: ${color}` });
    group.append(this.add("text", { x, y }, shortened(text, LONGEST)));
    return group;
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

  band({ x, low, high, color, label }) {
    const around = this.path([...x, ...[...x].reverse()], [...high, ...[...low].reverse()]);
    return svg("path", { d: around ? `${around}Z` : "", fill: color, "fill-opacity": 0.1, class: "band", "data-label": label });
  }

  line({ x, y, color, dash, width = 2, opacity = 1, step, label = "", name = step ? "front" : "line" }) {
    const style = { fill: "none", stroke: color, "stroke-width": width, "stroke-dasharray": dash || "none", "stroke-opacity": opacity };
    return svg("path", { d: this.path(x, y, step), ...style, class: name, "data-label": label });
  }

  bars({ x, y, x_low, x_high, low, high, color, label }) {
    const ends = (side, from, to) => [Math.max(from, this.ranges[side][0]), to]; // a logarithmic axis has no 0
    const [across, up] = [this.path(ends("x", x_low, x_high), [y, y]), this.path([x, x], ends("y", low, high))];
    return svg("path", { d: across + up, stroke: color, "stroke-width": 1.5, fill: "none", "data-label": label });
  }

  marks({ x, y, color, size, fill = "full", opacity = 1, texts, label, of = label }) {
    const group = svg("g", { class: "marks", "data-label": label, opacity });
    const main = size > MAIN;
    x.forEach((value, i) => {
      const [px, py] = [this.at("x", value), this.at("y", y[i] ?? NaN)];
      if (!Number.isFinite(px) || !Number.isFinite(py)) return;
      const outline = `M${-size / 2} 0a${size / 2} ${size / 2} 0 1 1 ${size} 0a${size / 2} ${size / 2} 0 1 1 ${-size} 0Z`;
      const place = { d: outline, transform: `translate(${px.toFixed(1)} ${py.toFixed(1)})`, "data-fill": fill };
      group.append(svg("path", { ...place, color, fill: color, stroke: color, "stroke-width": main ? 2 : 0 }));
      if (texts) this.points.push({ px, py, text: texts[i], color, label: of, main });
    });
    return group;
  }

  // Highlight one label, and read the values under the pointer; zoom by dragging.

  /** Highlight a label and dim the others; without a label, the pinned one. */
  light(label) {
    this.lit = label || this.pinned;
    for (const element of this.svg.querySelectorAll("[data-label]")) element.classList.toggle("lit", element.dataset.label === this.lit);
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
    if (this.from) return this.select(x, y);
    const named = event.target.closest(".end")?.dataset.label;
    const away = (stop) => Math.hypot(stop.px - x, this.scene.readings ? 0 : stop.py - y);
    const nearest = this.stops.reduce((best, stop) => (best && away(best) <= away(stop) ? best : stop), null);
    if (!named && nearest && away(nearest) < (this.scene.readings ? Infinity : NEAR)) this.read(nearest, y);
    else this.leave();
    if (named) this.light(named);
  }

  /** Show a point, or the values of all lines at a recorded position, the highest first. */
  read(stop, y) {
    this.cursor = stop;
    if (!this.scene.readings) return this.tell(stop);
    const rows = [];
    for (const one of this.scene.readings) {
      const far = (i) => Math.abs(one.x[i] - stop.value);
      const at = one.x.reduce((best, _, i) => (far(i) < far(best) ? i : best), 0);
      if (!(Math.abs(this.at("x", one.x[at]) - stop.px) < NEAR) || !Number.isFinite(one.y[at])) continue;
      rows.push({ one, at, away: Math.abs(this.at("y", one.y[at]) - y) });
    }
    rows.sort((a, b) => b.one.y[b.at] - a.one.y[a.at]);
    const near = rows.reduce((best, row) => (row.away < best.away ? row : best), { away: NEAR });
    this.light(near.one?.label);
    this.cross(stop.px, rows.map(({ one, at }) => [this.at("y", one.y[at]), one.color]));
    const lines = rows.slice(0, MOST_READ).map(({ one, at }) => {
      const text = [one.y_text?.[at] ?? tickText(one.y[at]), one.more?.(at)].filter(Boolean).join(" ");
      const name = make("span", {}, make("i", { class: "swatch", style: `background: ${one.color}` }), shortened(one.text, 32));
      return make("div", { class: one.label === this.lit ? "row lit" : "row" }, name, make("span", { class: "value" }, text));
    });
    if (rows.length > lines.length) lines.push(make("div", {}, `${rows.length - lines.length} more`));
    const amount = rows[0]?.one.x_text?.[rows[0].at];
    const { title } = this.scene.x;
    const heading = amount && title.includes("(") ? amount : `${amount ?? tickText(stop.value)} ${title}`; // a unit is in both
    this.show(stop.px, y, make("strong", {}, heading), ...lines);
  }

  /** Show the text of a point: its first line names the run. */
  tell({ px, py, color, label, text: [name, ...lines] }) {
    this.light(label);
    this.cross(null, [[py, color, px]]);
    this.show(px, py, make("strong", {}, name), ...lines.map((line) => make("div", {}, line)));
  }

  cross(px, dots) {
    this.crosshair?.remove();
    this.crosshair = svg("g", { class: "crosshair" });
    if (px !== null) this.crosshair.append(svg("path", { d: `M${px} ${this.frame.top}V${this.frame.bottom}` }));
    for (const [py, color, at = px] of dots) this.crosshair.append(svg("circle", { cx: at, cy: py, r: px === null ? 9 : 3.5, stroke: color }));
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
    if (event.altKey || event.ctrlKey || event.metaKey) return; // shortcuts of the browser
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") {
      if (this.pinned) this.pin("");
      this.leave();
    } else if (event.key === "0") this.zoom(null);
    else if (["ArrowLeft", "ArrowRight"].includes(event.key)) {
      const from = this.cursor ? this.stops.indexOf(this.cursor) : step > 0 ? -1 : this.stops.length;
      const next = this.stops[from + step] ?? this.cursor;
      if (next) this.read(next, -1e9);
    } else if (step) {
      const labels = [...new Set(this.scene.shapes.map((shape) => shape.label).filter(Boolean))];
      const at = labels.indexOf(this.pinned);
      this.pin(labels[(Math.max(at, step > 0 ? -1 : 0) + step + labels.length) % labels.length] ?? "");
      if (this.cursor && this.scene.readings) this.read(this.cursor, -1e9);
    } else return;
    event.preventDefault();
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
    this.svg.addEventListener("lostpointercapture", (last) => this.released(last), { once: true });
  }

  /** Zoom to the dragged area; a drag along one axis doesn't zoom the other. */
  released(event) {
    const [[x0, y0], [x1, y1]] = [this.from, this.placeOf(event)];
    this.from = null;
    this.box?.remove();
    if (Math.hypot(x1 - x0, y1 - y0) < DRAGGED) return;
    const along = (side, a, b) =>
      Math.abs(a - b) < 2 * DRAGGED ? this.ranges[side] : [this.value(side, a), this.value(side, b)].sort((p, q) => p - q);
    this.zoom({ x: along("x", x0, x1), y: along("y", y0, y1) });
  }

  select(x, y) {
    const [x0, y0] = this.from;
    this.box?.remove();
    this.box = svg("rect", { x: Math.min(x, x0), y: Math.min(y, y0), width: Math.abs(x - x0), height: Math.abs(y - y0), class: "chosen" });
    this.svg.append(this.box);
  }
}
