// The search field of the bar, completion of names in search fields, and the editor of the SQL page.

document.addEventListener("keydown", (event) => {
  const isTyping = event.target.closest("input, textarea, select");
  if (event.key === "/" && !event.ctrlKey && !event.metaKey && !event.altKey && !isTyping) {
    event.preventDefault();
    document.querySelector(".search input").focus();
  } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && event.target.matches("textarea[name=q]")) {
    event.target.form.requestSubmit();
  }
});

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-insert]");
  if (!button) return;
  const field = document.querySelector("textarea[name=q]");
  field.focus();
  field.setRangeText(` ${button.dataset.insert}`, field.selectionStart, field.selectionEnd, "end");
});

// A browser suggests whole values, so each suggestion repeats what is before the last name in the field.
for (const field of document.querySelectorAll("input[data-complete]")) {
  const names = [...field.list.options].map((option) => option.value);
  field.addEventListener("input", () => {
    const [, before, word] = /^(.*?)([\w.]*)$/s.exec(field.value);
    const fitting = names.filter((name) => word && name.includes(word) && name !== word).slice(0, 50);
    field.list.replaceChildren(...fitting.map((name) => make("option", { value: before + name })));
  });
}
