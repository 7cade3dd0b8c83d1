// Sums of operators, each with its origin and with how many are unknown.
"use strict";
const sums = (() => {
  const { data, operators, element } = report;

  // An operator's time is its share of what its group takes in the session: a group is in a sum once, whatever is left out of it.
  const TIMES = [
    ["CPU", "cpu", (row) => row.cpu_origin],
    ...(data.has_gpu ? [["GPU", "gpu", (row) => row.gpu_origin]] : []),
    [["Best plan", data.apart].filter(Boolean).join(" "), "best", (row) => row[`${row.placement}_origin`]],
  ];
  const COUNTS = [["FLOPs", "flops", "flops"], ["Bytes", "bytes", "bytes"]];

  // What is folded runs never: it has no time, and none that is unknown.
  const runs = (row) => row.reason !== "folded";
  function total(rows, field) {
    const known = rows.filter((row) => row[field] !== null);
    const unknown = rows.filter((row) => row[field] === null && runs(row)).length;
    return { sum: known.reduce((sum, row) => sum + row[field], 0), unknown, any: known.length > 0 };
  }
  const whole = total(operators, "best").sum;

  // What takes no time comes from nowhere.
  function sign(rows, field, originOf) {
    const origins = new Set(rows.filter((row) => row[field]).map(originOf));
    return origins.size === 0 ? "" : ` ${data.marks[origins.size > 1 ? "mixed" : [...origins][0]] || ""}`.trimEnd();
  }
  function figure({ sum, unknown, any }, kind, mark = "") {
    if (!any) return unknown ? "unknown" : figures.UNKNOWN;
    return `${figures.figure(sum, kind)}${mark}${unknown ? ` + ${unknown.toLocaleString("en-US")} unknown` : ""}`;
  }

  // Pairs of a name and a figure.
  function of(rows) {
    const times = TIMES.map(([title, field, originOf]) => [title, figure(total(rows, field), "seconds", sign(rows, field, originOf))]);
    const best = total(rows, "best");
    if (whole > 0 && best.any) times.push(["Share", figures.figure(best.sum / whole, "percent")]);
    const modelled = rows.some((row) => row.basis === "modelled");
    const mark = modelled && data.marks.modelled ? ` ${data.marks.modelled}` : "";
    return [...times, ...COUNTS.map(([title, field, kind]) => [title, figure(total(rows, field), kind, mark)])];
  }

  const parts = (rows) => of(rows).map(([title, text]) => element("span", { className: "sum" }, `${title} `, element("strong", { textContent: text })));

  return { of, parts, runs };
})();
