// Live pages: request the page again, and replace the elements with `data-live` whose content has changed.

const TICK = 1000; // minimum time between two requests in milliseconds, while the page is visible
const DUTY = 20; // pause after slow work, as a multiple of its duration

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

// ---- curves

/** Lines of many runs over steps. */
class Curves {
  constructor(section) {
    this.section = section;
    this.chart = new Chart(section);
    this.series = new Map();
    this.choice = section.querySelector("select[name=metric]");
    this.choice?.addEventListener("change", () => this.load());
    this.pauseEnd = 0;
    this.ready = this.load();
  }

  get metric() {
    return this.choice?.value || "loss";
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
    url.searchParams.set("metric", this.metric);
    const data = await (await request(url)).json();
    this.series.clear();
    const series = data.series ?? Object.entries(data.curves).map(([name, { x, y }]) => ({ run: name, name, x, y, color: "var(--accent)" }));
    for (const one of series) this.series.set(one.run, one);
    this.left = data.left ?? 0;
    this.draw();
  }

  draw() {
    const lines = [...this.series.values()].filter((one) => one.x.length);
    this.chart.show(runsFigure(this.metric, lines));
    const shown = lines.length === 1 ? "" : `${lines.length} runs`;
    const caption = this.section.querySelector(".caption");
    caption.textContent = lines.length ? [shown, this.left ? `${this.left} more not shown; filter above to narrow` : ""].filter(Boolean).join("; ") : "No data yet.";
  }
}

// ---- pages

function followPage(curves) {
  let isStale = false; // whether the curves are older than the page
  repeatedly(async () => {
    const start = performance.now();
    const text = await (await request(location.href)).text();
    const found = new DOMParser().parseFromString(text, "text/html").querySelectorAll("[data-live]");
    const shown = document.querySelectorAll("[data-live]");
    if (found.length !== shown.length) { // the server now has different runs or experiments
      location.reload();
      return false;
    }
    const now = new Map([...found].map((each) => [each.dataset.live, each]));
    for (const each of shown) {
      const other = now.get(each.dataset.live);
      if (!other || other.innerHTML === each.innerHTML) continue;
      each.replaceChildren(...other.childNodes);
      isStale = true;
    }
    if (isStale && curves) isStale = !(await curves.loadSoon());
    await new Promise((done) => setTimeout(done, performance.now() - start));
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
    if (document.querySelector("dialog[open]")) return; // don't replace a number while a dialog explains it
    etag = response.headers.get("etag") ?? "";
    const busy = await inSlices(replaceResults(place, text));
    pauseEnd = performance.now() + DUTY * busy;
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
    if (!response.headers.has("start")) return void (place.textContent = await response.text()); // no log
    const start = Number(response.headers.get("start"));
    const bytes = await response.arrayBuffer();
    const atEnd = place.scrollTop + place.clientHeight >= place.scrollHeight - 4;
    if (start !== to) {
      decoder = new TextDecoder(); // keeps the first bytes of a character whose other bytes are in the next part
      place.textContent = start > 0 ? "…\n" : "";
    }
    place.append(decoder.decode(bytes, { stream: true }));
    if (start !== to || (bytes.byteLength > 0 && atEnd)) place.scrollTop = place.scrollHeight;
    to = start + bytes.byteLength;
  };
  update().catch(showError).finally(() => repeatedly(update, 2 * TICK));
}

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
for (const field of document.querySelectorAll("input[name=by]")) field.value = localStorage.getItem("by") ?? "";
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.dataset.ask && !confirm(form.dataset.ask)) return event.preventDefault();
  if (form.elements.by?.value) localStorage.setItem("by", form.elements.by.value);
});
