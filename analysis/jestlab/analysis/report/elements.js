// What the page is made of: its data, elements, colours, tables. All texts and numbers come rounded and ready in the
// data; nothing is fetched.

const DATA = JSON.parse(document.getElementById("data").textContent);
const DARK = window.matchMedia("(prefers-color-scheme: dark)");

/** An element with attributes and children; texts stay texts, whatever is in them. */
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

/** A text as Plotly shows it letter by letter: it would read tags and entities. */
function literal(text) {
  return text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

function shortened(text, most = 60) {
  const letters = Array.from(text);
  return letters.length > most ? letters.slice(0, most - 1).join("") + "…" : text;
}

function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** A series' colour, on dark ground lighter: what is black in print is almost white there. */
function ink(colour) {
  if (!DARK.matches) return colour;
  if (colour === "#000000") return "#f2f2f2";
  const channels = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  return "#" + channels.map((c) => Math.round(c + 0.35 * (255 - c)).toString(16).padStart(2, "0")).join("");
}

function faint(colour, opacity) {
  const channels = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  return `rgba(${channels.join(",")},${opacity})`;
}

/** A table of texts; the first column names the rows, `left` says which others hold words and not numbers. */
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
