// Update the results on a page that is in use. The work is done in slices, between which the browser handles input.
// Only changed elements are replaced, so that scroll positions, open parts, and selections stay.

const SLICE = 20; // milliseconds
const LETTERS = 100_000; // parsed in a slice, in about ten milliseconds
const DATA_TAG = '<script type="application/json" id="data">';
const PARTS = new Set(["A", "BODY", "DETAILS", "DIV", "OL", "SECTION", "SPAN", "TABLE", "TBODY", "TD", "TH", "THEAD", "TR", "UL"]); // other elements are replaced as a whole
const DRAWN = ".tools, .plot, .legend, details.numbers"; // written by the chart

/** Do work in slices; return its duration in milliseconds. */
async function inSlices(work) {
  let busy = 0;
  for (let next = {}; !next.done; ) {
    const start = performance.now();
    do next = work.next();
    while (!next.done && next.value !== "rest" && performance.now() - start < SLICE);
    busy += performance.now() - start;
    await new Promise((done) => setTimeout(done));
  }
  return busy;
}

/** Replace results by new ones from the server; yields between slices. */
function* replaceResults(place, text) {
  const end = text.lastIndexOf(DATA_TAG);
  const fresh = document.implementation.createHTMLDocument("");
  fresh.write("<!DOCTYPE html><body>");
  // The server has escaped all texts, and scripts of a hidden document do not run.
  for (let at = 0; at < end; at += LETTERS) {
    fresh.write(text.slice(at, Math.min(at + LETTERS, end)));
    yield "rest";
  }
  fresh.close();
  awaken(fresh);
  const [answer, between] = [fresh.createElement("div"), fresh.querySelector("body > hr[hidden]")];
  while (fresh.body.firstChild !== between) answer.append(fresh.body.firstChild);
  between.remove();
  yield* replaceChildren(document.getElementById("lead"), answer);
  yield* replaceChildren(place, fresh.body);
  yield "rest";
  DATA = JSON.parse(text.slice(end + DATA_TAG.length, text.lastIndexOf("</script>")));
  yield "rest";
  yield* renewCharts();
}

/** Make an element of the page equal to a fresh one, and change as little as possible. */
function* become(old, fresh) {
  if (old.isEqualNode(fresh)) return;
  if (old.nodeName !== fresh.nodeName || old.id !== fresh.id || !PARTS.has(old.nodeName)) {
    if (old.nodeName !== "DIALOG" || fresh.nodeName !== "DIALOG") old.replaceWith(fresh); // an open dialog stays
    return;
  }
  for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const { name } of [...old.attributes]) if (name !== "open" && !fresh.hasAttribute(name)) old.removeAttribute(name);
  yield* replaceChildren(old, fresh);
}

function* replaceChildren(old, fresh) {
  const isFigure = old.closest("section[data-figure]") !== null;
  const [before, after] = [[...old.childNodes], [...fresh.childNodes]];
  for (const [i, child] of after.entries()) {
    if (i >= before.length) old.append(child);
    else if (before[i].nodeType === Node.ELEMENT_NODE && child.nodeType === Node.ELEMENT_NODE) {
      if (!isFigure || !child.matches(DRAWN)) yield* become(before[i], child);
    } else if (!before[i].isEqualNode(child)) before[i].replaceWith(child);
    yield;
  }
  for (const child of before.slice(after.length)) child.remove();
}
