// The search field of the bar, and the editor of the SQL page.

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
