// Copying and saving tables and figures. A document has all files embedded, so it can be mailed; a page that a
// server shows requests files from the server instead.

const SAID_FOR = 1500; // milliseconds for which a button shows its result

/** Return the content of a file as bytes; embedded files are compressed. */
async function content(name) {
  if (!isHere(name)) {
    const answer = await fetch(DATA.place.replace("FILE", encodeURIComponent(name)), { credentials: "same-origin" });
    if (!answer.ok) throw new Error(await answer.text());
    return new Uint8Array(await answer.arrayBuffer());
  }
  const bytes = Uint8Array.from(atob(DATA.files[name]), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

const isHere = (name) => name in DATA.files || !DATA.place;

async function textOf(name) {
  return new TextDecoder().decode(await content(name));
}

const TYPES = { csv: "text/csv", json: "application/json", pdf: "application/pdf", png: "image/png", svg: "image/svg+xml" };

function save(name, blob) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

async function saveFile(name) {
  const type = TYPES[name.split(".").pop()] ?? "text/plain";
  save(name, new Blob([await content(name)], { type }));
}

/** Return a figure as PNG: its SVG at three times the printed size, or else the image that the page shows. */
async function png(name, image) {
  let source = image?.src;
  if (!source || DATA.files[`${name}.svg`]) {
    const letters = await textOf(`${name}.svg`);
    source = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(letters)}`;
  }
  const drawing = new Image();
  drawing.src = source;
  await drawing.decode();
  const scale = source.startsWith("data:image/svg") ? 3 : 1;
  const canvas = make("canvas", { width: Math.round(scale * drawing.naturalWidth), height: Math.round(scale * drawing.naturalHeight) });
  const context = canvas.getContext("2d");
  context.fillStyle = "#ffffff";
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(drawing, 0, 0, canvas.width, canvas.height);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}

/** Copy a text. If the browser denies access to the clipboard (pages from disk), copy a selection instead. */
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const before = document.activeElement;
    const field = make("textarea", { class: "offscreen", readonly: true, "aria-hidden": "true", tabindex: "-1" });
    field.value = text;
    document.body.append(field);
    field.select();
    const copied = document.execCommand("copy");
    field.remove();
    before?.focus();
    return copied;
  }
}

async function copyPng(name, image) {
  const drawn = png(name, image);
  try {
    await navigator.clipboard.write([new ClipboardItem({ "image/png": drawn })]);
    return "Copied";
  } catch {
    save(`${name}.png`, await drawn);
    return "Saved: this browser copies no images";
  }
}

/** Do what a button is for; return the result that the button then shows. */
async function act(button) {
  const { copy, copyFile, copyPlot, saveFile: file, savePlot } = button.dataset;
  const files = button.closest(".files");
  const plot = files?.dataset.plot;
  const image = files?.closest("section").querySelector(`img[data-plot="${CSS.escape(plot ?? "")}"]`);
  if (copy) return (await copyText(document.getElementById(copy).textContent)) ? "Copied" : "Copying failed";
  if (copyFile) return (await copyText(await textOf(copyFile))) ? "Copied" : "Copying failed";
  if (copyPlot) return copyPng(plot, image);
  if (savePlot === ".png") save(`${plot}.png`, await png(plot, image));
  else await saveFile(file ?? plot + savePlot);
  return "Saved";
}

const said = make("p", { class: "offscreen", role: "status" });
document.body.append(said);

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-copy], .files button");
  if (!button || button.dataset.says) return;
  const before = button.textContent;
  button.dataset.says = "1";
  let answer;
  try {
    answer = await act(button);
  } catch {
    answer = "Failed";
  }
  button.textContent = said.textContent = answer;
  setTimeout(() => {
    button.textContent = before;
    said.textContent = "";
    delete button.dataset.says;
  }, SAID_FOR);
});
