// Update the results on a page that is in use. Only changed elements are replaced, so that scroll positions,
// open parts, and selections stay.

// Other elements are replaced as a whole.
const PARTS = "a, body, details, div, ol, section, span, table, tbody, td, th, thead, tr, ul";
const DRAWN = ".tools, .plot, .legend, details.numbers"; // written by the chart

/** Replace results by new ones from the server; let the browser handle input after each figure. */
async function replaceResults(place, text) {
  const fresh = new DOMParser().parseFromString(text, "text/html");
  awaken(fresh);
  const answer = fresh.createElement("div");
  const between = fresh.querySelector("body > hr[hidden]");
  const data = fresh.getElementById("data");
  while (fresh.body.firstChild !== between) answer.append(fresh.body.firstChild);
  between.remove();
  data.remove();
  replaceChildren(document.getElementById("lead"), answer);
  replaceChildren(place, fresh.body);
  DATA = JSON.parse(data.textContent);
  for (const _ of renewCharts()) await new Promise((done) => setTimeout(done));
}

/** Make an element of the page equal to a fresh one, and change as little as possible. */
function become(old, fresh) {
  if (old.isEqualNode(fresh)) return;
  if (old.nodeName !== fresh.nodeName || old.id !== fresh.id || !old.matches(PARTS)) {
    const isDialog = old.nodeName === "DIALOG" && fresh.nodeName === "DIALOG"; // stays, since it may be open
    if (!isDialog) old.replaceWith(fresh);
    return;
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) {
    if (name !== "open" && !fresh.hasAttribute(name)) old.removeAttribute(name);
  }
  replaceChildren(old, fresh);
}

function replaceChildren(old, fresh) {
  const isFigure = old.closest("section[data-figure]") !== null;
  const [before, after] = [[...old.childNodes], [...fresh.childNodes]];
  for (const [i, child] of after.entries()) {
    if (i >= before.length) old.append(child);
    else if (before[i].nodeType === Node.ELEMENT_NODE && child.nodeType === Node.ELEMENT_NODE) {
      if (!isFigure || !child.matches(DRAWN)) become(before[i], child);
    } else if (!before[i].isEqualNode(child)) before[i].replaceWith(child);
  }
  for (const child of before.slice(after.length)) child.remove();
}
