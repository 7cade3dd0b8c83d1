// What every grid of Tabulator's needs here: roles and keys for who uses no mouse, and rows that stay.
"use strict";
const grids = (() => {
  // Tabulator's scrolling holder stands between grid and rows: it becomes the group of rows itself.
  function accessible(root, label) {
    root.setAttribute("aria-label", label);
    root.removeAttribute("aria-owns");
    const holder = root.querySelector(".tabulator-tableholder");
    holder.setAttribute("tabindex", "0");
    holder.setAttribute("role", "rowgroup");
    root.querySelector(".tabulator-table").setAttribute("role", "presentation");
    root.querySelectorAll(".tabulator-col.tabulator-sortable").forEach((head) => {
      head.tabIndex = 0;
      head.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        head.click();
      });
    });
  }

  // The library's own watch also makes all rows anew whenever they come into view: a click, the focus and the place
  // that was scrolled to were lost. Rows are made anew where the size has changed.
  function resizes(built, root) {
    const size = () => `${root.clientWidth} ${root.clientHeight}`;
    let last = size();
    new ResizeObserver(() => {
      if (size() === last) return;
      last = size();
      built.redraw();
    }).observe(root);
  }

  return { accessible, resizes };
})();
