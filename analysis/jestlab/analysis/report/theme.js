// The theme of a page: the system's, unless the reader chose light or dark. This runs before the page is drawn.
// All colors follow the theme without scripts: see `light-dark()` in style.css.

const NEXT = { "": "light", light: "dark", dark: "" };
const THEMES = { "": "◐ Auto", light: "☀ Light", dark: "☾ Dark" };

/** Show a theme, which is empty for the system's, and update the button, if the page has one. */
function showTheme(name) {
  document.documentElement.dataset.theme = name;
  for (const button of document.querySelectorAll("button.theme")) {
    button.textContent = THEMES[name];
    button.setAttribute("aria-label", `Theme: ${name || "as the system"}`);
  }
}

/** Read or store the choice; a browser may forbid both, which only means that it isn't remembered. */
function rememberedTheme(name) {
  try {
    if (name !== undefined) localStorage.setItem("jestlab-theme", name);
    const kept = localStorage.getItem("jestlab-theme");
    return kept in THEMES ? kept : "";
  } catch {
    return name ?? "";
  }
}

document.documentElement.classList.add("scripted");
showTheme(rememberedTheme());
document.addEventListener("DOMContentLoaded", () => showTheme(document.documentElement.dataset.theme));
document.addEventListener("click", (event) => {
  if (event.target.closest("button.theme")) showTheme(rememberedTheme(NEXT[document.documentElement.dataset.theme]));
});
