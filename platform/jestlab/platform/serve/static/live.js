// Live pages: request the changes since a cursor, and update what the server has rendered.

const TICK = 1000; // milliseconds between two requests, while the page is visible
const GLYPHS = { PENDING: "○", BLOCKED: "◌", RUNNING: "▶", COMPLETED: "✓", FAILED: "✗", CANCELLED: "■", PREEMPTED: "↺", SKIPPED: "–" };
const MOST_KEPT = 4000; // points of a curve on the page, after which it reloads thinned curves
const DUTY = 20; // pause after slow work, as a multiple of its duration
const MOST_NAMED = 20; // lines in the legend; with more, the pointer shows names
const COLORS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#7f6bd6", "#000000"];

const statusLine = document.getElementById("status");

/** Send a request; null if nothing has changed. */
async function request(url, headers = {}) {
  const response = await fetch(url, { headers, credentials: "same-origin" });
  if (response.status === 304) return null;
  if (!response.ok) throw new Error((await response.text()) || `HTTP status ${response.status}`);
  if (statusLine.dataset.error) {
    statusLine.textContent = "";
    delete statusLine.dataset.error;
  }
  return response;
}

function showError(error) {
  statusLine.dataset.error = "1";
  statusLine.textContent = error instanceof TypeError ? "The server does not answer; retrying." : error.message;
}

/** Repeat an action while the page is visible, more slowly while it fails. */
async function repeatedly(act, every = TICK) {
  let wait = every;
  for (;;) {
    await new Promise((done) => setTimeout(done, wait));
    if (document.hidden) await new Promise((done) => document.addEventListener("visibilitychange", done, { once: true }));
    try {
      if ((await act()) === false) return;
      wait = every;
    } catch (error) {
      showError(error);
      wait = Math.min(2 * wait, 30_000);
    }
  }
}

// Parts that parts.html.j2 renders on the server.

function stateOf(name) {
  return make("span", { class: `state ${name}` }, `${GLYPHS[name]} ${name.toLowerCase()}`);
}

function statesOf(counts) {
  const bar = make("span", { class: "bar", "aria-hidden": "true" });
  const words = make("span", { class: "counts" });
  for (const [name, count] of Object.entries(counts)) {
    const part = make("i", { class: name });
    part.style.flexGrow = count;
    bar.append(part);
    words.append(make("span", { class: `state ${name}` }, `${GLYPHS[name]} ${count.toLocaleString("en")} ${name.toLowerCase()}`), " ");
  }
  return [bar, " ", words];
}

function writeCells(place, row) {
  for (const cell of place.querySelectorAll("[data-cell]")) {
    const name = cell.dataset.cell;
    if (name === "state") cell.replaceChildren(stateOf(row.state));
    else if (name === "progress") {
      const bar = row.share === null ? null : make("progress", { max: 1, value: row.share, "aria-label": "progress" });
      cell.replaceChildren(...[bar, bar && " ", make("span", {}, row.step)].filter((each) => each !== null));
    } else if (cell.textContent !== row[name]) cell.textContent = row[name];
  }
}

// ---- curves

/** Lines of many runs over steps, extended while they train. */
class Curves {
  constructor(section) {
    this.section = section;
    this.plot = new Plot(section.querySelector(".plot"));
    this.series = new Map();
    this.choice = section.querySelector("select[name=metric]");
    this.choice?.addEventListener("change", () => this.load());
    this.ready = this.load();
  }

  get metric() {
    return this.choice?.value || "loss";
  }

  async load() {
    const url = new URL(this.section.dataset.curves, location.href);
    url.searchParams.set("metric", this.metric);
    const data = await (await request(url)).json();
    this.series.clear();
    const series = data.series ?? Object.entries(data.curves).map(([name, { x, y }]) => ({ run: name, name, x, y }));
    for (const one of series) this.series.set(one.run, one);
    this.left = data.left ?? 0;
    this.draw();
  }

  add(points) {
    if (this.metric !== "loss") return;
    let mustLoad = false; // for a new run, or a curve that is too long
    for (const [run, added] of Object.entries(points)) {
      const one = this.series.get(run);
      if (!one) {
        mustLoad ||= !this.left;
        continue;
      }
      // A run that resumed from a checkpoint repeats steps.
      while (one.x.length && one.x.at(-1) >= added[0][0]) {
        one.x.pop();
        one.y.pop();
      }
      for (const [x, y] of added) {
        one.x.push(x);
        one.y.push(y);
      }
      mustLoad ||= one.x.length > MOST_KEPT;
    }
    if (mustLoad) this.load().catch(showError);
    else this.drawSoon();
  }

  /** Draw new points, but leave most of the time to the user. */
  drawSoon() {
    this.timer ??= setTimeout(() => {
      this.timer = undefined;
      this.draw();
    }, Math.max(0, (this.pauseEnd ?? 0) - performance.now()));
  }

  draw() {
    const start = performance.now();
    this.redraw();
    const now = performance.now();
    this.pauseEnd = now + DUTY * (now - start);
  }

  redraw() {
    const lines = [...this.series.values()].filter((one) => one.x.length);
    const many = lines.length > 40;
    const shapes = lines.map((one, i) => ({ kind: "line", label: one.name, x: one.x, y: one.y.map((y) => y ?? NaN), colour: ink(COLORS[i % COLORS.length]), width: many ? 1 : 1.6 }));
    shapes.push(...lines.map((one, i) => ({ kind: "ends", label: one.name, x: one.x.at(-1), y: one.y.at(-1), colour: ink(COLORS[i % COLORS.length]) })));
    this.plot.draw({ x: { title: "steps", log: false }, y: { title: this.metric, log: false }, shapes, levels: [], view: this.metric });
    const chip = (i) => make("i", { class: "chip", "aria-hidden": "true", style: `background: ${ink(COLORS[i % COLORS.length])}` });
    const named = lines.length > 1 && lines.length <= MOST_NAMED ? lines : [];
    this.section.querySelector(".legend").replaceChildren(...named.map((one, i) => make("li", {}, chip(i), ` ${one.name}`)));
    const caption = this.section.querySelector(".caption");
    const shown = lines.length === 1 ? "" : `${lines.length} runs`;
    caption.textContent = lines.length ? [shown, this.left ? `${this.left} more not shown; filter above to narrow` : ""].filter(Boolean).join("; ") : "No data yet.";
  }
}

/** The last point of a line, with a label for the pointer. */
Plot.prototype.ends = function ends({ x, y, colour, label }) {
  const point = { kind: "marks", x: [x], y: [y ?? NaN], colour, symbol: "circle", size: 4, texts: [[label, `${y ?? "not a number"} at step ${x}`]], label };
  return this.marks(point);
};

// ---- pages

function followExperiments(table) {
  repeatedly(async () => {
    const { rows } = await (await request("/live/experiments")).json();
    const shown = new Set();
    for (const row of table.querySelectorAll("tr[data-key]")) {
      shown.add(row.dataset.key);
      const now = rows[row.dataset.key];
      if (!now || row.dataset.content === JSON.stringify(now)) continue;
      row.dataset.content = JSON.stringify(now);
      row.querySelector(".states").replaceChildren(...statesOf(now.counts));
      row.querySelector(".launched").textContent = now.launched;
    }
    if (Object.keys(rows).some((key) => !shown.has(key))) location.reload();
  }, 2 * TICK);
}

function followExperiment(section, curves) {
  repeatedly(async () => {
    const url = new URL(section.dataset.from, location.href);
    url.searchParams.set("since", section.dataset.cursor);
    const data = await (await request(url)).json();
    section.dataset.cursor = data.cursor;
    if (data.reset) {
      location.reload();
      return false;
    }
    section.querySelector(".states").replaceChildren(...statesOf(data.counts));
    section.querySelector("[data-shows=totals]").textContent = data.totals;
    section.querySelector("[data-shows=waits]").replaceChildren(...data.waits.map((line) => make("li", {}, line)));
    for (const row of data.rows) {
      const place = section.querySelector(`tr[data-index="${row.index}"]`);
      if (place) writeCells(place, row);
    }
    if (Object.keys(data.points).length) curves?.add(data.points);
  });
}

function followResults(place) {
  let etag = "";
  let pauseEnd = 0;
  const update = async () => {
    if (performance.now() < pauseEnd) return;
    const response = await request(place.dataset.results, etag ? { "If-None-Match": etag } : {});
    if (response === null) return;
    const text = await response.text();
    if (document.querySelector("dialog[open]")) return; // a dialog explains a number
    etag = response.headers.get("etag") ?? "";
    const busy = await inSlices(replaceResults(place, text));
    pauseEnd = performance.now() + DUTY * busy;
  };
  update().catch(showError).finally(() => repeatedly(update, 5 * TICK));
}

function followRun(place, curves) {
  repeatedly(async () => {
    const { row } = await (await request(place.dataset.from)).json();
    if (row) writeCells(place, row);
    if (row?.state !== "RUNNING") return;
    await curves?.load();
  }, 2 * TICK);
}

function followLog(place) {
  let to = "";
  const update = async () => {
    const url = new URL(place.dataset.log, location.href);
    if (to !== "") url.searchParams.set("from", to);
    const data = await (await request(url)).json();
    if (data.why) return void (place.textContent = data.why);
    const atEnd = place.scrollTop + place.clientHeight >= place.scrollHeight - 4;
    if (to === "" || data.to < to) place.textContent = (data.cut ? "…\n" : "") + data.text;
    else if (data.text) place.append(data.text);
    if (to === "" || (data.text && atEnd)) place.scrollTop = place.scrollHeight;
    to = data.to;
  };
  update().catch(showError).finally(() => repeatedly(update, 2 * TICK));
}

const curves = [...document.querySelectorAll("section[data-curves]")].map((section) => {
  const found = new Curves(section);
  found.ready.catch(showError);
  return found;
});
for (const place of document.querySelectorAll("[data-live=experiments]")) followExperiments(place);
for (const place of document.querySelectorAll("[data-live=experiment]")) followExperiment(place, curves[0]);
for (const place of document.querySelectorAll("[data-live=run]")) followRun(place, curves[0]);
for (const place of document.querySelectorAll("[data-results]")) followResults(place);
for (const place of document.querySelectorAll("[data-log]")) followLog(place);
for (const place of document.querySelectorAll("[data-retry]")) setTimeout(() => location.reload(), 5 * TICK);
DARK.addEventListener("change", () => curves.forEach((each) => each.draw()));

// Remember the author, and confirm actions that cannot be undone.
for (const field of document.querySelectorAll("input[name=by]")) field.value = localStorage.getItem("by") ?? "";
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.dataset.ask && !confirm(form.dataset.ask)) return event.preventDefault();
  if (form.elements.by?.value) localStorage.setItem("by", form.elements.by.value);
});
