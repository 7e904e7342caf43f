// The search field of the bar, completion of names in search fields, and the editor of the SQL page.

/** Put a text at the cursor of a field. */
function insertText(field, text) {
  field.focus();
  const before = field.value.slice(0, field.selectionStart);
  field.setRangeText(/[\w.]$/.test(before) ? ` ${text}` : text, field.selectionStart, field.selectionEnd, "end");
}

document.addEventListener("keydown", (event) => {
  const { target } = event;
  if (event.key === "/" && !event.ctrlKey && !event.metaKey && !event.altKey && !target.closest("input, textarea, select")) {
    event.preventDefault();
    document.querySelector(".search input").focus();
  } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && target.matches("textarea[name=q]")) {
    event.preventDefault();
    target.form.requestSubmit();
  }
});

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-insert]");
  if (button) insertText(document.querySelector("textarea[name=q]"), button.dataset.insert);
});

// A browser suggests whole values, so each suggestion repeats what is before the last name in the field.
for (const field of document.querySelectorAll("input[data-complete]")) {
  const names = [...field.list.options].map((option) => option.value);
  field.addEventListener("input", () => {
    const [, before, word] = /^(.*?)([\w.]*)$/s.exec(field.value);
    const fitting = word ? names.filter((name) => name.includes(word) && name !== word).slice(0, 50) : [];
    field.list.replaceChildren(...fitting.map((name) => make("option", { value: before + name })));
  });
}

// The place of an error in a query.
const wrong = document.querySelector("textarea[data-from]");
wrong?.focus();
wrong?.setSelectionRange(Number(wrong.dataset.from), Number(wrong.dataset.to));
