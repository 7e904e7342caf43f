// The provenance of cells, and what is copied.

const dialog = document.getElementById("provenance");

/** A table in a box of its own, so that the dialog does not scroll sideways. */
function boxed(title, headers, rows, left) {
  const box = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title });
  box.append(table(headers, rows, left));
  return box;
}

function open(button) {
  const name = button.closest("[data-table]").dataset.table;
  const { row: key, column: columnKey } = button.dataset;
  const { columns, rows, published } = DATA.tables[name];
  const column = columns[columnKey];
  const row = rows[key];
  const print = published[key]?.[columnKey];
  const label = button.closest("[data-label]")?.dataset.label ?? button.closest("tr").querySelector("th").textContent;
  document.getElementById("provenance-title").textContent = `${label} · ${column.header}`;
  const place = dialog.querySelector(".body");
  place.replaceChildren(make("p", { class: "value" }, button.textContent.trim()), make("p", {}, column.formula));
  if (print) place.append(make("h3", {}, "Published"), make("ul", { class: "notes" }, ...print.map((line) => make("li", {}, line))));
  else if (row) place.append(...madeFrom(column, columnKey, row, rows[row.baseline]), ...ran(row), ...differs(row));
  dialog.showModal();
  place.scrollTop = 0;
}

/** What each run gave to the number. */
function madeFrom(column, key, row, baseline) {
  const own = column.inputs.filter((input) => row.values[input] && input !== key);
  const theirs = column.compares && baseline ? column.inputs.filter((input) => baseline.values[input]) : [];
  const result = row.values[key] ? [column.header] : [];
  const named = row.labels ? ["label"] : [];
  const headers = ["seed", "run", ...named, ...result, ...own, ...theirs.map((input) => `${input} of ${row.baseline}`)];
  const lines = row.runs.map((run, i) => {
    const other = baseline ? baseline.seeds.indexOf(row.seeds[i]) : -1;
    return [
      String(row.seeds[i]),
      run.slice(0, 12),
      ...named.map(() => row.labels[i]),
      ...(result.length ? [row.values[key][i]] : []),
      ...own.map((input) => row.values[input][i]),
      ...theirs.map((input) => (other < 0 ? "—" : baseline.values[input][other])),
    ];
  });
  return [make("h3", {}, "Made from"), boxed("Made from", headers, lines, row.labels ? [1, 2] : [1])];
}

/** Every go at each of the runs. */
function ran(row) {
  const lines = row.runs.flatMap((run) => {
    const { name, state, directory, attempts } = DATA.runs[run];
    const whole = attempts.length ? attempts : [["—", "—", "—", "—", "—", "—", "—"]];
    return whole.map((attempt) => [name, state, ...attempt, directory]);
  });
  const headers = ["run", "state", "attempt", "ended", "host, device", "code", "begin (UTC)", "end (UTC)", "log", "folder"];
  return [make("h3", {}, "Runs"), boxed("Runs", headers, lines, [1, 3, 4, 5, 6, 7, 8, 9])];
}

/** Where the config is another than the baseline's. */
function differs(row) {
  if (row.differences === null) return [];
  const title = `Config, where it differs from ${row.baseline}`;
  if (!row.differences.length) return [make("h3", {}, title), make("p", {}, "Nowhere.")];
  return [make("h3", {}, title), boxed(title, ["key", "here", row.baseline], row.differences, [1, 2])];
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-row]");
  if (button) open(button);
  if (event.target === dialog) dialog.close(); // beside it
});
dialog.querySelector("button.close").addEventListener("click", () => dialog.close());

for (const button of document.querySelectorAll("button[data-copy]")) {
  button.hidden = !navigator.clipboard;
  button.addEventListener("click", async () => {
    const before = button.textContent;
    try {
      await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Not allowed here";
    }
    setTimeout(() => (button.textContent = before), 1500);
  });
}
