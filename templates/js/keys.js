// The keyboard's way into a chart: check boxes that do what its legend does, arrow keys that step through its data.
"use strict";
const keys = (() => {
  const { data, modules, element } = report;

  // The selections that a chart's legends are bound to: name, field, title and the values in its data.
  function selections(name, cells) {
    const { spec, columns } = data.charts[name];
    const params = [spec, ...(spec.layer || [])].flatMap((part) => part.params || []).filter((param) => param.bind === "legend");
    return params.map((param) => {
      const at = columns.findIndex((column) => column.name === param.select.fields[0]);
      return { name: param.name, field: columns[at].name, title: columns[at].title, values: [...new Set(cells.map((row) => row[at]))] };
    }).filter((param) => param.values.length > 1);
  }

  // A box for each entry of the legends. They write to the store that a click on the legend writes to, and read from it.
  function filters(figure, view, cells) {
    const found = selections(figure.dataset.chart, cells);
    figure.querySelector(".filter")?.remove();
    if (found.length === 0) return;
    const summary = element("summary", { className: "button", textContent: "Filter" });
    summary.setAttribute("aria-label", `Filter “${figure.querySelector("h3").textContent}”`);
    figure.querySelector(".chart-tools").append(element("details", { className: "filter" }, summary, ...found.map((param) => boxes(view, param))));
  }

  function boxes(view, { name, field, title, values }) {
    const store = `${name}_store`;
    const made = values.map((value) => element("input", { type: "checkbox", checked: true, value }));
    const fields = () => { try { return view.signal(`${name}_tuple_fields`); } catch { return [{ type: "E", field }]; } };
    const apply = () => {
      const kept = values.filter((_, at) => made[at].checked);
      // No entry at all is how the library says "all of them".
      const entries = kept.length === values.length ? [] : kept.length === 0 ? [null] : kept;
      view.data(store, entries.map((value) => ({ unit: "", fields: fields(), values: [value] }))).runAsync();
    };
    made.forEach((box) => box.addEventListener("change", apply));
    view.addDataListener(store, (_, entries) => {
      const kept = entries.flatMap((entry) => entry.values);
      made.forEach((box, at) => { box.checked = entries.length === 0 || kept.includes(values[at]); });
    });
    return element("fieldset", {}, element("legend", { textContent: title }), ...made.map((box, at) => element("label", {}, box, ` ${values[at]}`)));
  }

  const HINTS = {
    "by-module": "Left and right step to the next module, down into it and up out of it; Enter looks inside, Escape shows the whole model.",
    timeline: "The arrow keys step through it; plus and minus zoom, 0 shows all.",
  };
  const HINT = "The arrow keys step through the data.";

  // Each row is said; where it is an operator it is selected.
  function walk(figure, cellsOf, viewOf) {
    const name = figure.dataset.chart;
    const target = figure.querySelector(".drawing");
    const status = element("p", { className: "step", role: "status" });
    const hint = HINTS[name] || HINT;
    target.after(status);
    target.tabIndex = 0;
    target.setAttribute("role", "group");
    target.setAttribute("aria-label", `${figure.querySelector("h3").textContent}. ${hint}`);
    let at = -1;
    const say = (cells) => {
      const { columns } = data.charts[name];
      status.textContent = columns.map((column, place) => `${column.title} ${figures.figure(cells[at][place], column.kind)}`).join(", ");
      const index = cells[at][columns.findIndex((column) => column.name === "index")];
      if (Number.isInteger(index) && index !== report.selected()) report.select(index, "keys");
    };
    target.addEventListener("keydown", (event) => {
      if (event.target !== target || event.ctrlKey || event.metaKey || event.altKey) return;
      const cells = cellsOf(name);
      const view = viewOf(name);
      const step = name === "by-module" ? inTree(event.key, at) : inRow(event.key, at, cells.length);
      if (step !== null) {
        at = step;
        say(cells);
        if (name === "by-module") view?.signal("picked", at).runAsync();
      } else if (!(view && (name === "by-module" ? look(view, event.key, at) : name === "timeline" && zoom(view, event.key, cells[at])))) return;
      event.preventDefault();
    });
    target.addEventListener("focus", () => { if (target.matches(":focus-visible")) status.textContent = hint; });
    target.addEventListener("blur", () => { status.textContent = ""; });
  }

  function inRow(key, at, length) {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[key];
    if (step) return at < 0 && step < 0 ? length - 1 : (at + step + length) % length;
    return { Home: 0, End: length - 1 }[key] ?? null;
  }

  // Rows of the tree are its modules by number, parents before children.
  function inTree(key, at) {
    if (!["ArrowRight", "ArrowLeft", "ArrowUp", "ArrowDown", "Home"].includes(key)) return null;
    if (at < 0 || key === "Home") return 0;
    if (key === "ArrowUp") return modules[at].parent ?? 0;
    if (key === "ArrowDown") return modules.find((item) => item.parent === at)?.number ?? at;
    const row = modules.filter((item) => item.parent === modules[at].parent);
    const place = row.findIndex((item) => item.number === at) + (key === "ArrowRight" ? 1 : -1);
    return (row[place] || modules[at]).number;
  }

  function look(view, key, at) {
    const inside = { Escape: 0, Enter: at, " ": at }[key] ?? -1;
    if (inside < 0) return false;
    view.signal("focus", inside).runAsync();
    return true;
  }

  // Around the step that the arrow keys have come to, else around the middle.
  function zoom(view, key, row) {
    const factor = { "+": 0.5, "=": 0.5, "-": 2, "0": Infinity }[key];
    if (!factor) return false;
    const all = view.data("table").reduce((end, item) => Math.max(end, item.start + item.time), 0);
    const [low, high] = view.scale("x").domain();
    const width = Math.min((high - low) * factor, all);
    const { columns } = data.charts.timeline;
    const start = row ? row[columns.findIndex((column) => column.name === "start")] : (low + high) / 2;
    const from = Math.min(Math.max(start - width / 2, 0), all - width);
    view.signal("zoom_start", factor === Infinity ? null : [from, from + width]).runAsync();
    return true;
  }

  return { filters, walk };
})();
