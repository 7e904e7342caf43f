// Live pages: request the page again, and replace the elements with `data-live` whose content has changed.

const TICK = 1000; // minimum time between two requests in milliseconds, while the page is visible
const DUTY = 20; // pause after slow work, as a multiple of its duration
const MOST_SMALL = 12; // maximum number of small charts

const statusLine = document.getElementById("status");

/** Send a request; return null if nothing has changed, throw the server's message on an error. */
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
  const isAway = error instanceof TypeError;
  statusLine.textContent = isAway ? "The server does not answer; retrying." : error.message;
}

/** Repeat an action while the page is visible, more slowly while it fails. */
async function repeatedly(act, every = TICK) {
  let wait = every;
  for (;;) {
    await new Promise((done) => setTimeout(done, wait));
    while (document.hidden) await new Promise((done) => setTimeout(done, TICK));
    try {
      if ((await act()) === false) return;
      wait = every;
    } catch (error) {
      showError(error);
      wait = Math.min(2 * wait, 30_000);
    }
  }
}

// ---- charts

/** Small charts of several metrics, and a large one; several runs are lines in the same charts. */
class Curves {
  constructor(section) {
    this.section = section;
    Object.assign(this, { titles: { loss: "loss" }, names: [], metric: "loss" });
    Object.assign(this, { left: 0, data: {}, pauseEnd: 0 });
    this.chart = new Chart(section);
    this.grid = section.querySelector(".grid");
    this.choice = section.querySelector("select[name=metric]");
    this.choice?.addEventListener("change", () => this.choose(this.choice.value));
    this.ready = this.load();
  }

  /** Show a metric in the large chart. */
  choose(name) {
    this.metric = this.choice.value = name;
    if (name in this.data) this.draw();
    else this.load().catch(showError);
  }

  /** Load the curves after a change, but leave most of the time to the user and the server. */
  async loadSoon() {
    if (performance.now() < this.pauseEnd) return false;
    const start = performance.now();
    await this.load();
    this.pauseEnd = performance.now() + DUTY * (performance.now() - start);
    return true;
  }

  async load() {
    const url = new URL(this.section.dataset.curves, location.href);
    url.searchParams.append("metric", this.metric); // the server adds the small charts
    const { charts, titles = this.titles, left } = await (await request(url)).json();
    Object.assign(this, { data: charts, titles, left });
    if (this.grid && Object.keys(titles).join("\n") !== this.names.join("\n")) this.list();
    this.draw();
  }

  /** Show the metrics of the runs, which may log new ones at any time. */
  list() {
    this.names = Object.keys(this.titles);
    if (!this.names.includes(this.metric)) [this.metric] = this.names;
    this.grid.replaceChildren();
    this.small = new SmallCharts(this.grid, (name) => this.choose(name));
    const options = this.names.map((value) => make("option", { value }, this.titles[value]));
    this.choice.replaceChildren(...options);
    this.choice.value = this.metric;
  }

  /** Return the lines of a metric. */
  lines(name) {
    const known = (x) => x.map((value) => value ?? NaN);
    const ofAxes = (x) => Object.fromEntries(Object.entries(x).map(([axis, one]) => [axis, known(one)]));
    const title = this.titles[name];
    return (this.data[name] ?? [])
      .filter((one) => one.y.length)
      .map((one) => ({ label: title, name: title, color: "var(--accent)", ...one, y: known(one.y) }))
      .map((one) => ({ ...one, x: Array.isArray(one.x) ? known(one.x) : ofAxes(one.x) }));
  }

  draw() {
    const cards = this.names.slice(0, MOST_SMALL).map((name) => {
      const series = this.lines(name).map((one) => ({ ...one, x: one.x.steps ?? one.x }));
      const value = series.length === 1 ? tickText(Number(series[0].y.at(-1).toPrecision(4))) : "";
      return { name, title: this.titles[name], value, series };
    });
    this.small?.draw(cards, this.metric);
    const lines = this.lines(this.metric);
    this.chart.show(runsFigure(this.titles[this.metric], lines));
    const runs = lines.length > 1 ? `${lines.length} runs` : "";
    const more = this.left ? `${this.left} more not shown; filter above to narrow` : "";
    const caption = this.section.querySelector(".caption");
    caption.textContent = lines.length ? [runs, more].filter(Boolean).join("; ") : "No data yet.";
  }
}

// ---- pages

/** Return the elements with `data-live` of a document, by their names. */
function liveParts(page) {
  return new Map([...page.querySelectorAll("[data-live]")].map((each) => [each.dataset.live, each]));
}

/** Request the page, and update its live parts; return whether one has changed. */
async function refresh() {
  const { href } = location;
  const text = await (await request(href, { live: "1" })).text();
  if (href !== location.href) return false; // another part was opened meanwhile
  const page = new DOMParser().parseFromString(text, "text/html");
  const [shown, fresh] = [liveParts(document), liveParts(page)];
  if ([...shown.keys()].join("\n") !== [...fresh.keys()].join("\n")) {
    location.reload(); // the server now has different experiments
    return false;
  }
  for (const [name, each] of shown) {
    if (each.matches("table")) rove(fresh.get(name), stops(each).findIndex((one) => one.tabIndex === 0));
  }
  const before = document.activeElement;
  const changed = [...shown].filter(([name, each]) => !each.isEqualNode(fresh.get(name)));
  for (const [name, each] of changed) become(each, fresh.get(name));
  for (const box of boxes()) box.checked = ticked.has(box.value);
  if (!before.isConnected) document.querySelector("table[data-live] [tabindex='0']")?.focus();
  return changed.length > 0;
}

function followPage(curves) {
  let isStale = false; // whether the curves are older than the page
  repeatedly(async () => {
    const start = performance.now();
    isStale = (await refresh()) || isStale;
    if (isStale && curves) isStale = !(await curves.loadSoon());
    await new Promise((done) => setTimeout(done, performance.now() - start));
  });
}

// Ticked runs stay ticked when their rows move, and are compared even if another page of the table has them.
const boxes = () => document.querySelectorAll("input[name=run]");
const ticked = new Set();
function followTicks() {
  for (const { checked, value } of boxes()) ticked[checked ? "add" : "delete"](value);
  const compare = document.querySelector("form[action='/compare'] .head button");
  if (compare) compare.disabled = ticked.size === 0;
}
followTicks();
document.addEventListener("change", followTicks);
addEventListener("pageshow", followTicks); // after Back, the browser restores ticks
document.addEventListener("formdata", ({ formData, target }) => {
  if (!target.matches("[action='/compare']")) return;
  const shown = new Set([...boxes()].map((box) => box.value));
  for (const run of ticked) if (!shown.has(run)) formData.append("run", run);
});

// Links that change a live part, such as the order of a table, are followed without loading the whole page.
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-part]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  history.replaceState(null, "", link.href);
  refresh().catch(showError);
});

// Fields that filter the rows of a table.
document.addEventListener("input", (event) => {
  const { filter } = event.target.dataset;
  if (filter === undefined) return;
  const words = event.target.value.toLowerCase().split(/\s+/);
  for (const row of document.querySelectorAll(`#${filter} tbody tr`)) {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every((word) => text.includes(word));
  }
});

function followResults(place) {
  let { etag = "" } = place.dataset;
  if (etag) begin(); // the page has the results already
  let pauseEnd = 0;
  const update = async () => {
    if (performance.now() < pauseEnd) return;
    const response = await request(place.dataset.results, etag ? { "If-None-Match": etag } : {});
    if (response === null) return;
    const text = await response.text();
    if (document.querySelector("dialog[open], :popover-open")) return; // in use
    etag = response.headers.get("etag") ?? "";
    const start = performance.now();
    await replaceResults(place, text);
    pauseEnd = performance.now() + DUTY * (performance.now() - start);
  };
  update().catch(showError).finally(() => repeatedly(update, 5 * TICK));
}

function followLog(place) {
  let to = null;
  let decoder;
  const update = async () => {
    const url = new URL(place.dataset.log, location.href);
    if (to !== null) url.searchParams.set("from", to);
    const response = await request(url);
    if (!response.headers.has("start")) {
      place.textContent = await response.text(); // no log
      return;
    }
    const start = Number(response.headers.get("start"));
    const bytes = await response.arrayBuffer();
    const atEnd = place.scrollTop + place.clientHeight >= place.scrollHeight - 4;
    if (start !== to) {
      decoder = new TextDecoder(); // keeps the first bytes of a character that is not complete yet
      place.textContent = start > 0 ? "…\n" : "";
    }
    place.append(decoder.decode(bytes, { stream: true }));
    if (start !== to || (bytes.byteLength > 0 && atEnd)) place.scrollTop = place.scrollHeight;
    to = start + bytes.byteLength;
  };
  update().catch(showError).finally(() => repeatedly(update, 2 * TICK));
}

for (const table of document.querySelectorAll("table:not([data-table] *)")) rove(table);
const curves = [...document.querySelectorAll("section[data-curves]")].map((section) => {
  const found = new Curves(section);
  found.ready.catch(showError);
  return found;
});
if (document.querySelector("[data-live]")) followPage(curves[0]);
for (const place of document.querySelectorAll("[data-results]")) followResults(place);
for (const place of document.querySelectorAll("[data-log]")) followLog(place);
for (const place of document.querySelectorAll("[data-retry]")) setTimeout(() => location.reload(), 5 * TICK);

// Remember the author, and confirm actions that cannot be undone.
for (const field of document.querySelectorAll("input[name=by]")) {
  field.value = localStorage.getItem("by") ?? "";
}
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.dataset.ask && !confirm(form.dataset.ask)) return event.preventDefault();
  if (form.elements.by?.value) localStorage.setItem("by", form.elements.by.value);
});
