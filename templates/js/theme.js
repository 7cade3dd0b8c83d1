// Before the first paint: the reader's own choice of light or dark, else what the system asks for.
"use strict";
(() => {
  const root = document.documentElement;
  let chosen = null;
  try { chosen = localStorage.getItem("analyzer-theme"); } catch { /* a file:// page may have no storage */ }
  if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;
  const isDark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const show = () => {
      button.textContent = isDark() ? "Light" : "Dark";
      button.setAttribute("aria-pressed", String(isDark()));
      button.setAttribute("aria-label", isDark() ? "Switch to light" : "Switch to dark");
      dispatchEvent(new Event("themechange"));
    };
    button.addEventListener("click", () => {
      root.dataset.theme = isDark() ? "light" : "dark";
      try { localStorage.setItem("analyzer-theme", root.dataset.theme); } catch { /* as above */ }
      show();
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
    show();
  });
})();
