// The what-if of a capacity plan: other traffic, limits and prices, answered from the rates that the page carries.
"use strict";
const capacity = (() => {
  const { data, element } = report;
  const told = data.capacity;

  // The highest rate of one instance within a limit, between the limits that are known on a line in logarithms.
  // Below the first of them nothing is known (undefined), above the last no more than there. null: none.
  function highest(limits, limit) {
    const at = limits.filter(([end]) => end <= limit).length - 1;
    if (at < 0 || limits[at][1] === 0) {
      // What is not kept within a limit is not kept within a shorter one.
      const from = limits.find(([end]) => end >= limit);
      return limits.length && (from === undefined || from[1] === 0) ? null : undefined;
    }
    const [end, rate, batch, delay] = limits[at];
    const next = limits[at + 1];
    if (end === limit || next === undefined || next[1] === 0) return { rate, batch, delay };
    const part = Math.log(limit / end) / Math.log(next[0] / end);
    return { rate: rate * (next[1] / rate) ** part, batch, delay };
  }

  // The share of time in use at this rate: a line between the loads that are known, from none at no load on.
  function busy(loads, rate) {
    const at = loads.findIndex(([load]) => load >= rate);
    if (at < 0) return loads.length ? loads.at(-1)[1] : null;
    const [before, from] = at ? loads[at - 1] : [0, 0];
    const [load, to] = loads[at];
    return from + ((to - from) * (rate - before)) / (load - before);
  }

  // How many of one instance, and for how many dollars. All of the what-if's arithmetic is in these three.
  function plan(question, instance) {
    const usd = instance.usd[question.pricing];
    const found = highest(instance.limits, question.limit);
    if (!found) return { instance, kept: false, why: found === null ? "limit" : "unknown" };
    if (usd === undefined) return { instance, kept: false, why: "price" };
    const planned = question.rate * question.growth;
    // A rate that is met exactly stays so, however its product was rounded: as the program sizes.
    const count = Math.max(1, Math.ceil(((planned * (1 + question.headroom)) / found.rate) * (1 - 1e-12))) + question.spare;
    const month = count * usd * told.hours;
    return {
      instance, kept: true, count, ...found, month,
      utilisation: busy(instance.loads, planned / count),
      million: (month / (planned * told.hours * told.seconds_per_hour)) * 1e6,
    };
  }

  // Without a price it stands behind what has one: null would be no dollars at all.
  const month = (row) => row.month ?? Number.MAX_VALUE;
  const order = (a, b) => Number(b.kept) - Number(a.kept) || (a.kept ? month(a) - month(b) : 0) || a.instance.at - b.instance.at;
  // For what was asked the record has the answer, and its utilisation is better than a line between loads.
  const same = (asked) => Object.entries(told.question).every(([name, own]) => asked[name] === own);
  const recorded = (instance) => (instance.own ? { instance, kept: true, ...instance.own } : { instance, kept: false, why: "limit" });
  const plans = (question) => told.instances.map((instance) => (same(question) ? recorded(instance) : plan(question, instance))).sort(order);

  const form = document.getElementById("what-if-form");
  const answer = document.getElementById("what-if-answer");
  const inputs = [...form.elements].filter((input) => input.name);

  // A field that nobody touched keeps the question's own value to the last digit.
  const SCALES = { limit: 1e-3, headroom: 1e-2 };
  function value(input) {
    if (input.name === "pricing") return input.value;
    return input.value === input.defaultValue ? told.question[input.name] : Number(input.value) * (SCALES[input.name] ?? 1);
  }
  function wrong(input) {
    if (input.name === "pricing") return "";
    const number = Number(input.value);
    const label = input.parentElement.firstChild.textContent.trim();
    if (input.value === "" || !Number.isFinite(number)) return `${label}: give a number.`;
    if (input.dataset.above && number <= 0) return `${label}: it must be above 0.`;
    if (number < 0) return `${label}: it cannot be below 0.`;
    if (input.step === "1" && !Number.isInteger(number)) return `${label}: give a whole number.`;
    return "";
  }
  const question = () => Object.fromEntries(inputs.map((input) => [input.name, value(input)]));

  const { figure, UNKNOWN } = figures;
  const rateOf = (rate) => (rate >= 1e3 ? figure(rate, "whole") : figure(rate, "number"));
  const delayOf = (delay) => (delay ? `${figure(delay, "seconds")} delay` : "no delay");
  const sequencesOf = (most) => (most <= 1 ? "one sequence at a time on a copy of the model" : `at most ${figure(most, "count")} sequences at once on a copy of the model`);
  const batchOf = ({ batch, delay }) => told.generates ? sequencesOf(batch) : (batch <= 1 ? "each request alone" : `batches of at most ${figure(batch, "count")}, ${delayOf(delay)}`);

  const wayOf = (asked) => told.ways[asked.pricing] || "as listed";
  function why(row, asked) {
    if (row.why === "price") return `no price (${wayOf(asked)}) is known`;
    if (same(asked) && row.instance.reason) return row.instance.reason;
    const known = row.instance.limits.findIndex(([, rate]) => rate > 0);
    // Below the first limit that was worked out nothing is known.
    const least = known < 0 ? "" : `; ${known ? "the least that it keeps" : "the least that was worked out"} is ${figure(row.instance.limits[known][0], "seconds")}`;
    if (row.why === "unknown") return `not known for ${figure(asked.limit, "seconds")}${least}`;
    return `keeps no ${told.limited} of ${figure(asked.limit, "seconds")}${least}`;
  }

  // Of those that do not keep the limit: by the least limit that they keep, then by the rate that they take there.
  function nearest(rows) {
    const first = ({ instance }) => instance.limits.find(([, rate]) => rate > 0) || [Infinity, 0];
    return [...rows].sort((a, b) => first(a)[0] - first(b)[0] || first(b)[1] - first(a)[1])[0];
  }

  const perToken = ({ million }) => (told.tokens ? `${figure(million / told.tokens, "dollars")} per M tokens out` : "");
  const cell = (text, beside, more = {}) => element("td", more, text, beside ? element("small", { textContent: ` ${beside}` }) : null);
  function line(row, asked) {
    const { instance } = row;
    const head = element("th", { scope: "row", textContent: instance.instance }, element("small", { textContent: ` ${instance.place}` }));
    if (!row.kept) {
      const none = (length) => Array.from({ length }, () => cell(UNKNOWN, "", { className: "num" }));
      return element("tr", { className: "pale" }, head, ...none(2), cell(instance.device), ...none(4), cell(why(row, asked)));
    }
    const num = { className: "num" };
    return element("tr", {}, head,
      cell(figure(row.count, "count"), "", num), cell(figure(row.month, "dollars"), "", num), cell(instance.device),
      cell(figure(row.batch, "count"), row.batch > 1 && !told.generates ? delayOf(row.delay) : "", num), cell(`${rateOf(row.rate)}/s`, "", num),
      cell(figure(row.utilisation, "share"), "", num), cell(figure(row.million, "dollars"), perToken(row), num), cell(""));
  }

  function difference(month, own) {
    if (!own.kept) return "Nothing keeps the limit of the question.";
    const more = month - own.month;
    if (Math.abs(more) < 0.005) return "The same dollars as for the question.";
    return `${figure(Math.abs(more), "dollars")} a month ${more > 0 ? "more" : "less"} than for the question (${own.count} x ${own.instance.instance}).`;
  }

  function say(text, detail, kind) {
    answer.className = `verdict alone verdict-${kind}`;
    answer.querySelector(".sentence").textContent = text;
    answer.querySelector(".sure").textContent = detail;
  }

  const asIs = plans(told.question)[0];
  function show() {
    const faults = inputs.map((input) => { const fault = wrong(input); input.setAttribute("aria-invalid", String(Boolean(fault))); return fault; }).filter(Boolean);
    if (faults.length) { say(faults[0], "The table is that of the last complete question.", "either"); return; }
    const asked = question();
    const rows = plans(asked);
    const best = rows.find((row) => row.kept);
    if (!best) {
      const near = nearest(rows.filter((row) => row.why !== "price"));
      const open = rows.some((row) => row.why === "unknown");
      const priced = rows.some((row) => row.why === "price") ? ` for which a price (${wayOf(asked)}) is known` : "";
      const limit = `a ${told.limited} of ${figure(asked.limit, "seconds")}`;
      say(open ? `Whether an instance${priced} keeps ${limit} is not known here: analyze capacity with that limit tells.` : `No instance${priced} keeps ${limit}.`,
        near ? `${near.instance.where} comes nearest: ${why(near, asked).replace(/\.$/, "")}.` : "", "either");
    } else {
      const other = rows.find((row) => row.kept && row.instance.kind !== best.instance.kind);
      const beside = other ? ` Cheapest ${other.instance.kind === "gpu" ? "with" : "without"} a GPU: ${figure(other.count, "count")} x ${other.instance.instance}, ${figure(other.month, "dollars")}.` : "";
      say(`${figure(best.count, "count")} x ${best.instance.where}: ${figure(best.month, "dollars")} a month.`,
        `${same(asked) ? "This is what was asked." : difference(best.month, asIs)} One takes up to ${rateOf(best.rate)} requests/s; ${batchOf(best)}.${beside}`, best.instance.kind);
    }
    document.getElementById("what-if-rows").replaceChildren(...rows.map((row) => line(row, asked)));
  }

  form.addEventListener("input", show);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(show));
  show();
  return { highest, busy, plan, plans, question: told.question, instances: told.instances };
})();
