// Pages that go on: what has changed is asked for by a cursor, and written where the server wrote it before.

const TICK = 1000; // milliseconds between two questions, while the page is looked at
const GLYPHS = { PENDING: "○", BLOCKED: "◌", RUNNING: "▶", COMPLETED: "✓", FAILED: "✗", CANCELLED: "■", PREEMPTED: "↺", SKIPPED: "–" };
const MOST_KEPT = 4000; // points of a curve that a page keeps; it asks for the curves anew after that
const DUTY = 20; // what took long is followed by a rest that is so many times as long
const MOST_NAMED = 20; // lines whose names are listed; of more the pointer tells them
const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#7f6bd6", "#000000"];

const statusLine = document.getElementById("status");

/** Ask the server; null where nothing is new. What it says of an error is shown, and the page goes on. */
async function ask(url, headers = {}) {
  const answer = await fetch(url, { headers, credentials: "same-origin" });
  if (answer.status === 304) return null;
  if (!answer.ok) throw new Error((await answer.text()) || `the server answers ${answer.status}`);
  if (statusLine.dataset.wrong) {
    statusLine.textContent = "";
    delete statusLine.dataset.wrong;
  }
  return answer;
}

function tell(error) {
  statusLine.dataset.wrong = "1";
  statusLine.textContent = error instanceof TypeError ? "The server does not answer; this page tries again." : error.message;
}

/** Do something again and again as long as the page is looked at; slower while it fails. */
async function repeatedly(act, every = TICK) {
  let wait = every;
  for (;;) {
    await new Promise((done) => setTimeout(done, wait));
    if (document.hidden) await new Promise((done) => document.addEventListener("visibilitychange", done, { once: true }));
    try {
      if ((await act()) === false) return;
      wait = every;
    } catch (error) {
      tell(error);
      wait = Math.min(2 * wait, 30_000);
    }
  }
}

// Parts that the server writes in the same way: see parts.html.j2.

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

/** Lines of many runs over steps, to which points are added while they train. */
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
    const data = await (await ask(url)).json();
    this.series.clear();
    const series = data.series ?? Object.entries(data.curves).map(([name, { x, y }]) => ({ run: name, name, x, y }));
    for (const one of series) this.series.set(one.run, one);
    this.left = data.left ?? 0;
    this.draw();
  }

  add(points) {
    if (this.metric !== "loss") return;
    let isToLoad = false; // a run that has begun since, or a curve that has become long
    for (const [run, added] of Object.entries(points)) {
      const one = this.series.get(run);
      if (!one) {
        isToLoad ||= !this.left;
        continue;
      }
      // A run that went on from its checkpoint comes by the same steps again.
      while (one.x.length && one.x.at(-1) >= added[0][0]) {
        one.x.pop();
        one.y.pop();
      }
      for (const [x, y] of added) {
        one.x.push(x);
        one.y.push(y);
      }
      isToLoad ||= one.x.length > MOST_KEPT;
    }
    if (isToLoad) this.load().catch(tell);
    else this.drawSoon();
  }

  /** Draw what has come, but leave most of the time to whoever reads, clicks and types. */
  drawSoon() {
    this.waits ??= setTimeout(() => {
      this.waits = undefined;
      this.draw();
    }, Math.max(0, (this.rests ?? 0) - performance.now()));
  }

  draw() {
    const began = performance.now();
    this.redraw();
    const now = performance.now();
    this.rests = now + DUTY * (now - began);
  }

  redraw() {
    const lines = [...this.series.values()].filter((one) => one.x.length);
    const many = lines.length > 40;
    const shapes = lines.map((one, i) => ({ kind: "line", label: one.name, x: one.x, y: one.y.map((y) => y ?? NaN), colour: ink(COLOURS[i % COLOURS.length]), width: many ? 1 : 1.6 }));
    shapes.push(...lines.map((one, i) => ({ kind: "ends", label: one.name, x: one.x.at(-1), y: one.y.at(-1), colour: ink(COLOURS[i % COLOURS.length]) })));
    this.plot.draw({ x: { title: "steps", log: false }, y: { title: this.metric, log: false }, shapes, levels: [], view: this.metric });
    const chip = (i) => make("i", { class: "chip", "aria-hidden": "true", style: `background: ${ink(COLOURS[i % COLOURS.length])}` });
    const named = lines.length > 1 && lines.length <= MOST_NAMED ? lines : [];
    this.section.querySelector(".legend").replaceChildren(...named.map((one, i) => make("li", {}, chip(i), ` ${one.name}`)));
    const caption = this.section.querySelector(".caption");
    const shown = lines.length === 1 ? "" : `${lines.length} runs`;
    caption.textContent = lines.length ? [shown, this.left ? `${this.left} more are not drawn: find fewer above` : ""].filter(Boolean).join("; ") : "No run has recorded this yet.";
  }
}

/** The last point of a line, whose name the pointer finds. */
Plot.prototype.ends = function ends({ x, y, colour, label }) {
  const point = { kind: "marks", x: [x], y: [y ?? NaN], colour, symbol: "circle", size: 4, texts: [[label, `${y ?? "not a number"} at step ${x}`]], label };
  return this.marks(point);
};

// ---- pages

function followExperiments(table) {
  repeatedly(async () => {
    const { rows } = await (await ask("/live/experiments")).json();
    const shown = new Set();
    for (const row of table.querySelectorAll("tr[data-key]")) {
      shown.add(row.dataset.key);
      const now = rows[row.dataset.key];
      if (!now || row.dataset.says === JSON.stringify(now)) continue;
      row.dataset.says = JSON.stringify(now);
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
    const data = await (await ask(url)).json();
    section.dataset.cursor = data.cursor;
    if (data.anew) {
      location.reload();
      return false;
    }
    section.querySelector(".states").replaceChildren(...statesOf(data.counts));
    section.querySelector("[data-shows=sums]").textContent = data.sums;
    section.querySelector("[data-shows=why]").replaceChildren(...data.why.map((line) => make("li", {}, line)));
    for (const row of data.rows) {
      const place = section.querySelector(`tr[data-place="${row.place}"]`);
      if (place) writeCells(place, row);
    }
    if (Object.keys(data.points).length) curves?.add(data.points);
  });
}

function followResults(place) {
  let etag = "";
  let rests = 0;
  const look = async () => {
    if (performance.now() < rests) return;
    const answer = await ask(place.dataset.results, etag ? { "If-None-Match": etag } : {});
    if (answer === null) return;
    const text = await answer.text();
    if (document.querySelector("dialog[open]")) return; // somebody reads where a number comes from
    etag = answer.headers.get("etag") ?? "";
    const busy = await inSlices(replaceResults(place, text));
    rests = performance.now() + DUTY * busy;
  };
  look().catch(tell).finally(() => repeatedly(look, 5 * TICK));
}

function followRun(place, curves) {
  repeatedly(async () => {
    const { row } = await (await ask(place.dataset.from)).json();
    if (row) writeCells(place, row);
    if (row?.state !== "RUNNING") return;
    await curves?.load();
  }, 2 * TICK);
}

function followLog(place) {
  let to = "";
  const look = async () => {
    const url = new URL(place.dataset.log, location.href);
    if (to !== "") url.searchParams.set("from", to);
    const data = await (await ask(url)).json();
    if (data.why) return void (place.textContent = data.why);
    const atEnd = place.scrollTop + place.clientHeight >= place.scrollHeight - 4;
    if (to === "" || data.to < to) place.textContent = (data.cut ? "…\n" : "") + data.text;
    else if (data.text) place.append(data.text);
    if (to === "" || (data.text && atEnd)) place.scrollTop = place.scrollHeight;
    to = data.to;
  };
  look().catch(tell).finally(() => repeatedly(look, 2 * TICK));
}

const curves = [...document.querySelectorAll("section[data-curves]")].map((section) => {
  const found = new Curves(section);
  found.ready.catch(tell);
  return found;
});
for (const place of document.querySelectorAll("[data-live=experiments]")) followExperiments(place);
for (const place of document.querySelectorAll("[data-live=experiment]")) followExperiment(place, curves[0]);
for (const place of document.querySelectorAll("[data-live=run]")) followRun(place, curves[0]);
for (const place of document.querySelectorAll("[data-results]")) followResults(place);
for (const place of document.querySelectorAll("[data-log]")) followLog(place);
for (const place of document.querySelectorAll("[data-retry]")) setTimeout(() => location.reload(), 5 * TICK);
DARK.addEventListener("change", () => curves.forEach((each) => each.draw()));

// Who acts is remembered, and what cannot be undone is asked for twice.
for (const field of document.querySelectorAll("input[name=by]")) field.value = localStorage.getItem("by") ?? "";
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.dataset.ask && !confirm(form.dataset.ask)) return event.preventDefault();
  if (form.elements.by?.value) localStorage.setItem("by", form.elements.by.value);
});
