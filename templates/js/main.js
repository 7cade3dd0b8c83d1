// Starts all but the table and its tree.
"use strict";
(() => {
  charts.begin(graph.begin());
  document.querySelectorAll("[data-select]").forEach((link) => {
    const index = Number(link.dataset.select);
    link.hash = address.link("operators", { op: report.operatorNames.all[index] });
    link.addEventListener("click", (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return; // another tab or window
      // What is filtered stays as it is.
      event.preventDefault();
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
