// A chart as SVG: axes, bands, lines, markers, error bars, names, zoom, a crosshair, and highlighted labels.
// These pages need only lines and points: a charting library would make up most of the size of a mailed page.

const NUMBER = new Intl.NumberFormat("en", { maximumSignificantDigits: 6 });
const COMPACT = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 5 });
const NEAR = 28; // pixels from the pointer to the nearest point
const DRAGGED = 6; // pixels: a shorter drag is a click
const NAMED_FROM = 460; // pixels: a narrower plot has a legend instead of names
const LINE = 15; // pixels between names
const LONGEST = 26; // letters of a name
const MOST_READ = 12; // lines of the readout

/** Return positions of ticks at 1, 2, 5, 10, …; of a wide range about `count` at powers of 10. */
function logTicks(low, high, count) {
  const fine = [];
  for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; power++) {
    fine.push(...[1, 2, 5].map((digit) => digit * 10 ** power));
  }
  const inside = fine.filter((tick) => tick >= low && tick <= high);
  const decades = inside.filter((tick) => Number.isInteger(Math.log10(tick)));
  if (inside.length <= count || decades.length < 2) return inside;
  const every = Math.ceil(decades.length / count);
  return decades.filter((_, i) => i % every === 0);
}

/** Return about `count` positions of ticks from low to high. */
function ticks(low, high, count, log) {
  const found = log ? logTicks(low, high, count) : [];
  if (found.length > 1) return found;
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((digit) => digit * power).find((each) => each >= rough);
  const [first, last] = [Math.ceil(low / step), Math.floor(high / step)];
  return Array.from({ length: last - first + 1 }, (_, i) => Number(((first + i) * step).toPrecision(12)));
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

/** Move positions apart to at least `gap`: downward, and upward where they exceed `high`. */
function spread(wanted, gap, low, high) {
  const placed = [...wanted];
  const order = wanted.map((_, i) => i).sort((a, b) => wanted[a] - wanted[b]);
  order.forEach((at, i) => (placed[at] = Math.max(wanted[at], i ? placed[order[i - 1]] + gap : low)));
  order.reverse();
  order.forEach((at, i) => (placed[at] = Math.min(placed[at], i ? placed[order[i - 1]] - gap : high)));
  return placed;
}

/** Return the item with the smallest distance; undefined if no distance is below `most`. */
function nearest(items, distance, most = Infinity) {
  let found;
  for (const item of items) {
    const away = distance(item);
    if (away < most) [found, most] = [item, away];
  }
  return found;
}

/** Return the box around two corners, with a margin. */
function around([x0, y0], [x1, y1], margin = 0) {
  const [left, right] = [Math.min(x0, x1) - margin, Math.max(x0, x1) + margin];
  return { left, right, top: Math.min(y0, y1) - margin, bottom: Math.max(y0, y1) + margin };
}

function overlap(one, other) {
  return one.left < other.right && other.left < one.right && one.top < other.bottom && other.top < one.bottom;
}

class Plot {
  /** Create an empty plot in an element of the page; a small one has few ticks, and doesn't react. */
  constructor(place, small = false) {
    this.place = place;
    this.small = small;
    this.id = `plot-${(Plot.count = (Plot.count ?? 0) + 1)}`;
    this.zoomed = null; // {x: [low, high], y: [low, high]}
    this.lit = ""; // the highlighted label
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

  /** Draw {x, y: {title, log}, shapes, levels, names, readings, view}. The zoom stays if `view` does. */
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

  render() {
    this.svg.replaceChildren();
    const names = this.layOut();
    this.drawAxes();
    this.drawShapes();
    this.nameEnds(names.filter((name) => name.end));
    this.namePoints(names.filter((name) => !name.end));
    this.findStops();
    this.leave();
  }

  /** Choose ranges, ticks, and margins for the size of the place; return the names that are written. */
  layOut() {
    const { place, scene, small } = this;
    const [width, height] = [place.clientWidth || 640, place.clientHeight || 300];
    Object.assign(this, { width, height, ranges: { x: this.range("x"), y: this.range("y") } });
    for (const [name, value] of Object.entries({ width, height, viewBox: `0 0 ${width} ${height}` })) {
      this.svg.setAttribute(name, value);
    }
    const names = small || width < NAMED_FROM ? [] : (scene.names ?? []);
    const count = (pixels) => (small ? 3 : Math.max(2, pixels));
    const y = ticks(...this.ranges.y, count(height / 60), scene.y.log);
    const letters = Math.max(0, ...y.map((tick) => widthOf(tickText(tick))));
    const ends = names.filter((name) => name.end).map((name) => widthOf(shortened(name.text, LONGEST)) + 20);
    const left = (small ? 8 : 36) + letters;
    const right = width - (small ? 6 : Math.max(12, ...ends));
    this.frame = { left, right, top: small ? 6 : 12, bottom: height - (small ? 20 : 46) };
    this.ticks = { x: ticks(...this.ranges.x, count((right - left) / 80), scene.x.log), y };
    return names;
  }

  /** Return the lowest and highest value of an axis, with some room. */
  range(side) {
    if (this.zoomed) return this.zoomed[side];
    const { shapes, levels, readings } = this.scene;
    const { log } = this.scene[side];
    // Intervals may end near 0 or below, which would stretch a logarithmic axis: it cuts them off.
    const parts = log ? [side] : side === "x" ? ["x", "x_low", "x_high"] : ["y", "low", "high"];
    let [low, high] = [Infinity, -Infinity];
    for (const shape of [...shapes, ...levels]) {
      for (const value of parts.flatMap((part) => shape[part] ?? [])) {
        if (!Number.isFinite(value) || (log && value <= 0)) continue;
        low = Math.min(low, value);
        high = Math.max(high, value);
      }
    }
    if (low > high) [low, high] = log ? [1, 10] : [0, 1];
    if (log) {
      const room = high > low ? (high / low) ** 0.05 : 1.3;
      return [low / room, high * room];
    }
    const share = side === "x" && readings ? 0.015 : 0.06;
    const room = high > low ? share * (high - low) : 0.1 * Math.abs(high) || 0.5;
    return [side === "x" ? Math.max(0, low - room) : low - room, high + room]; // no cost is negative
  }

  add(tag, attributes, text = "") {
    const element = svg(tag, attributes);
    element.textContent = text;
    this.svg.append(element);
    return element;
  }

  drawAxes() {
    const { left, right, top, bottom } = this.frame;
    for (const tick of this.ticks.x) {
      this.add("text", { x: this.at("x", tick), y: bottom + 16, "text-anchor": "middle" }, tickText(tick));
    }
    for (const tick of this.ticks.y) {
      const at = this.at("y", tick);
      this.add("line", { x1: left, x2: right, y1: at, y2: at, class: "gridline" });
      this.add("text", { x: left - 6, y: at + 4, "text-anchor": "end" }, tickText(tick));
    }
    this.add("path", { d: `M${left} ${bottom}H${right}`, class: "axis" });
    if (this.small) return;
    const { x, y } = this.scene;
    const [across, up] = [(left + right) / 2, (top + bottom) / 2];
    const title = { "text-anchor": "middle", class: "title x" };
    this.add("text", { ...title, x: across, y: this.height - 8 }, x.title);
    const turned = { class: "title y", transform: `rotate(-90 12 ${up})` };
    this.add("text", { ...title, ...turned, x: 12, y: up }, y.title);
  }

  drawShapes() {
    const { left, right, top, bottom } = this.frame;
    const area = { x: left, y: top, width: Math.max(0, right - left), height: Math.max(0, bottom - top) };
    this.add("clipPath", { id: this.id }).append(svg("rect", area));
    // Added to the page only when complete: otherwise each query of a color would compute all styles again.
    this.inside = svg("g", { "clip-path": `url(#${this.id})` });
    this.points = []; // markers with a text
    for (const { y, color, dash, text } of this.scene.levels) {
      const at = this.at("y", y);
      const line = { x1: left, x2: right, y1: at, y2: at, stroke: color, "stroke-dasharray": dash };
      this.inside.append(svg("line", { ...line, class: "level" }));
      if (text && !this.small) this.add("text", { x: left + 6, y: at - 4, class: "name" }, text);
    }
    for (const shape of this.scene.shapes) this.inside.append(this[shape.kind](shape));
    this.svg.append(this.inside);
  }

  // Shapes: each method returns an element.

  band({ x, low, high, color, label }) {
    const bottom = this.scene.y.log ? this.ranges.y[0] : -Infinity;
    const down = low.map((value) => Math.max(value ?? NaN, bottom));
    const around = this.path([...x, ...[...x].reverse()], [...high, ...down.reverse()]);
    return svg("path", { d: around ? `${around}Z` : "", fill: color, class: "band", "data-label": label });
  }

  line({ x, y, color, dash, label = "", name = "line" }) {
    const style = { stroke: color, "stroke-dasharray": dash || "none", class: name };
    return svg("path", { d: this.path(x, y, name === "front"), ...style, "data-label": label });
  }

  bars({ x, y, x_low, x_high, low, high, color, label }) {
    // A logarithmic axis has no 0.
    const ends = (side, from, to) => [Math.max(from, this.ranges[side][0]), to];
    const across = this.path(ends("x", x_low, x_high), [y, y]);
    const up = this.path([x, x], ends("y", low, high));
    return svg("path", { d: across + up, stroke: color, class: "bars", "data-label": label });
  }

  /** Draw markers; those of means are large (`main`). Markers with texts react to the pointer. */
  marks({ x, y, color, main = false, fill = "full", texts, label, name = "" }) {
    const group = svg("g", { class: `marks ${name}`, "data-label": label });
    const r = main ? 5.5 : 2.5;
    const d = `M${-r} 0a${r} ${r} 0 1 1 ${2 * r} 0a${r} ${r} 0 1 1 ${-2 * r} 0Z`;
    const style = { color, fill: color, stroke: color, "stroke-width": main ? 2 : 0, "data-fill": fill };
    x.forEach((value, i) => {
      const [px, py] = this.placeOf(value, y[i]);
      if (!Number.isFinite(px + py)) return;
      const transform = `translate(${px.toFixed(1)} ${py.toFixed(1)})`;
      group.append(svg("path", { d, transform, ...style }));
      if (texts) this.points.push({ px, py, text: texts[i], color, label, main });
    });
    return group;
  }

  /** Return the path through points; it breaks where a value is unknown. */
  path(xs, ys, isStep = false) {
    let drawn = "";
    let isConnected = false;
    xs.forEach((x, i) => {
      const place = this.placeOf(x, ys[i]);
      const isKnown = place.every(Number.isFinite);
      const [px, py] = place.map((pixels) => pixels.toFixed(1));
      const onward = isStep ? `H${px}V${py}` : `L${px} ${py}`;
      if (isKnown) drawn += isConnected ? onward : `M${px} ${py}`;
      isConnected = isKnown;
    });
    return drawn;
  }

  // Positions

  /** Return the position of a value, pixels; NaN where a logarithmic axis has none. */
  at(side, value) {
    const [low, high] = this.ranges[side];
    const { log } = this.scene[side];
    const along = log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
    const { left, right, top, bottom } = this.frame;
    return side === "x" ? left + along * (right - left) : bottom - along * (bottom - top);
  }

  /** Return the position of a point, pixels; NaN where a number is unknown. */
  placeOf(x, y) {
    return [this.at("x", x ?? NaN), this.at("y", y ?? NaN)];
  }

  /** Return the value at a position. */
  value(side, pixels) {
    const [low, high] = this.ranges[side];
    const { left, right, top, bottom } = this.frame;
    const along = side === "x" ? (pixels - left) / (right - left) : (bottom - pixels) / (bottom - top);
    return this.scene[side].log ? low * (high / low) ** along : low + along * (high - low);
  }

  // Names

  /** Write the names of lines right of their ends, moved apart, and joined to the ends. */
  nameEnds(names) {
    const { right, top, bottom } = this.frame;
    const heights = names.map((name) => Math.min(bottom, Math.max(top, this.at("y", name.y))));
    const places = spread(heights, LINE, top + 4, bottom - 4);
    names.forEach((name, i) => {
      const end = Math.min(right, this.at("x", name.x));
      if (!Number.isFinite(end + heights[i])) return;
      const d = `M${end + 2} ${heights[i]}L${right + 6} ${places[i]}H${right + 10}`;
      this.nameAt(name, right + 13, places[i] + 4).append(svg("path", { d, class: "leader" }));
    });
  }

  /** Write the names of points next to them, off lines if possible; leave out those without room. */
  namePoints(names) {
    const lines = this.obstacles();
    const means = this.points.filter((point) => point.main);
    const taken = means.map(({ px, py }) => around([px, py], [px, py], 5));
    const { left, right, top, bottom } = this.frame;
    for (const name of names) {
      const [px, py] = this.placeOf(name.x, name.y);
      const width = widthOf(shortened(name.text, LONGEST));
      const free = [10, -width - 10, -width / 2]
        .flatMap((dx) => [-7, -24, 10].map((dy) => [px + dx, py + dy]))
        .map(([x, y]) => around([x, y], [x + width, y + 14]))
        .filter((box) => box.left >= left && box.right <= right && box.top >= top && box.bottom <= bottom)
        .filter((box) => !taken.some((other) => overlap(box, other)));
      const box = free.find((each) => !lines.some((line) => overlap(each, line))) ?? free[0];
      if (!box) continue;
      taken.push(box);
      this.nameAt(name, box.left, box.top + 11);
    }
  }

  /** Return boxes around the intervals of points, and around the steps of the front. */
  obstacles() {
    const boxes = [];
    const add = (from, to) => boxes.push(around(this.placeOf(...from), this.placeOf(...to), 1));
    for (const { kind, name, x, y, low, high } of this.scene.shapes) {
      if (kind === "bars") add([x, low], [x, high]);
      if (name !== "front") continue;
      x.slice(1).forEach((next, i) => {
        add([x[i], y[i]], [next, y[i]]);
        add([next, y[i]], [next, y[i + 1]]);
      });
    }
    return boxes;
  }

  nameAt({ label, text, color }, x, y) {
    const group = this.add("g", { class: "end", "data-label": label, style: `color: ${color}` });
    group.append(this.add("text", { x, y }, shortened(text, LONGEST)));
    return group;
  }

  // Highlight one label, and read the values under the pointer; zoom by dragging.

  /** Highlight a label and dim the others; without a label, none. */
  light(label = "") {
    this.lit = label;
    for (const element of this.svg.querySelectorAll("[data-label]")) {
      element.classList.toggle("lit", element.dataset.label === this.lit);
    }
    this.svg.classList.toggle("dimmed", this.lit !== "");
  }

  leave() {
    this.crosshair?.remove();
    this.tip.hidden = true;
    this.cursor = null;
    this.light();
  }

  /** Collect what the pointer and the arrow keys reach: recorded positions of lines, or points. */
  findStops() {
    const { left, right } = this.frame;
    const recorded = new Set((this.scene.readings ?? []).flatMap((one) => one.x));
    const columns = new Map([...recorded].map((value) => [Math.round(this.at("x", value)), value]));
    const stops = this.scene.readings ? [...columns].map(([px, value]) => ({ px, value })) : this.points;
    const isInside = ({ px }) => px >= left - 1 && px <= right + 1;
    this.stops = stops.filter(isInside).sort((a, b) => a.px - b.px);
  }

  /** Return the position of an event, pixels. */
  pointer(event) {
    const box = this.svg.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  moved(event) {
    const [x, y] = this.pointer(event);
    if (this.from) return this.select(x, y);
    const isLines = Boolean(this.scene.readings);
    const away = ({ px, py }) => (isLines ? Math.abs(px - x) : Math.hypot(px - x, py - y));
    const named = event.target.closest(".end")?.dataset.label;
    const stop = named ? null : nearest(this.stops, away, isLines ? Infinity : NEAR);
    if (stop) this.read(stop, y);
    else this.leave();
    if (named) this.light(named);
  }

  /** Show a point, or the values of all lines at a recorded position. */
  read(stop, y = Infinity) {
    this.cursor = stop;
    if (!this.scene.readings) return this.tell(stop);
    const rows = this.valuesAt(stop);
    this.light(nearest(rows, (row) => Math.abs(row.py - y), NEAR)?.one.label);
    this.cross(rows.map(({ py, one }) => ({ px: stop.px, py, color: one.color })), stop.px);
    const lines = rows.slice(0, MOST_READ).map((row) => this.row(row));
    if (rows.length > lines.length) lines.push(make("div", {}, `${rows.length - lines.length} more`));
    const amount = rows[0]?.one.x_text?.[rows[0].i];
    const { title } = this.scene.x;
    const hasUnit = amount && title.includes("("); // the unit is in both
    const heading = hasUnit ? amount : `${amount ?? tickText(stop.value)} ${title}`;
    this.show(stop.px, y, make("strong", {}, heading), ...lines);
  }

  /** Return the values of the lines near a recorded position, the highest first. */
  valuesAt(stop) {
    const rows = [];
    for (const one of this.scene.readings) {
      const i = nearest(one.x.keys(), (each) => Math.abs(one.x[each] - stop.value));
      const [px, py] = this.placeOf(one.x[i], one.y[i]);
      if (Math.abs(px - stop.px) < NEAR && Number.isFinite(py)) rows.push({ one, i, py });
    }
    return rows.sort((a, b) => b.one.y[b.i] - a.one.y[a.i]);
  }

  /** Return the line of the readout with the value of a line, and its interval. */
  row({ one, i }) {
    const interval = one.low?.length ? ` [${one.low_text[i]}, ${one.high_text[i]}]` : "";
    const value = make("span", { class: "value" }, (one.y_text?.[i] ?? tickText(one.y[i])) + interval);
    const swatch = make("i", { class: "swatch", style: `background: ${one.color}` });
    const name = make("span", {}, swatch, shortened(one.text, 32));
    return make("div", { class: one.label === this.lit ? "row lit" : "row" }, name, value);
  }

  /** Show the text of a point: its first line names the run. */
  tell({ px, py, color, label, text: [name, ...lines] }) {
    this.light(label);
    this.cross([{ px, py, color }]);
    this.show(px, py, make("strong", {}, name), ...lines.map((line) => make("div", {}, line)));
  }

  /** Mark points by circles, and a position by a vertical line. */
  cross(points, px = null) {
    this.crosshair?.remove();
    this.crosshair = svg("g", { class: "crosshair" });
    const { top, bottom } = this.frame;
    if (px !== null) this.crosshair.append(svg("path", { d: `M${px} ${top}V${bottom}` }));
    const r = px === null ? 9 : 3.5;
    for (const { px: cx, py: cy, color } of points) {
      this.crosshair.append(svg("circle", { cx, cy, r, stroke: color }));
    }
    this.inside.append(this.crosshair);
  }

  /** Show the readout next to a position. */
  show(px, py, ...content) {
    this.tip.replaceChildren(...content);
    this.tip.hidden = false;
    const isRight = px > (this.frame.left + this.frame.right) / 2;
    this.tip.style.left = isRight ? "" : `${px + 14}px`;
    this.tip.style.right = isRight ? `${this.width - px + 14}px` : "";
    this.tip.style.top = `${Math.max(0, Math.min(py - 16, this.height - this.tip.offsetHeight))}px`;
  }

  typed(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return; // shortcuts of the browser
    const act = {
      ArrowLeft: () => this.step(-1),
      ArrowRight: () => this.step(1),
      ArrowUp: () => this.lightNext(-1),
      ArrowDown: () => this.lightNext(1),
      Escape: () => this.leave(),
      0: () => this.zoom(null),
    }[event.key];
    if (!act) return;
    act();
    event.preventDefault();
  }

  /** Move the crosshair to the next stop, or from outside to the first or last. */
  step(by) {
    const from = this.cursor ? this.stops.indexOf(this.cursor) : by > 0 ? -1 : this.stops.length;
    const next = this.stops[from + by] ?? this.cursor;
    if (next) this.read(next);
  }

  /** Highlight the next label; after the last one, none. */
  lightNext(by) {
    const labels = ["", ...new Set(this.scene.shapes.map((shape) => shape.label).filter(Boolean))];
    this.light(labels.at((labels.indexOf(this.lit) + by) % labels.length));
  }

  pressed(event) {
    if (event.button || event.pointerType === "touch") return this.moved(event);
    this.from = this.pointer(event);
    this.svg.setPointerCapture(event.pointerId);
    this.svg.addEventListener("lostpointercapture", (last) => this.released(last), { once: true });
  }

  /** Draw the dragged area. */
  select(x, y) {
    const { left, right, top, bottom } = around(this.from, [x, y]);
    const size = { width: right - left, height: bottom - top };
    this.box?.remove();
    this.box = this.add("rect", { x: left, y: top, ...size, class: "chosen" });
  }

  /** Zoom to the dragged area; a drag along one axis doesn't zoom the other. */
  released(event) {
    const [[x0, y0], [x1, y1]] = [this.from, this.pointer(event)];
    this.from = null;
    this.box?.remove();
    if (Math.hypot(x1 - x0, y1 - y0) < DRAGGED) return;
    const along = (side, ends) => {
      if (Math.abs(ends[0] - ends[1]) < 2 * DRAGGED) return this.ranges[side];
      return ends.map((pixels) => this.value(side, pixels)).sort((a, b) => a - b);
    };
    this.zoom({ x: along("x", [x0, x1]), y: along("y", [y0, y1]) });
  }
}
