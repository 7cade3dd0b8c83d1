// Tables of options: a button in each heading sorts by what its cells stand for, a search keeps the rows that hold its words.
"use strict";
(() => {
  const { element } = report;

  // What is not known has no value and stays last, whichever way is sorted.
  function compare(a, b, sign) {
    if (a === undefined || b === undefined) return a === b ? 0 : a === undefined ? 1 : -1;
    const numbers = [Number(a), Number(b)];
    return sign * (numbers.some(Number.isNaN) ? a.localeCompare(b, "en") : numbers[0] - numbers[1]);
  }

  function sort(table, heads, at) {
    const body = table.tBodies[0];
    const falling = heads[at].getAttribute("aria-sort") === "ascending";
    heads.forEach((head, place) => {
      if (place === at) head.setAttribute("aria-sort", falling ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    const value = (row) => row.cells[at].dataset.value;
    body.append(...[...body.rows].sort((a, b) => compare(value(a), value(b), falling ? -1 : 1)));
  }

  document.querySelectorAll("[data-options]").forEach((table) => {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, at) => {
      const button = element("button", { type: "button", className: "link", textContent: head.textContent });
      button.addEventListener("click", () => sort(table, heads, at));
      head.replaceChildren(button);
    });
  });

  document.querySelectorAll("[data-searches]").forEach((input) => {
    const name = input.dataset.searches;
    const rows = [...document.querySelector(`[data-options="${CSS.escape(name)}"]`).tBodies[0].rows];
    const status = document.querySelector(`[data-found="${CSS.escape(name)}"]`);
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      rows.forEach((row) => { row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word)); });
      status.textContent = words.length === 0 ? "" : `${rows.filter((row) => !row.hidden).length} of ${rows.length}`;
    });
  });
})();
