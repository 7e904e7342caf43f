// Copying and saving tables and figures. A document has all files embedded, so it can be mailed; a page that a
// server shows requests files from the server instead.

const SAID_FOR = 1500; // milliseconds for which a button shows its result

/** Return the content of a file as bytes; embedded files are compressed. */
async function content(name) {
  if (DATA.place && !(name in DATA.files)) {
    const answer = await fetch(DATA.place.replace("FILE", encodeURIComponent(name)), { credentials: "same-origin" });
    if (!answer.ok) throw new Error(await answer.text());
    return new Uint8Array(await answer.arrayBuffer());
  }
  const bytes = Uint8Array.from(atob(DATA.files[name]), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

async function textOf(name) {
  return new TextDecoder().decode(await content(name));
}

function save(name, blob) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** Return a figure as PNG: its SVG at three times the printed size, or else the image that the page shows. */
async function png(name, image) {
  const drawing = new Image();
  const isVector = !image || `${name}.svg` in DATA.files;
  drawing.src = isVector
    ? `data:image/svg+xml;charset=utf-8,${encodeURIComponent(await textOf(`${name}.svg`))}`
    : image.src;
  await drawing.decode();
  const scale = isVector ? 3 : 1;
  const [width, height] = [drawing.naturalWidth, drawing.naturalHeight].map((size) => Math.round(scale * size));
  const canvas = make("canvas", { width, height });
  const context = canvas.getContext("2d");
  context.fillStyle = "#ffffff";
  context.fillRect(0, 0, width, height);
  context.drawImage(drawing, 0, 0, width, height);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}

/** Copy a text. If the browser denies access to the clipboard (pages from disk), copy a selection instead. */
async function copyText(text) {
  const before = document.activeElement;
  const field = make("textarea", { class: "offscreen", readonly: true, "aria-hidden": "true", tabindex: "-1" });
  try {
    await navigator.clipboard.writeText(text);
    return "Copied";
  } catch {
    field.value = text;
    document.body.append(field);
    field.select();
    return document.execCommand("copy") ? "Copied" : "Copying failed";
  } finally {
    field.remove();
    before?.focus();
  }
}

/**
 * Copy or save what a button names, and return the result that the button then shows. `data-copy` is the id of an
 * element, or a file; a name that starts with a dot is a file of the figure that is shown.
 */
async function act(button) {
  const { copy, save: saved } = button.dataset;
  const plot = button.closest(".files")?.dataset.plot ?? "";
  const name = (copy ?? saved).replace(/^\./, `${plot}.`);
  if (!name.endsWith(".png")) {
    if (copy) return copyText(document.getElementById(copy)?.textContent ?? (await textOf(name)));
    save(name, new Blob([await content(name)]));
    return "Saved";
  }
  const drawn = png(plot, button.closest("section").querySelector(`img[data-plot="${CSS.escape(plot)}"]`));
  if (copy) {
    try {
      await navigator.clipboard.write([new ClipboardItem({ "image/png": drawn })]);
      return "Copied";
    } catch {
      // Browsers that copy no images save them instead.
    }
  }
  save(name, await drawn);
  return copy ? "Saved: this browser copies no images" : "Saved";
}

const said = make("p", { class: "offscreen", role: "status" });
document.body.append(said);

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-copy], button[data-save]");
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
