// What every grid of Tabulator's needs here: roles and keys for who uses no mouse, rows that stay, cells of times.
"use strict";
const grids = (() => {
  const { data, element } = report;

  const two = (first, second, className = "", title = second) => element("span", { className: `two ${className}` }, first, element("small", { textContent: second, title }));
  const sign = (origin) => (origin ? element("span", { className: "sign", title: origin, textContent: ` ${data.marks[origin] || origin}` }) : "");
  const range = (low, high, kind) => {
    if (low === null || high === null) return "";
    const [from, to] = [figures.figure(low, kind), figures.figure(high, kind)];
    const [value, unit] = from.split(" ");
    return `${unit && to.endsWith(` ${unit}`) ? value : from} to ${to}`;
  };
  // A time with its origin, and its interval below.
  const timeCell = (side) => (cell) => {
    const row = cell.getData();
    const value = element("span", { textContent: figures.figure(row[side], "seconds") });
    value.append(sign(row[`${side}_origin`]));
    return two(value, range(row[`${side}_low`], row[`${side}_high`], "seconds"), "num");
  };
  const unknownLast = (a, b, rowA, rowB, column, direction) => {
    if (a === b) return rowA.getData().index - rowB.getData().index;
    if (a === null || a === undefined) return direction === "asc" ? 1 : -1;
    if (b === null || b === undefined) return direction === "asc" ? -1 : 1;
    return a - b;
  };
  const number = { hozAlign: "right", headerHozAlign: "right", sorter: unknownLast, headerSortStartingDir: "desc" };

  // Of a tree: the right arrow unfolds a module, the left one folds it up; the mouse has the box next to the name.
  function unfolds(button, row, root) {
    button.setAttribute("aria-expanded", String(row.isTreeExpanded()));
    button.addEventListener("keydown", (event) => {
      if (event.key !== "ArrowRight" && event.key !== "ArrowLeft") return;
      event.preventDefault();
      fold(row, event.key === "ArrowRight", root);
    });
  }
  // The library makes the rows anew: the focus returns to the one that had it.
  function fold(row, opened, root) {
    if (row.isTreeExpanded() === opened) return;
    const had = document.activeElement.dataset.module;
    if (opened) row.treeExpand();
    else row.treeCollapse();
    if (had !== undefined) root.querySelector(`[data-module="${had}"]`)?.focus();
  }

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

  return { accessible, resizes, two, range, timeCell, number, unfolds, fold };
})();
