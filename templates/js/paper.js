// The table of operators on paper, there while the page prints: all rows that were filtered or grouped for it, else those that take longest.
"use strict";
const paper = (() => {
  const { data, element } = report;
  const FIGURES = new Set(["#", "CPU", "GPU", "Share", "FLOPs", "Bytes", "FLOP/B"]);
  const kind = (title) => (FIGURES.has(title) ? "figure" : title === "Runs on" ? "whole" : "");

  const signed = (row, side) => `${figures.figure(row[side], "seconds")} ${row[side] === null ? "" : data.marks[row[`${side}_origin`]] || ""}`;
  const count = (row, field, kind) => `${row.basis === "modelled" && row[field] !== null ? "≈ " : ""}${figures.figure(row[field], kind)}`;
  const COLUMNS = [
    ["#", (row) => [String(row.index)]],
    ["Operator", (row) => [row.type, [row.module, row.name].filter(Boolean).join(" · ")]],
    ["CPU", (row) => [signed(row, "cpu"), table.range(row, "cpu")]],
    ...(data.has_gpu ? [["GPU", (row) => [signed(row, "gpu"), table.range(row, "gpu")]]] : []),
    ["Share", (row) => [figures.figure(row.share, "percent")]],
    ["Runs on", (row) => [table.NAMES[row.runs_on] || figures.UNKNOWN, row.bound]],
    ["Verdict", (row) => [row.verdict_word, [row.speedup === null ? "" : figures.figure(row.speedup, "factor"), row.reason].filter(Boolean).join(", ")]],
    ["Source line", (row) => [row.code || figures.UNKNOWN, row.file]],
    ["FLOPs", (row) => [count(row, "flops", "flops")]],
    ["Bytes", (row) => [count(row, "bytes", "bytes")]],
    ["FLOP/B", (row) => [figures.figure(row.intensity, "number")]],
    ["Output", (row) => [row.outputs, row.inputs && `from ${row.inputs}`]],
  ];

  const line = (row) => element("tr", {}, ...COLUMNS.map(([title, told]) => {
    const [first, second] = told(row);
    return element("td", { className: kind(title), textContent: first }, second ? element("small", { textContent: second }) : null);
  }));
  const head = (text) => element("tr", { className: "group" }, element("th", { colSpan: COLUMNS.length, scope: "rowgroup", textContent: text }));

  const MOST = 12;
  function chosen() {
    const parts = table.parts();
    const [text, rows] = parts[0] || ["", []];
    if (text || rows.length < report.operators.length || rows.length <= MOST) return parts;
    return [[`The ${MOST} of ${rows.length} operators that take longest`, [...rows].sort((a, b) => (b.share || 0) - (a.share || 0) || a.index - b.index).slice(0, MOST)]];
  }

  function made() {
    const heads = element("tr", {}, ...COLUMNS.map(([title]) => element("th", { scope: "col", className: kind(title), textContent: title })));
    const lines = chosen().flatMap(([text, rows]) => [...(text ? [head(text)] : []), ...rows.map(line)]);
    return element("table", {}, element("thead", {}, heads), element("tbody", {}, ...lines));
  }

  addEventListener("beforeprint", () => document.getElementById("paper").replaceChildren(made()));
  addEventListener("afterprint", () => document.getElementById("paper").replaceChildren());
})();
