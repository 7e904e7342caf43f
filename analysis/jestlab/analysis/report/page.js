// Shared code: the page's data, elements, colors, tables, and the provenance of cells. Numbers in the data are
// already rounded and formatted.

let DATA = {}; // see `begin`

/** Make an element with attributes and children; strings become text, never markup. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

function svg(tag, attributes) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

function shortened(text, most = 60) {
  const letters = Array.from(text);
  return letters.length > most ? letters.slice(0, most - 1).join("") + "…" : text;
}

/** Make a table of texts; the first column names the rows, `left` lists the other columns that contain words. */
function table(headers, rows, left = []) {
  const side = (i) => ({ class: left.includes(i) ? "left" : null });
  const head = make("tr", {}, ...headers.map((text, i) => make("th", { scope: "col", ...side(i) }, text)));
  const body = rows.map(([first, ...rest]) =>
    make(
      "tr",
      {},
      make("th", { scope: "row" }, make("span", { class: "name" }, first)),
      ...rest.map((text, i) => make("td", side(i + 1), text)),
    ),
  );
  return make("table", {}, make("thead", {}, head), make("tbody", {}, ...body));
}

// Tables: chosen columns, rows sorted by a column, and one tab stop.

const choices = new Map(); // name of a table → {hidden: places of columns, column: place, descends}

/** Make a page, or results that replace those of a page, ready for use; earlier choices of the reader stay. */
function awaken(page) {
  for (const box of page.querySelectorAll("[data-table]")) {
    rove(box);
    const { hidden, column, descends } = choices.get(box.dataset.table) ?? {};
    if (hidden) hideColumns(page, box.dataset.table, hidden);
    if (column !== undefined) sortRows(box.querySelector("table"), column, descends);
  }
}

function hideColumns(page, name, hidden) {
  const [table] = page.querySelector(`[data-table="${CSS.escape(name)}"]`).getElementsByTagName("table");
  for (const row of table.rows) {
    for (const cell of row.cells) cell.classList.toggle("off", hidden.includes(String(cell.cellIndex)));
  }
  for (const box of page.querySelectorAll(`[id="columns-${CSS.escape(name)}"] input`)) {
    box.checked = !hidden.includes(box.value);
    box.toggleAttribute("checked", box.checked);
  }
}

document.addEventListener("change", (event) => {
  const menu = event.target.closest(".columns");
  if (!menu) return;
  const name = menu.id.slice("columns-".length);
  const hidden = [...menu.querySelectorAll("input:not(:checked)")].map((box) => box.value);
  choices.set(name, { ...choices.get(name), hidden });
  hideColumns(document, name, hidden);
});

/** Return the number that a text starts with, as in "≥ 1.5k" or "−2.0 [−3.1, −0.9]"; NaN if there is none. */
function numberIn(text) {
  const signs = { "−": "-", "∞": "Infinity", ",": "" };
  const scales = { k: 1e3, M: 1e6, B: 1e9, G: 1e9, T: 1e12, P: 1e15, E: 1e18 };
  const start = text.replace(/^[^\p{L}\d∞−]+/u, "").replace(/[−∞,]/g, (sign) => signs[sign]);
  const letter = start.match(/^[-\d.]+\s?([kMBGTPE])(?!\p{Ll})/u)?.[1];
  return Number.parseFloat(start) * (scales[letter] ?? 1);
}

/** Sort the rows of each section; rows set apart stay first, rows without a number come last, then totals. */
function sortRows(table, column, descends) {
  const header = table.querySelectorAll("thead tr:last-child th")[column];
  const isText = header.matches(".left");
  const compare = isText ? new Intl.Collator(undefined, { numeric: true }).compare : (a, b) => a - b;
  const key = (text) => (isText ? text : numberIn(text));
  for (const body of table.tBodies) {
    const rows = [...body.rows].filter((row) => !row.matches(".section, .apart"));
    const totals = table.matches('[data-table="costs"] table') ? rows.splice(-1) : [];
    const keyed = rows.map((row) => [key(row.cells[column].textContent.trim()), row]);
    keyed.sort(([a], [b]) => Number.isNaN(a) - Number.isNaN(b) || compare(...(descends ? [b, a] : [a, b])));
    body.append(...keyed.map(([, row]) => row), ...totals);
  }
  for (const each of table.querySelectorAll("th[aria-sort]")) each.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", descends ? "descending" : "ascending");
}

document.addEventListener("click", (event) => {
  const header = event.target.closest("button.sort")?.closest("th");
  if (!header) return;
  const { table: name } = boxOf(header).dataset;
  // Numbers descend at first, words ascend.
  const descends = header.ariaSort ? header.ariaSort === "ascending" : !header.matches(".left");
  choices.set(name, { ...choices.get(name), column: header.cellIndex, descends });
  sortRows(header.closest("table"), header.cellIndex, descends);
});

// A table is one stop of the Tab key: the link, button, or field that was used last. Arrow keys move between them.

const boxOf = (element) => element.closest("[data-table]") ?? element.closest("table");
const stops = (box) => [...box.querySelectorAll(box.matches("[data-table], [data-table] *") ? "button" : "a[href], button, input")];

function rove(box, at = 0) {
  for (const [i, each] of stops(box).entries()) each.tabIndex = i === at ? 0 : -1;
}

document.addEventListener("keydown", (event) => {
  const box = event.target.closest?.("a, button, input") && boxOf(event.target);
  const [dx, dy] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key] ?? [];
  if (!box || dx === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
  const visible = stops(box).filter((each) => each.checkVisibility());
  let next = visible[visible.indexOf(event.target) + (dx || dy)];
  const cell = event.target.closest("th, td");
  if (dy && cell) {
    const [rows, at] = [[...box.querySelectorAll("tr")], stops(cell).indexOf(event.target)];
    const own = rows.indexOf(cell.parentElement);
    const others = dy > 0 ? rows.slice(own + 1) : rows.slice(0, own).reverse();
    const cells = others.map((row) => row.cells[cell.cellIndex]).filter(Boolean);
    next = cells.map((each) => stops(each)[at] ?? stops(each)[0]).find(Boolean);
  }
  if (!next) return;
  event.preventDefault();
  next.focus();
});

document.addEventListener("focusin", (event) => {
  const box = boxOf(event.target);
  const at = box ? stops(box).indexOf(event.target) : -1;
  if (at >= 0) rove(box, at);
});

// The dialog that shows the provenance of a cell.

/** Make a heading, and a table in its own scroll box, so that the dialog does not scroll sideways. */
function titled(title, headers, rows, left) {
  const attributes = { class: "scroll", tabindex: "0", role: "region", "aria-label": title };
  return [make("h3", {}, title), make("div", attributes, table(headers, rows, left))];
}

async function open(button) {
  const dialog = document.getElementById("provenance");
  DATA.provenance ??= JSON.parse(await textOf("provenance.json"));
  const name = button.closest("[data-table]").dataset.table;
  const { row: key, column: columnKey } = button.dataset;
  const { columns, rows, published } = DATA.provenance.tables[name];
  const column = columns[columnKey];
  const row = rows[key];
  const print = published[key]?.[columnKey];
  const label = button.closest("li")?.dataset.label ?? button.closest("tr").querySelector("th .name").textContent.trim();
  document.getElementById("provenance-title").textContent = `${label} · ${column.header}`;
  const body = dialog.querySelector(".body");
  body.replaceChildren(make("p", { class: "value" }, button.textContent.trim()), make("p", {}, column.formula));
  if (print) body.append(make("h3", {}, "Published"), make("ul", { class: "notes" }, ...print.map((line) => make("li", {}, line))));
  else if (row) body.append(...madeFrom(column, columnKey, row, rows[row.baseline]), ...ran(row), ...differs(row));
  dialog.showModal();
  body.scrollTop = 0;
}

/** Show what each run contributed to the number. */
function madeFrom(column, key, row, baseline) {
  const own = column.inputs.filter((input) => row.values[input] && input !== key);
  const theirs = column.compares && baseline ? column.inputs.filter((input) => baseline.values[input]) : [];
  const result = row.values[key] ? [column.header] : [];
  const headers = ["run", "fingerprint", ...result, ...own, ...theirs.map((input) => `${input} of ${row.against}`)];
  const lines = row.runs.map((run, i) => {
    const other = baseline ? baseline.seeds.indexOf(row.seeds[i]) : -1;
    return [
      row.names[i],
      run.slice(0, 12),
      ...(result.length ? [row.values[key][i]] : []),
      ...own.map((input) => row.values[input][i]),
      ...theirs.map((input) => (other < 0 ? "—" : baseline.values[input][other])),
    ];
  });
  return titled("Computed from", headers, lines, [1]);
}

/** List all attempts at the runs, each run once: a claim may use two measures of one run. */
function ran(row) {
  const lines = row.runs.flatMap((run, i) => {
    if (row.runs.indexOf(run) < i) return [];
    const { state, directory, attempts } = DATA.provenance.runs[run];
    const whole = attempts.length ? attempts : [["—", "—", "—", "—", "—", "—"]];
    return whole.map((attempt) => [row.names[i], state, ...attempt, directory]);
  });
  const headers = ["run", "state", "attempt", "ended", "host, device", "code", "time (UTC)", "log", "folder"];
  return titled("Runs", headers, lines, [1, 3, 4, 5, 6, 7, 8]);
}

/** List the config keys whose values differ from the baseline's. */
function differs(row) {
  if (row.differences === null) return [];
  const title = `Config differences from ${row.against}`;
  const lines = Object.entries(row.differences).map(([key, [theirs, ours]]) => [key, ours ?? "—", theirs ?? "—"]);
  if (!lines.length) return [make("h3", {}, title), make("p", {}, "None.")];
  return titled(title, ["key", "this row", row.against], lines, [1, 2]);
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-row]");
  if (button) open(button);
  // The target of a click on the backdrop is the dialog itself.
  if (event.target.matches("dialog, dialog button.close")) event.target.closest("dialog").close();
});

/** Mark the entry of the table of contents whose section the reader has reached. */
function follow() {
  const links = [...document.querySelectorAll(".toc a")];
  const isReached = ({ hash }) => document.getElementById(hash.slice(1))?.getBoundingClientRect().top < 120;
  const here = links.findLast(isReached) ?? links[0];
  for (const link of links) link.classList.toggle("here", link === here);
}

document.addEventListener("scroll", follow, { passive: true });
follow();
