// The search field of the bar, and the key that runs a query.

document.addEventListener("keydown", (event) => {
  const isTyping = event.target.closest("input, textarea, select");
  if (event.key === "/" && !event.ctrlKey && !event.metaKey && !event.altKey && !isTyping) {
    event.preventDefault();
    document.querySelector("input[name=where]").focus();
  } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && event.target.matches("textarea[name=q]")) {
    event.target.form.requestSubmit();
  }
});
