// The operator table: virtual rows, sorting, filters, search, groups as executed; the selected row in full below it.
"use strict";
const table = (() => {
  const { data, operators, groups, element } = report;
  const { two, timeCell, number } = grids;
  const byId = (id) => document.getElementById(id);
  const NAMES = { cpu: "CPU", gpu: "GPU", either: "either", hybrid: "CPU and GPU" };
  const narrow = matchMedia("(max-width: 700px)").matches;

  const chip = (device, text) => element("span", { className: `chip chip-${device}`, textContent: text || NAMES[device] || device });
  const kind = (name) => (cell) => figures.figure(cell.getValue(), name);
  // Layers have their beginnings in common: of a path too long for its column the end is kept.
  const LONGEST = 28;
  const endOf = (path) => (path.length <= LONGEST ? path : `…${path.slice(1 - LONGEST)}`);
  function operatorCell(cell) {
    const row = cell.getData();
    const button = element("button", { type: "button", className: "link", textContent: row.type });
    return two(button, endOf(row.module || row.name), "", row.module || row.name);
  }
  const sourceCell = (cell) => {
    const row = cell.getData();
    return two(element("code", { textContent: row.code || "–", title: row.code }), row.file);
  };
  const range = (row, side) => grids.range(row[`${side}_low`], row[`${side}_high`], "seconds");
  const verdictCell = (cell) => {
    const row = cell.getData();
    const ratio = row.speedup === null ? "" : `${figures.figure(row.speedup, "factor")} on GPU`;
    return two(chip(row.verdict, row.verdict_word), [ratio, row.verdict_aside].filter(Boolean).join(", "));
  };
  const reasonCell = (cell) => {
    const row = cell.getData();
    const text = element("span", { textContent: row.reason });
    text.title = row.explanation;
    return two(text, row.explanation);
  };
  const bound = (row) => (row.placement === "gpu" ? row.gpu_bound : row.cpu_bound);
  const countCell = (name) => (cell) => {
    const row = cell.getData();
    const value = figures.figure(cell.getValue(), name);
    return row.basis === "modelled" && cell.getValue() !== null ? `≈ ${value}` : value;
  };

  const COLUMNS = [
    { title: "#", field: "index", width: 58, formatter: (cell) => String(cell.getValue()), ...number, headerSortStartingDir: "asc", frozen: !narrow },
    { title: "Operator", field: "type", width: narrow ? 150 : 200, formatter: operatorCell, frozen: !narrow },
    { title: "CPU time", field: "cpu", width: 140, formatter: timeCell("cpu"), ...number },
    ...(data.has_gpu ? [{ title: "GPU time", field: "gpu", width: 140, formatter: timeCell("gpu"), ...number }] : []),
    { title: "Share", field: "share", width: 78, formatter: kind("percent"), ...number },
    { title: "Runs on", field: "placement", width: 92, formatter: (cell) => (sums.runs(cell.getData()) ? chip(cell.getValue()) : figures.UNKNOWN) },
    { title: "Verdict", field: "verdict", width: 160, formatter: verdictCell },
    { title: "Bound", field: "bound", width: 98 },
    { title: "Source line", field: "code", width: 240, formatter: sourceCell },
    { title: "Reason", field: "reason", width: 240, formatter: reasonCell },
    { title: "FLOPs", field: "flops", width: 112, formatter: countCell("flops"), ...number },
    { title: "Bytes", field: "bytes", width: 100, formatter: countCell("bytes"), ...number },
    { title: "FLOP/B", field: "intensity", width: 90, formatter: kind("number"), ...number },
    { title: "Output", field: "outputs", width: 190 },
    { title: "Inputs", field: "inputs", width: 280 },
    { title: "Name", field: "name", width: 200 },
  ];

  const rows = operators.map((row) => ({
    ...row,
    bound: bound(row),
    runs_on: sums.runs(row) ? row.placement : "",
    bytes: row.bytes_read === null || row.bytes_written === null ? null : row.bytes_read + row.bytes_written,
    text: [row.index, row.name, row.type, row.module, row.class, row.file, row.code, row.reason, row.inputs, row.outputs].join(" ").toLowerCase(),
  }));

  // A short table takes no more room than its rows, its head and the bar to scroll with.
  const HEIGHT = Math.min(560, Math.max(220, 46 * rows.length + 60));
  let grid = null;
  let module = null;

  function begin() {
    grid = new Tabulator("#table", {
      data: rows,
      index: "index",
      columns: COLUMNS,
      height: narrow ? "70vh" : HEIGHT,
      rowHeight: 46,
      autoResize: false,
      layout: "fitDataFill",
      columnDefaults: { formatter: (cell) => element("span", { textContent: cell.getValue() || "–", title: cell.getValue() || "" }), headerTooltip: false, resizable: "header" },
      selectableRows: 1,
      selectableRowsPersistence: true,
      placeholder: "No operator fits the filters.",
      groupStartOpen: true,
      groupHeader: groupHead,
    });
    grid.on("tableBuilt", () => {
      named();
      grids.resizes(grid, byId("table"));
      tally();
      grid.on("dataSorted", (sorters) => {
        const told = sorters.map(({ field, dir }) => `${dir === "desc" ? "-" : ""}${field}`).join(",");
        address.set("sort", told === "index" ? null : told, HERE);
      });
      recall();
      report.onSelect((index, from) => {
        // Each step of a walk through a chart would be one of the browser's history as well.
        const step = from !== "keys" || address.get("op") === null;
        address.set("op", index === null ? null : report.operatorNames.all[index], { ...HERE, step });
      });
      address.onChange(recall);
      report.table = grid;
      document.documentElement.dataset.table = "ready";
    });
    grid.on("dataFiltered", (_, kept) => tally(kept.map((row) => row.getData())));
    grid.on("rowClick", (_, row) => report.select(row.getIndex(), "table"));
    offerTypes();
    byId("filters").addEventListener("input", later);
    byId("filters").addEventListener("submit", (event) => event.preventDefault());
    byId("filters").addEventListener("reset", () => setTimeout(() => { module = null; report.tree?.show(null); apply(); group(); }));
    byId("grouping").addEventListener("change", group);
    byId("rows-csv").addEventListener("click", download);
    byId("rows-copy").addEventListener("click", copy);
    document.addEventListener("keydown", slash);
    byId("search").addEventListener("keydown", leave);
    report.onSelect(show);
  }

  // What the address says is shown; a name or a choice that this page lacks is left at the usual one.
  function recall() {
    // Filtering sorts anew, by what was sorted before.
    const order = address.get("sort") || "";
    byId("search").value = address.get("q") || "";
    Object.entries(CHOICES).forEach(([key, [id]]) => pick(byId(id), address.get(key)));
    pick(byId("grouping"), address.get("group"));
    module = report.moduleNames.at(address.get("module"));
    apply();
    group();
    const sorters = order.split(",").map((told) => ({ column: told.replace(/^-/, ""), dir: told.startsWith("-") ? "desc" : "asc" }))
      .filter(({ column }) => COLUMNS.some(({ field }) => field === column));
    if (sorters.length || grid.getSorters().length) grid.setSort(sorters.length ? sorters : "index", "asc");
    const index = report.operatorNames.at(address.get("op"));
    if (index === null) address.set("op", null);
    if (index !== report.selected()) report.select(index === null ? report.selected() : index, "address");
    if (module !== null || index === null) report.tree?.show(module);
  }
  function pick(select, value) {
    select.value = [...select.options].some((option) => option.value === value) ? value : "";
  }

  function named() {
    grids.accessible(byId("table"), "Operators");
  }

  const amount = (count) => `${count.toLocaleString("en-US")} ${count === 1 ? "operator" : "operators"}`;
  function groupName(value, count) {
    const by = byId("grouping").value;
    if (by === "type" || by === "module") return `${value || "no module"} · ${amount(count)}`;
    const found = groups[value];
    if (!found) return `Folded away before the run · ${amount(count)}`;
    const alone = found.type === "" ? found.name : `${found.type} ${found.name}`;
    return `${alone} · ${found.provider} · ${figures.figure(found.time, "seconds")} ${data.marks[found.origin] || ""} · ${count} of ${found.members}`;
  }
  function groupHead(value, count, inside) {
    return element("span", { className: "group-head" }, `${groupName(value, count)} `, ...sums.parts(inside));
  }
  function group() {
    const by = byId("grouping").value;
    grid.setGroupBy(by || false);
    address.set("group", by, HERE);
  }

  function offerTypes() {
    const counts = new Map();
    rows.forEach((row) => counts.set(row.type, (counts.get(row.type) || 0) + 1));
    [...counts].sort(([a], [b]) => a.localeCompare(b)).forEach(([type, count]) =>
      byId("filter-type").append(element("option", { value: type, textContent: `${type} (${count})` })));
  }

  const HERE = { at: "operators" };
  // By its key in the address: the choice and the field that must be what is chosen.
  const CHOICES = { type: ["filter-type", "type"], on: ["filter-placement", "runs_on"], bound: ["filter-bound", "bound"], verdict: ["filter-verdict", "verdict"] };

  let timer = 0;
  function later() { clearTimeout(timer); timer = setTimeout(apply, 120); }
  function apply() {
    const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const exact = Object.values(CHOICES).map(([id, field]) => [field, byId(id).value]).filter(([, value]) => value);
    const inside = module === null ? null : new Set(report.modules.filter((item) => report.ancestry(item.number).includes(module)).map((item) => item.number));
    grid.setFilter((row) =>
      words.every((word) => (/:\d+$/.test(word) ? row.file.toLowerCase().endsWith(word) : row.text.includes(word))) && exact.every(([field, value]) => row[field] === value) && (!inside || inside.has(row.module_number)));
    address.set("q", byId("search").value.trim(), HERE);
    Object.entries(CHOICES).forEach(([key, [id]]) => address.set(key, byId(id).value, HERE));
    address.set("module", moduleKey(), HERE);
  }
  const moduleKey = () => (module === null ? null : report.moduleNames.all[module]);
  function tally(shown = rows) {
    const where = module ? ` in ${report.modules[module].path}` : "";
    byId("found").textContent = `${shown.length.toLocaleString("en-US")} of ${rows.length.toLocaleString("en-US")} operators${where}`;
    byId("sums").replaceChildren(...(shown.length ? sums.parts(shown) : []));
    byId("exported").textContent = "";
  }

  // The rows as filtered and sorted; in parts with a name each where they are grouped.
  const active = () => grid.getRows("active").map((row) => row.getData());
  function parts() {
    if (!byId("grouping").value) return [["", active()]];
    return grid.getGroups().map((part) => {
      const inside = part.getRows().map((row) => row.getData());
      return [`${groupName(part.getKey(), inside.length)} · ${sums.of(inside).map((told) => told.join(" ")).join(" · ")}`, inside];
    });
  }

  // Named as `--format csv` names them where they are the same.
  const EXPORTED = {
    index: "index", name: "name", op_type: "type", domain: "domain", module: "module", module_class: "class", phase: "phase", source: "file", code: "code",
    inputs: "inputs", outputs: "outputs", flops: "flops", macs: "macs", bytes_read: "bytes_read", bytes_written: "bytes_written", intensity: "intensity", basis: "basis", note: "note",
    cpu_time_s: "cpu", cpu_low_s: "cpu_low", cpu_high_s: "cpu_high", cpu_origin: "cpu_origin", cpu_bound: "cpu_bound",
    gpu_time_s: "gpu", gpu_low_s: "gpu_low", gpu_high_s: "gpu_high", gpu_origin: "gpu_origin", gpu_bound: "gpu_bound", gpu_placed_on: "placed_on", gpu_why: "why",
    verdict_device: "verdict", verdict_speedup: "speedup", verdict_reason: "reason", verdict_explanation: "explanation", runs_on: "placement", best_plan_time_s: "best", best_plan_share: "share",
  };
  const exported = () => [Object.keys(EXPORTED), ...active().map((row) => Object.values(EXPORTED).map((field) => row[field]))];
  function download() {
    const told = exported();
    sheets.download(`${data.name}-operators.csv`, sheets.csv(told));
    byId("exported").textContent = `${amount(told.length - 1)} downloaded.`;
  }
  async function copy() {
    const told = exported();
    const copied = await sheets.copy(sheets.tabbed(told));
    byId("exported").textContent = copied ? `${amount(told.length - 1)} copied.` : "This browser does not let the page copy: download them.";
  }

  function slash(event) {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea, [contenteditable]")) return;
    event.preventDefault();
    byId("search").focus();
    byId("search").select();
  }
  // The browser's own answer would empty it as well.
  function leave(event) {
    if (event.key !== "Escape") return;
    event.preventDefault();
    byId("search").blur();
  }

  function only(number) {
    module = number;
    address.set("module", moduleKey(), { ...HERE, step: true });
    apply();
  }

  function show(index, from) {
    if (!grid) return;
    grid.deselectRow();
    detail(index);
    if (index === null) return;
    const found = grid.getRow(index);
    if (!found) return;
    found.select();
    if (from !== "table") grid.scrollToRow(index, "center", false).catch(() => { /* filtered out: nothing to scroll to */ });
  }

  function placed(place) {
    const link = element("a", { href: address.link("source", { line: place }), textContent: place });
    link.addEventListener("click", (event) => { event.preventDefault(); source.show(place); });
    return link;
  }
  function detail(index) {
    const pane = byId("detail");
    pane.hidden = index === null;
    pane.replaceChildren();
    if (index === null) return;
    const row = rows[index];
    const run = (number) => (groups[number] ? `${groups[number].type} ${groups[number].name} (${groups[number].provider}, ${figures.figure(groups[number].time, "seconds")}, ${groups[number].members} operators)` : "");
    const time = (side) => (row[side] === null ? "" : `${figures.figure(row[side], "seconds")} ${row[`${side}_origin`]}${range(row, side) ? `, 90 % interval ${range(row, side)}` : ""}${row[`${side}_bound`] ? `, ${row[`${side}_bound`]}-bound` : ""}`);
    const facts = [
      ["Name", row.name], ["Type", `${row.domain}::${row.type}`], ["Module", [row.module, row.class && `(${row.class})`].filter(Boolean).join(" ")], ["Phase", row.phase],
      ["Source", row.file && placed(row.file)], ["Line", row.code], ["Inputs", row.inputs], ["Outputs", row.outputs], ["Attributes", row.attributes],
      ["FLOPs", `${figures.figure(row.flops, "count")} (${figures.figure(row.macs, "count")} multiply-accumulates), ${row.basis}`], ["Note", row.note],
      ["Bytes", `${figures.figure(row.bytes_read, "count")} read, ${figures.figure(row.bytes_written, "count")} written`], ["FLOPs per byte", figures.figure(row.intensity, "number")],
      ["CPU", time("cpu")], ["GPU", time("gpu")], ["CUDA session", row.placed_on && `${row.placed_on}: ${row.why}`],
      ["In the CPU session", run(row.group_cpu)], ["In the CUDA session", run(row.group_gpu)],
      ["Best plan", NAMES[row.runs_on]], ["Verdict", `${row.verdict_word}${row.verdict_aside && ` (${row.verdict_aside})`} ${figures.figure(row.speedup, "factor")}: ${row.explanation || row.reason}`],
    ].filter(([, value]) => value);
    const close = element("button", { type: "button", className: "button", textContent: "Close" });
    close.addEventListener("click", () => report.select(index, "detail"));
    pane.append(
      element("div", { className: "detail-head" }, element("h3", { textContent: `${row.type} #${row.index}` }), close),
      element("dl", {}, ...facts.map(([name, value]) => element("div", {}, element("dt", { textContent: name }), element("dd", {}, value)))),
    );
  }

  return { begin, only, parts, range, NAMES, HEIGHT, module: () => module };
})();
