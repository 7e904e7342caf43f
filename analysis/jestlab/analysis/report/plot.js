// A chart as SVG: axes, bands, lines, markers and error bars, with zoom and the text of the point under the pointer.
// These pages need only lines and points: a charting library would make up most of the size of a mailed page.

const NUMBER = new Intl.NumberFormat("en", { maximumSignificantDigits: 6 });
const COMPACT = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 5 });
const NEAR = 28; // pixels from the pointer to the point whose text is shown
const DRAGGED = 6; // pixels: a shorter drag is a click

/** Return the outline of a marker around the origin, as the data of an SVG path. */
const SYMBOLS = {
  circle: (r) => `M${-r} 0A${r} ${r} 0 1 1 ${r} 0A${r} ${r} 0 1 1 ${-r} 0Z`,
  square: (r) => polygon([[-r, -r], [r, -r], [r, r], [-r, r]], 0.9),
  diamond: (r) => polygon([[0, -r], [r, 0], [0, r], [-r, 0]], 1.25),
  "triangle-up": (r) => polygon([[0, -r], [r, 0.8 * r], [-r, 0.8 * r]], 1.15),
  "triangle-down": (r) => polygon([[0, r], [r, -0.8 * r], [-r, -0.8 * r]], 1.15),
  "triangle-left": (r) => polygon([[-r, 0], [0.8 * r, -r], [0.8 * r, r]], 1.15),
  "triangle-right": (r) => polygon([[r, 0], [-0.8 * r, -r], [-0.8 * r, r]], 1.15),
  cross: (r) => plus(r, 0),
  x: (r) => plus(r, Math.PI / 4),
  pentagon: (r) => regular(5, 1.15 * r),
  hexagon: (r) => regular(6, 1.15 * r),
  star: (r) => polygon(Array.from({ length: 10 }, (_, i) => turned([0, i % 2 ? -0.55 * r : -1.4 * r], (Math.PI * i) / 5))),
  "diamond-thin": (r) => polygon([[0, -1.3 * r], [0.75 * r, 0], [0, 1.3 * r], [-0.75 * r, 0]]),
  octagon: (r) => regular(8, 1.1 * r),
};

function polygon(corners, factor = 1) {
  return `M${corners.map((corner) => corner.map((c) => (factor * c).toFixed(2)).join(" ")).join("L")}Z`;
}

function regular(count, r) {
  return polygon(Array.from({ length: count }, (_, i) => turned([0, -r], (2 * Math.PI * i) / count)));
}

function plus(r, angle) {
  const a = 1.2 * r, b = 0.4 * r;
  const corners = [[-b, -a], [b, -a], [b, -b], [a, -b], [a, b], [b, b], [b, a], [-b, a], [-b, b], [-a, b], [-a, -b], [-b, -b]];
  return polygon(corners.map((corner) => turned(corner, angle)));
}

function turned([x, y], angle) {
  return [x * Math.cos(angle) - y * Math.sin(angle), x * Math.sin(angle) + y * Math.cos(angle)];
}

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

class Plot {
  /** Create an empty plot in an element of the page. */
  constructor(place) {
    this.place = place;
    this.zoomed = null; // {x: [low, high], y: [low, high]}
    this.tip = make("div", { class: "tip", hidden: true });
    this.svg = svg("svg", { "aria-hidden": "true" });
    place.replaceChildren(this.svg, this.tip);
    this.svg.addEventListener("pointermove", (event) => this.moved(event));
    this.svg.addEventListener("pointerleave", () => this.tell(null));
    this.svg.addEventListener("pointerdown", (event) => this.pressed(event));
    this.svg.addEventListener("dblclick", () => this.zoom(null));
    new ResizeObserver(() => this.scene && this.width !== place.clientWidth && this.render()).observe(place);
  }

  /** Draw a scene: {x, y: {title, log}, shapes, levels, view}. The zoom is kept if `view` is unchanged. */
  draw(scene) {
    if (this.scene?.view !== scene.view) this.zoomed = null;
    this.scene = scene;
    this.render();
  }

  zoom(to) {
    this.zoomed = to;
    this.render();
  }

  /** Return the lowest and highest value of an axis, with some room. */
  range(side) {
    if (this.zoomed) return this.zoomed[side];
    const log = this.scene[side].log;
    const values = [];
    for (const shape of this.scene.shapes) {
      const of = side === "x" ? [shape.x, shape.x_low, shape.x_high] : [shape.y, shape.low, shape.high];
      for (const each of of) if (each !== undefined) values.push(...[each].flat());
    }
    if (side === "y") values.push(...this.scene.levels.map((level) => level.y));
    const known = values.filter((value) => Number.isFinite(value) && (!log || value > 0));
    let low = known.reduce((a, b) => Math.min(a, b), Infinity);
    let high = known.reduce((a, b) => Math.max(a, b), -Infinity);
    if (!known.length) [low, high] = log ? [1, 10] : [0, 1];
    if (log) {
      const room = high > low ? (high / low) ** 0.05 : 1.3;
      return [low / room, high * room];
    }
    const room = high > low ? 0.05 * (high - low) : 0.1 * Math.abs(high) || 0.5;
    return [low - room, high + room];
  }

  render() {
    const width = (this.width = this.place.clientWidth || 640);
    const height = (this.height = Math.max(300, Math.min(460, 0.62 * width)));
    const { shapes, levels, x, y } = this.scene;
    this.svg.setAttribute("width", width);
    this.svg.setAttribute("height", height);
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.ranges = { x: this.range("x"), y: this.range("y") };
    const yTicks = ticks(...this.ranges.y, Math.max(2, height / 60), y.log);
    const letters = Math.max(...yTicks.map((tick) => tickText(tick).length));
    this.frame = { left: 34 + 7.5 * letters, right: width - 12, top: 12, bottom: height - 48 };
    const { left, right, top, bottom } = this.frame;
    const xTicks = ticks(...this.ranges.x, Math.max(2, (right - left) / 70), x.log);
    this.svg.replaceChildren();

    const clip = `clip-${this.place.closest("section").id}`;
    const area = { x: left, y: top, width: right - left, height: bottom - top };
    this.add("clipPath", { id: clip }).append(svg("rect", area));
    this.add("rect", { ...area, class: "ground" });
    for (const tick of xTicks) {
      const at = this.at("x", tick);
      this.add("line", { x1: at, x2: at, y1: top, y2: bottom, class: "grid" });
      this.add("line", { x1: at, x2: at, y1: bottom, y2: bottom + 5, class: "axis" });
      this.write(tickText(tick), { x: at, y: bottom + 18, "text-anchor": "middle" });
    }
    for (const tick of yTicks) {
      const at = this.at("y", tick);
      this.add("line", { x1: left, x2: right, y1: at, y2: at, class: "grid" });
      this.add("line", { x1: left - 5, x2: left, y1: at, y2: at, class: "axis" });
      this.write(tickText(tick), { x: left - 8, y: at + 4, "text-anchor": "end" });
    }
    this.add("path", { d: `M${left} ${top}V${bottom}H${right}`, class: "axis", fill: "none" });
    this.write(x.title, { x: (left + right) / 2, y: height - 8, "text-anchor": "middle", class: "title x" });
    const middle = (top + bottom) / 2;
    this.write(y.title, { x: 13, y: middle, "text-anchor": "middle", class: "title y", transform: `rotate(-90 13 ${middle})` });

    // Added to the page only when complete: otherwise each query of a color would compute all styles again.
    this.inside = svg("g", { "clip-path": `url(#${clip})` });
    this.points = [];
    for (const level of levels) {
      const at = this.at("y", level.y);
      const line = { x1: left, x2: right, y1: at, y2: at, stroke: level.colour, "stroke-dasharray": level.dash };
      this.inside.append(svg("line", { ...line, "stroke-width": 1.2, class: "level" }));
      if (level.text) this.write(level.text, { x: left + 6, y: at - 4, class: "name" });
    }
    this.paper = css("--paper");
    for (const shape of shapes) this.inside.append(this[shape.kind](shape));
    this.svg.append(this.inside);
    this.tell(null);
  }

  add(tag, attributes) {
    const element = svg(tag, attributes);
    this.svg.append(element);
    return element;
  }

  write(text, attributes) {
    this.add("text", attributes).textContent = text;
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
      const [px, py] = [this.at("x", x), this.at("y", ys[i])];
      const known = Number.isFinite(px) && Number.isFinite(py);
      if (known) drawn += !before ? `M${px.toFixed(1)} ${py.toFixed(1)}` : step ? `H${px.toFixed(1)}V${py.toFixed(1)}` : `L${px.toFixed(1)} ${py.toFixed(1)}`;
      before = known;
    });
    return drawn;
  }

  band({ x, low, high, colour, label }) {
    const around = this.path([...x, ...[...x].reverse()], [...high, ...[...low].reverse()]);
    return svg("path", { d: around ? `${around}Z` : "", fill: colour, opacity: 0.16, class: "band", "data-label": label });
  }

  line({ x, y, colour, dash, width = 2, step, label = "" }) {
    const style = { fill: "none", stroke: colour, "stroke-width": width, "stroke-dasharray": dash || "none" };
    return svg("path", { d: this.path(x, y, step), ...style, class: step ? "front" : "line", "data-label": label });
  }

  bars({ x, y, x_low, x_high, low, high, colour, label }) {
    const group = svg("g", { stroke: colour, "stroke-width": 1.5, class: "bars", "data-label": label });
    const [px, py] = [this.at("x", x), this.at("y", y)];
    if (high > low) {
      const [top, bottom] = [this.at("y", high), this.at("y", low)];
      group.append(svg("path", { d: `M${px} ${bottom}V${top}M${px - 4} ${bottom}h8M${px - 4} ${top}h8`, class: "of-y", "data-low": low, "data-high": high }));
    }
    if (x_high > x_low) {
      const [start, end] = [this.at("x", x_low), this.at("x", x_high)];
      group.append(svg("path", { d: `M${start} ${py}H${end}M${start} ${py - 4}v8M${end} ${py - 4}v8`, class: "of-x", "data-low": x_low, "data-high": x_high }));
    }
    return group;
  }

  marks({ x, y, colour, symbol, size, fill = "full", opacity = 1, texts, label }) {
    const group = svg("g", { class: "marks", "data-label": label, opacity });
    const outline = SYMBOLS[symbol](size / 2);
    const inside = fill === "full" ? colour : fill === "half" ? this.half(colour) : this.paper;
    x.forEach((value, i) => {
      const [px, py] = [this.at("x", value), this.at("y", y[i])];
      if (!Number.isFinite(px) || !Number.isFinite(py)) return;
      const place = { transform: `translate(${px.toFixed(1)} ${py.toFixed(1)})`, "data-fill": fill };
      const border = size > 9 ? { stroke: colour, "stroke-width": 2 } : {};
      group.append(svg("path", { d: outline, fill: inside, ...place, ...border }));
      this.points.push({ px, py, text: texts[i], colour });
    });
    return group;
  }

  /** Return a paint that fills only the left half. */
  half(colour) {
    const id = `half-${this.place.closest("section").id}-${colour.replace(/\W+/g, "-")}`;
    const gradient = this.add("linearGradient", { id });
    gradient.append(
      svg("stop", { offset: 0.5, "stop-color": colour }),
      svg("stop", { offset: 0.5, "stop-color": this.paper }),
    );
    return `url(#${id})`;
  }

  // Pointer events: show the text of the nearest point, and zoom by dragging.

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
    let nearest = null;
    let least = NEAR;
    for (const point of this.points) {
      const distance = Math.hypot(point.px - x, point.py - y);
      if (distance < least) [nearest, least] = [point, distance];
    }
    this.tell(nearest);
  }

  /** Show the text of a point: its first line names the run. */
  tell(point) {
    this.ring?.remove();
    this.tip.hidden = point === null;
    if (point === null) return;
    this.ring = svg("circle", { cx: point.px, cy: point.py, r: 9, fill: "none", stroke: point.colour, "stroke-width": 1.5 });
    this.inside.append(this.ring);
    const [name, ...lines] = point.text;
    this.tip.replaceChildren(make("strong", {}, name), ...lines.flatMap((line) => [make("br"), line]));
    const right = point.px > this.width / 2;
    this.tip.style.left = right ? "" : `${point.px + 14}px`;
    this.tip.style.right = right ? `${this.width - point.px + 14}px` : "";
    this.tip.style.top = `${Math.max(0, Math.min(point.py - 16, this.height - 80))}px`;
  }

  pressed(event) {
    if (event.button || event.pointerType === "touch") {
      this.moved(event);
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
