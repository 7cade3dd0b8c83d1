// Two records as one tree: each module with both times and what became of the operators inside; filters leave their ways.
"use strict";
(() => {
  const { data, rowsOf, element } = report;
  const narrow = matchMedia("(max-width: 700px)").matches;
  // So many operators that a filter leaves are shown unfolded.
  const FEW = 200;

  function begin(holder, given) {
    const rows = rowsOf(given.rows).map((row, index) => ({ index, ...row }));
    const inside = rows.map(() => []);
    rows.forEach((row) => { if (row.parent !== null) inside[row.parent].push(row.index); });
    const kinds = [...holder.querySelectorAll("select option")].map((option) => option.value).filter(Boolean);
    const root = holder.querySelector(".joined-tree");
    const search = holder.querySelector("input");
    const select = holder.querySelector("select");
    // Parents come before what is inside.
    const texts = [];
    rows.forEach((row) => texts.push([texts[row.parent] || "", row.name, row.aside, row.where, row.code].join(" ").toLowerCase()));
    const open = new Set();
    for (let at = given.first; at !== null; at = rows[at].parent) open.add(at);
    let shown = rows.length;

    // The row with what the filters leave inside; null where that is nothing.
    function branch(at, fits) {
      if (inside[at].length === 0) return fits(at) ? rows[at] : null;
      const below = inside[at].map((child) => branch(child, fits)).filter(Boolean);
      return below.length ? { ...rows[at], _children: below } : null;
    }
    function filtered() {
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      const fits = (at) => (!select.value || rows[at][select.value] > 0) && words.every((word) => texts[at].includes(word));
      const leaves = rows.filter((row) => inside[row.index].length === 0);
      shown = leaves.filter((row) => fits(row.index)).length;
      holder.querySelector(".found").textContent = `${shown.toLocaleString("en-US")} of ${leaves.length.toLocaleString("en-US")} operators`;
      return shown ? [branch(0, fits)] : [];
    }

    function nameCell(cell) {
      const row = cell.getData();
      if (inside[row.index].length === 0) return grids.two(element("span", { textContent: row.name }), row.aside, "leaf");
      const button = element("button", { type: "button", className: "link", textContent: row.name });
      button.dataset.module = row.index;
      grids.unfolds(button, cell.getRow(), root);
      return grids.two(button, row.aside);
    }
    const sourceCell = (cell) => grids.two(element("code", { textContent: cell.getValue(), title: cell.getValue() }), cell.getData().where);
    function riseCell(cell) {
      const rise = cell.getValue();
      const { before, after } = cell.getData();
      if (!rise) return element("span", { textContent: before !== null && before === after ? "the same" : figures.UNKNOWN });
      return element("span", { className: rise > 0 ? "worse up" : "better down", textContent: `${rise > 0 ? "+" : "−"}${figures.figure(Math.abs(rise), "seconds")}` });
    }
    function whatCell(cell) {
      const row = cell.getData();
      const counts = kinds.filter((kind) => row[kind] > 0).map((kind) => `${row[kind].toLocaleString("en-US")} ${kind}`);
      const text = inside[row.index].length === 0 ? row.what : counts.join(", ");
      return element("span", { textContent: text, title: text });
    }

    const grid = new Tabulator(root, {
      data: filtered(),
      index: "index",
      maxHeight: narrow ? "70vh" : 560,
      rowHeight: 46,
      autoResize: false,
      layout: "fitColumns",
      dataTree: true,
      dataTreeStartExpanded: (row) => open.has(row.getData().index) || (shown <= FEW && Boolean(search.value || select.value)),
      dataTreeBranchElement: false,
      dataTreeChildIndent: 12,
      placeholder: "No operator fits the filters.",
      // A title is a record's name, which is no HTML.
      columnDefaults: { resizable: "header", headerWordWrap: true, titleFormatter: "plaintext" },
      columns: [
        { title: "Module", field: "name", formatter: nameCell, minWidth: narrow ? 150 : 260, widthGrow: 2, sorter: (a, b, rowA, rowB) => rowA.getData().index - rowB.getData().index },
        { title: given.base, field: "before", formatter: grids.timeCell("before"), width: narrow ? 116 : 132, ...grids.number },
        { title: given.new, field: "after", formatter: grids.timeCell("after"), width: narrow ? 116 : 132, ...grids.number },
        { title: "Difference", field: "rise", formatter: riseCell, width: 112, ...grids.number },
        { title: "What became of it", field: "what", formatter: whatCell, minWidth: 240, widthGrow: 2, headerSort: false },
        { title: "Source line", field: "code", formatter: sourceCell, minWidth: 180, widthGrow: 1, headerSort: false },
      ],
    });
    grid.on("tableBuilt", () => {
      grids.accessible(root, `Modules of ${given.base} and ${given.new}`);
      grids.resizes(grid, root);
      const renew = () => grid.replaceData(filtered());
      let timer = 0;
      search.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(renew, 120); });
      select.addEventListener("change", renew);
      holder.dataset.drawn = "yes";
    });
    grid.on("rowClick", (_, row) => { if (inside[row.getData().index].length) grids.fold(row, !row.isTreeExpanded(), root); });
  }

  document.querySelectorAll("[data-joined]").forEach((holder) => begin(holder, data.joined[Number(holder.dataset.joined)]));
})();
