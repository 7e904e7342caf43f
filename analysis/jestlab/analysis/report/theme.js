// The theme of a page: the system's, unless the reader chose light or dark. This runs before the page is drawn.

/** Call `follow` at every change of the theme. Most colors need no script: see `light-dark()` in style.css. */
const onTheme = (follow) => document.addEventListener("theme", follow);
const isDark = () => (theme.chosen ? theme.chosen === "dark" : theme.system.matches);

const theme = {
  system: window.matchMedia("(prefers-color-scheme: dark)"),
  next: { auto: "light", light: "dark", dark: "auto" },
  chosen: "",

  /** Show a theme ("light", "dark", or "" for the system's), and update the button, if the page has one. */
  show(name) {
    this.chosen = name in this.next && name !== "auto" ? name : "";
    if (this.chosen) document.documentElement.dataset.theme = this.chosen;
    else delete document.documentElement.dataset.theme;
    for (const button of document.querySelectorAll("button.theme")) {
      button.hidden = false;
      button.textContent = { light: "☀ Light", dark: "☾ Dark" }[this.chosen] ?? "◐ Auto";
      button.setAttribute("aria-label", `Theme: ${this.chosen || "as the system"}`);
    }
    document.dispatchEvent(new Event("theme"));
  },

  /** Read or store the choice; a browser may forbid both, which only means that it isn't remembered. */
  remembered(name) {
    try {
      if (name === undefined) return localStorage.getItem("jestlab-theme") ?? "";
      localStorage.setItem("jestlab-theme", name);
    } catch {
      return "";
    }
    return name;
  },
};

document.documentElement.classList.add("scripted");
theme.show(theme.remembered());
theme.system.addEventListener("change", () => theme.show(theme.chosen));
document.addEventListener("DOMContentLoaded", () => theme.show(theme.chosen));
document.addEventListener("click", (event) => {
  if (!event.target.closest("button.theme")) return;
  const name = theme.next[theme.chosen || "auto"];
  theme.remembered(name);
  theme.show(name);
});
