// Draws the charts, each when it comes near, the rest when there is time; keeps their data as tables and CSV.
"use strict";
const charts = (() => {
  const { data, element } = report;
  const views = new Map();
  const MANY = 4000;

  vega.expressionFunction("figure", (value, kind) => figures.figure(value, kind));
  const FONT = data.style.font;
  const NARROW = matchMedia("(max-width: 700px)").matches;
  // Legends stand below each other where there is no room for them side by side.
  function config(width) {
    const layout = width < 520 ? { layout: { top: { direction: "vertical", anchor: "start", margin: 4 } } } : {};
    return { ...data.style, legend: { ...data.style.legend, ...layout, ...(NARROW ? { columns: 2 } : {}) } };
  }

  // SVG takes the page's colours as variables; a canvas needs their values.
  function resolved(value) {
    if (Array.isArray(value)) return value.map(resolved);
    if (value && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([key, part]) => [key, resolved(part)]));
    if (typeof value !== "string" || !value.startsWith("var(")) return value;
    return getComputedStyle(document.documentElement).getPropertyValue(value.slice(4, -1)).trim();
  }

  // Rows as arrays, in the order of the columns.
  const unpacked = new Map();
  function cellsOf(name) {
    if (!unpacked.has(name)) {
      const { cells, columns } = data.charts[name];
      const lists = cells.map((column) => (column.lookup ? null : report.unpack(column)));
      const keys = lists[columns.findIndex((column) => column.name === "index" || column.name === "id")];
      cells.forEach((column, at) => {
        if (!column.lookup) return;
        const [source, field] = column.lookup;
        lists[at] = keys.map((key) => (key === null ? "" : report[source][key][field]));
      });
      unpacked.set(name, lists[0].map((_, at) => lists.map((list) => list[at])));
    }
    return unpacked.get(name);
  }
  function rows(name) {
    const { columns } = data.charts[name];
    return cellsOf(name).map((row) => Object.fromEntries(columns.map((column, at) => [column.name, row[at]])));
  }

  function specification(name) {
    const { spec, extra } = data.charts[name];
    return { $schema: "https://vega.github.io/schema/vega-lite/v6.json", ...spec, datasets: { table: rows(name), picked: [], ...extra } };
  }

  async function draw(figure) {
    const name = figure.dataset.chart;
    const target = figure.querySelector(".drawing");
    const canvas = cellsOf(name).length > MANY;
    const prepared = specification(name);
    const title = figure.querySelector("h3").textContent;
    const result = await vegaEmbed(target, canvas ? resolved(prepared) : prepared, {
      mode: "vega-lite",
      renderer: canvas ? "canvas" : "svg",
      config: canvas ? resolved(config(target.clientWidth)) : config(target.clientWidth),
      actions: false,
      tooltip: { theme: "custom" },
      logLevel: vega.Error,
    });
    const drawing = target.querySelector("svg.marks, canvas.marks");
    // Paper is light: what a canvas has in the dark colours is turned round there.
    drawing.classList.toggle("drawn-dark", canvas && getComputedStyle(document.documentElement).colorScheme === "dark");
    const words = figure.querySelector("figcaption").lastChild.textContent;
    named(target, drawing, title, figure.querySelector("figcaption").textContent);
    views.set(name, result.view);
    keys.filters(figure, result.view, cellsOf(name));
    pictures.menu(figure.querySelector(".chart-tools"), {
      title, name, drawn: () => result.view.toSVG(), said: () => ({ words, ...data.captions[name], ...width(name) }), csv: () => csv(name),
    });
    result.view.addEventListener("click", (_, item) => {
      // Entries of a legend have an index of their own.
      const index = item && item.mark.role === "mark" && item.datum && item.datum.index;
      if (Number.isInteger(index)) report.select(index, "chart");
      if (name === "by-module" && item?.mark.marktype === "rect") result.view.signal("focus", item.datum.id).runAsync();
    });
    if (name === "by-module") measured();
    if (name === "roofline" || name === "by-module") mark(report.selected());
    figure.dataset.drawn = "yes";
  }

  // Of the modules the reader chooses what is shown, which the title does not say.
  function width(name) {
    const chosen = name === "by-module" && document.getElementById("measure");
    return chosen ? { footer: `Width: ${chosen.selectedOptions[0].textContent}. ${data.captions[name].footer}` } : {};
  }

  function named(target, drawing, title, words) {
    drawing.setAttribute("role", "img");
    [...drawing.children].forEach((part) => part.setAttribute("aria-hidden", "true"));
    drawing.setAttribute("aria-label", `${title}. ${words}`);
    const menu = target.querySelector("summary");
    if (menu) menu.setAttribute("aria-label", `Save “${title}” as a picture`);
  }

  const pending = new Set(document.querySelectorAll("[data-chart]"));
  function start(figure) {
    if (!pending.delete(figure)) return Promise.resolve();
    return draw(figure);
  }
  // What is folded is drawn when it is opened: until then it has no width.
  const folded = (figure) => figure.closest("details:not([open])");
  const idle = window.requestIdleCallback || ((work) => setTimeout(work, 50));
  function rest() {
    const next = [...pending].find((figure) => !folded(figure));
    if (next) start(next).then(() => idle(rest));
    else {
      document.documentElement.dataset.charts = "drawn";
      afterwards();
    }
  }

  // Draws everything; what comes after the charts is begun when there is time for it.
  let afterwards = () => {};
  function begin(next) {
    if (next) afterwards = next;
    const watcher = new IntersectionObserver((entries) => {
      entries.filter((entry) => entry.isIntersecting && !folded(entry.target)).forEach((entry) => start(entry.target));
    }, { rootMargin: "300px" });
    pending.forEach((figure) => watcher.observe(figure));
    document.querySelectorAll(".fold").forEach((fold) => fold.addEventListener("toggle", () => [...pending].filter((figure) => fold.contains(figure) && !folded(figure)).forEach(start)));
    idle(rest);
  }

  async function mark(index) {
    const view = views.get("roofline");
    if (view) {
      const picked = index === null ? [] : rows("roofline").filter((row) => row.index === index);
      await view.data("picked", picked).resize().runAsync();
    }
    const icicle = views.get("by-module");
    if (icicle) await icicle.signal("picked", index === null ? -1 : report.operators[index].module_number).runAsync();
  }

  // What the widths stand for lives in the address; a measure that this page lacks is left at the usual one.
  const measure = document.getElementById("measure");
  const usual = measure && measure.options[0].value;
  function recall() {
    const asked = address.get("measure");
    measure.value = [...measure.options].some((option) => option.value === asked) ? asked : usual;
    told();
    measured();
  }
  const told = (options) => address.set("measure", measure.value === usual ? null : measure.value, options);
  function measured() {
    const view = views.get("by-module");
    if (view && measure && view.signal("measure") !== measure.value) view.signal("measure", measure.value).runAsync();
  }

  function redraw(name) {
    const figure = document.querySelector(`[data-chart="${CSS.escape(name)}"]`);
    views.get(name).finalize();
    return draw(figure);
  }

  // Colours of what is on a canvas.
  addEventListener("themechange", () => {
    [...views.keys()].filter((name) => cellsOf(name).length > MANY).forEach(redraw);
  });

  function numbers(details) {
    const holder = details.querySelector(".numbers-table");
    if (holder.firstChild) return;
    const { columns } = data.charts[details.dataset.numbers];
    const cells = cellsOf(details.dataset.numbers);
    const head = element("tr", {}, ...columns.map((column) => element("th", { scope: "col", textContent: column.title })));
    const shown = cells.slice(0, 500).map((row) => element("tr", {}, ...row.map((cell, at) =>
      element("td", { className: columns[at].kind === "text" ? "" : "num", textContent: figures.figure(cell, columns[at].kind) }))));
    holder.append(element("table", { className: "plain" }, element("thead", {}, head), element("tbody", {}, ...shown)));
    if (cells.length > shown.length) holder.append(element("p", { textContent: `The first ${shown.length} of ${cells.length} rows; the CSV has all.` }));
  }

  const csv = (name) => sheets.csv([data.charts[name].columns.map((column) => column.name), ...cellsOf(name)]);

  document.querySelectorAll("[data-chart]").forEach((figure) => keys.walk(figure, cellsOf, (name) => views.get(name)));
  document.querySelectorAll("[data-numbers]").forEach((details) => details.addEventListener("toggle", () => numbers(details)));
  document.querySelectorAll("[data-csv]").forEach((button) => button.addEventListener("click", () => sheets.download(`${data.name}-${button.dataset.csv}.csv`, csv(button.dataset.csv))));
  if (measure) {
    measure.addEventListener("change", () => {
      told({ at: "where" });
      measured();
    });
    address.onChange(recall);
    recall();
  }
  const out = document.getElementById("focus-out");
  if (out) out.addEventListener("click", () => views.get("by-module")?.signal("focus", 0).runAsync());
  report.onSelect(mark);

  return { begin, views, csv, named, FONT };
})();
