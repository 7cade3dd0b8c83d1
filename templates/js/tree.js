// The user's own structure with sums: modules, what each takes, and a filter for the table.
"use strict";
report.tree = (() => {
  const { modules, element } = report;
  const measure = ["best", "cpu", "gpu", "flops"].find((name) => modules[0][name]) || "operators";
  const whole = modules[0][measure] || 1;
  const root = document.getElementById("tree");
  let grid = null;
  let chosen = null;

  const children = new Map();
  modules.forEach((item) => {
    if (item.parent === null) return;
    if (!children.has(item.parent)) children.set(item.parent, []);
    children.get(item.parent).push(item.number);
  });

  function branch(number) {
    const item = modules[number];
    const below = (children.get(number) || []).map(branch);
    const row = { number, name: item.name, class: item.class, share: (item[measure] || 0) / whole, value: item[measure], operators: item.operators };
    return below.length ? { ...row, _children: below } : row;
  }

  function nameCell(cell) {
    const row = cell.getData();
    const button = element("button", { type: "button", className: "link", textContent: row.name, title: `${row.name}: ${row.operators} operators` });
    button.dataset.module = row.number;
    if (children.has(row.number)) grids.unfolds(button, cell.getRow(), root);
    const holder = element("span", { className: "tree-name" }, button);
    if (row.class) holder.append(element("small", { textContent: ` ${row.class}` }));
    return holder;
  }
  function shareCell(cell) {
    const value = cell.getValue();
    const holder = element("span", { className: "tree-share", title: figures.figure(cell.getData().value, measure === "flops" ? "flops" : measure === "operators" ? "count" : "seconds") });
    const bar = element("span", { className: "bar" });
    bar.style.setProperty("--part", value);
    holder.append(bar, element("span", { textContent: figures.figure(value, "share") }));
    return holder;
  }

  function begin() {
    const title = { best: "Time", cpu: "CPU time", gpu: "GPU time", flops: "FLOPs", operators: "Operators" }[measure];
    grid = new Tabulator("#tree", {
      data: [branch(0)],
      index: "number",
      height: matchMedia("(max-width: 700px)").matches ? 320 : table.HEIGHT,
      autoResize: false,
      layout: "fitColumns",
      dataTree: true,
      dataTreeStartExpanded: [true, false],
      dataTreeBranchElement: false,
      dataTreeChildIndent: 12,
      columnDefaults: { headerSort: false, resizable: false },
      columns: [
        { title: "Module", field: "name", formatter: nameCell, widthGrow: 2 },
        { title, field: "share", formatter: shareCell, width: 118, hozAlign: "right" },
      ],
      rowFormatter: (row) => row.getElement().classList.toggle("chosen-module", row.getData().number === chosen),
    });
    grid.on("tableBuilt", () => {
      grids.accessible(root, "Modules");
      grids.resizes(grid, root);
      // A link may have chosen before the tree was there.
      const index = report.selected();
      const first = table.module() ?? (index === null ? null : report.operators[index].module_number);
      if (first !== null) highlight(first, true);
    });
    grid.on("rowClick", (_, row) => {
      const number = row.getData().number;
      if (number !== chosen) grids.fold(row, true, root);
      table.only(number === chosen || number === 0 ? null : number);
      highlight(number === chosen ? null : number, false);
    });
    report.onSelect((index) => highlight(index === null ? null : report.operators[index].module_number, true));
  }

  // Opens the way to a module, marks it and, where asked for, brings it into view.
  function highlight(number, reveal) {
    chosen = number;
    if (!grid?.initialized) return;
    let row = null;
    if (number !== null) {
      const way = report.ancestry(number).reverse();
      row = grid.getRows()[0];
      way.slice(1).forEach((step) => {
        if (!row) return;
        grids.fold(row, true, root);
        row = row.getTreeChildren().find((child) => child.getData().number === step) || null;
      });
    }
    document.querySelectorAll("#tree .chosen-module").forEach((item) => item.classList.remove("chosen-module"));
    if (!row) return;
    const line = row.getElement();
    line.classList.add("chosen-module");
    const holder = document.querySelector("#tree .tabulator-tableholder");
    if (reveal && line.offsetParent) holder.scrollTop = Math.max(0, line.offsetTop - holder.clientHeight / 2);
  }

  return { begin, show: (number) => highlight(number, true) };
})();
