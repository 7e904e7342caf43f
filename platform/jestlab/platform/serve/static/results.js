// Results that are replaced while somebody reads them. All the work is done in slices, between which the browser
// takes clicks and keys, and only what has changed is replaced: scrolls, open parts and selections stay.

const SLICE = 20; // milliseconds
const LETTERS = 100_000; // that are parsed in a slice: about ten milliseconds
const DATA_TAG = '<script type="application/json" id="data">';
const PARTS = new Set(["BODY", "DETAILS", "DIV", "OL", "SECTION", "TABLE", "TBODY", "UL"]); // others are replaced whole
const DRAWN = ".controls, .series, .plot, details.numbers"; // what a chart writes itself

/** Do some work in slices; return for how many milliseconds it was busy. */
async function inSlices(work) {
  let busy = 0;
  for (let next = {}; !next.done; ) {
    const began = performance.now();
    do next = work.next();
    while (!next.done && next.value !== "rest" && performance.now() - began < SLICE);
    busy += performance.now() - began;
    await new Promise((done) => setTimeout(done));
  }
  return busy;
}

/** Put results, as the server writes them, in the place of those that are there; yields when it may rest. */
function* replaceResults(place, text) {
  const end = text.lastIndexOf(DATA_TAG);
  const fresh = document.implementation.createHTMLDocument("");
  fresh.write("<!DOCTYPE html><body>");
  // The server has escaped all texts, and scripts of a document that is not shown do not run.
  for (let at = 0; at < end; at += LETTERS) {
    fresh.write(text.slice(at, Math.min(at + LETTERS, end)));
    yield "rest";
  }
  fresh.close();
  awaken(fresh);
  yield* replaceChildren(place, fresh.body);
  yield "rest";
  DATA = JSON.parse(text.slice(end + DATA_TAG.length, text.lastIndexOf("</script>")));
  yield "rest";
  yield* renewCharts();
}

/** Make an element what another one is. */
function* become(old, fresh) {
  if (old.isEqualNode(fresh)) return;
  if (old.nodeName !== fresh.nodeName || old.id !== fresh.id || !PARTS.has(old.nodeName)) {
    if (old.nodeName !== "DIALOG" || fresh.nodeName !== "DIALOG") old.replaceWith(fresh); // else somebody reads it
    return;
  }
  for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const { name } of [...old.attributes]) if (name !== "open" && !fresh.hasAttribute(name)) old.removeAttribute(name);
  yield* replaceChildren(old, fresh);
}

function* replaceChildren(old, fresh) {
  const isFigure = old.matches("section[data-figure]") && fresh.matches("section[data-figure]");
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
