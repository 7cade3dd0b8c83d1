// The model's code: the lines that operators name, each with its share of the best plan's time and its device in the margin.
"use strict";
const source = (() => {
  const { operators, element } = report;
  const HOT = 0.02;
  const made = new Map();

  // What the operators of a line take together, by file.
  const files = new Map();
  operators.filter((row) => row.file).forEach((row) => {
    const [file, number] = row.file.split(/:(?=\d+$)/);
    if (!files.has(file)) files.set(file, new Map());
    const line = files.get(file).get(row.file) || { place: row.file, number: Number(number), code: row.code, rows: 0, share: 0, on: new Set() };
    line.rows += 1;
    line.share += row.share || 0;
    if (row.share) line.on.add(row.placement);
    files.get(file).set(row.file, line);
  });
  const spent = (found) => found.reduce((sum, line) => sum + line.share, 0);

  function row(line) {
    const device = line.on.size > 1 ? "hybrid" : [...line.on][0];
    const bar = element("span", { className: "bar" });
    bar.style.setProperty("--part", line.share);
    const link = element("a", { href: address.link("operators", { q: line.place }), textContent: line.number || "–", title: `${line.place}: ${line.rows} operator${line.rows === 1 ? "" : "s"} in the table` });
    const cells = [["share", bar, ` ${figures.figure(line.share, "percent")}`], ["", device ? element("span", { className: `chip chip-${device}`, textContent: table.NAMES[device] }) : ""], ["num", link], ["", element("code", { textContent: line.code })]];
    const part = element("tr", { className: line.share >= HOT ? "hot" : "" }, ...cells.map(([className, ...inner]) => element("td", { className }, ...inner)));
    made.set(line.place, part);
    return part;
  }
  function sheet([file, found]) {
    const head = element("tr", {}, ...["Share", "Runs on", "Line", "Code"].map((text) => element("th", { scope: "col", textContent: text, className: text === "Line" ? "num" : "" })));
    const body = found.sort((a, b) => a.number - b.number).flatMap((line, at) => [...(at && line.number > found[at - 1].number + 1 ? [element("tr", { className: "gap" }, element("td", { colSpan: 4, textContent: "⋯" }))] : []), row(line)]);
    const caption = element("caption", { textContent: `${file}, ${figures.figure(spent(found), "percent")} of the time` });
    return element("table", { className: "code" }, caption, element("thead", {}, head), element("tbody", {}, ...body));
  }

  // The line has the focus, and is a part of the address.
  function show(place) {
    const part = made.get(place);
    if (!part) return;
    address.set("line", place, { at: "source" });
    part.scrollIntoView({ block: "center" });
    part.querySelector("a").focus({ preventScroll: true });
  }
  function step(event) {
    const way = { j: 1, k: -1 }[event.key];
    if (!way || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea, [contenteditable]")) return;
    const hot = [...made].filter(([, part]) => part.className === "hot").map(([place]) => place);
    const at = hot.indexOf(address.get("line"));
    if (hot.length) show(hot[at < 0 ? (way > 0 ? 0 : hot.length - 1) : (at + way + hot.length) % hot.length]);
  }

  const holder = document.getElementById("source-lines");
  if (holder) {
    holder.replaceChildren(...[...files].map(([file, found]) => [file, [...found.values()]]).sort(([, a], [, b]) => spent(b) - spent(a)).map(sheet));
    document.addEventListener("keydown", step);
    document.querySelectorAll("[data-line]").forEach((link) => link.addEventListener("click", (event) => { event.preventDefault(); show(link.dataset.line); }));
    if (address.get("line")) show(address.get("line"));
  }

  return { show };
})();
