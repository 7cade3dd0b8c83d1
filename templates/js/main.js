// Starts all but the table and its tree.
"use strict";
(() => {
  charts.begin(graph.begin());
  document.querySelectorAll("[data-select]").forEach((link) => {
    link.addEventListener("click", (event) => {
      // One step of the browser's history: the selection names the section as well.
      event.preventDefault();
      const index = Number(link.dataset.select);
      if (report.selected() !== index) report.select(index, "link");
      address.go("operators");
    });
  });
  const links = new Map([...document.querySelectorAll(".top nav a")].map((link) => [link.hash.slice(1), link]));
  const watcher = new IntersectionObserver((entries) => {
    entries.forEach((entry) => links.get(entry.target.id)?.toggleAttribute("data-here", entry.isIntersecting));
  }, { rootMargin: "-45% 0px -50% 0px" });
  document.querySelectorAll("section[id]").forEach((section) => watcher.observe(section));
})();
