// The what-if of a run or a request: another batch, other limits, answered from the batches that were worked out.
"use strict";
(() => {
  const form = document.getElementById("batch-form");
  if (!form) return;
  const { figure } = figures;
  const told = report.data.sweep;
  const answer = document.getElementById("batch-answer");
  const [sentence, sure] = answer.querySelectorAll("p");
  const signs = report.data.marks;
  const names = Object.keys(told.limits);
  const request = names.length > 1;
  const rate = (value) => request ? `${figure(Math.round(value), "count")} tokens/s` : figure(value, "per_second");
  const time = (origin, [low, value, high]) => [figure(value, "seconds"), signs[origin], low && high ? `(${figure(low, "seconds")} to ${figure(high, "seconds")})` : ""].filter(Boolean).join(" ");
  const times = ([, origin, ...all]) => all.map((one, at) => (request ? ["first token ", "each further one "][at] : "") + time(origin, one)).join(", ");
  const quickest = (plans) => Object.entries(plans).sort(([, one], [, other]) => one[2][1] - other[2][1]);
  const limits = () => names.map((name) => Number(form[name].value) / 1e3);
  const keeps = (plan) => limits().every((limit, at) => !limit || plan[2 + at][1] <= limit);
  const within = () => limits().filter(Boolean).map((limit) => figure(limit, "seconds")).join(" and ");

  function largest() {
    const kept = {};
    told.rows.forEach(([batch, plans]) => Object.entries(plans).forEach(([name, plan]) => { if (keeps(plan)) kept[name] = [batch, plan]; }));
    const said = Object.entries(kept).map(([name, [batch, plan]]) => `${name} ${figure(batch, "count")} (${rate(plan[0])})`);
    return said.length ? `Largest batch worked out within ${within()}: ${said.join(", ")}.` : `No batch that was worked out keeps ${within()}.`;
  }

  function show() {
    const batch = Number(form.batch.value);
    if (!Number.isInteger(batch) || batch < 1 || !limits().every((limit) => limit >= 0)) { sentence.textContent = "Give a whole number as the batch and a limit above 0."; sure.textContent = ""; return; }
    const row = told.rows.find(([known]) => known === batch);
    const plans = row ? quickest(row[1]) : [];
    const near = told.rows.filter(([known], at) => known < batch ? (told.rows[at + 1]?.[0] ?? Infinity) > batch : told.rows[at - 1]?.[0] < batch);
    if (plans.length) {
      sentence.textContent = `At batch ${figure(batch, "count")}: ${plans.map(([name, plan]) => `${name} ${times(plan)}, ${rate(plan[0])}`).join("; ")}.`;
    } else if (row) {
      sentence.textContent = `Batch ${figure(batch, "count")} does not fit.`;
    } else {
      const between = near.map(([known, of]) => `${figure(known, "count")} (${quickest(of).slice(0, 1).map(([name, plan]) => `${name} ${times(plan)}`).join("") || "does not fit"})`);
      const flags = names.map((name) => (form[name].value ? ` --${name} ${form[name].value}ms` : "")).join("");
      sentence.textContent = `Batch ${figure(batch, "count")} was not worked out${between.length ? `; next to it are ${between.join(" and ")}` : ""}.${told.command ? ` ${told.command.replace("--batch BATCH", `--batch ${batch}`)}${flags} answers it.` : ""}`;
    }
    const kept = plans.find(([, plan]) => keeps(plan));
    const verdict = plans.length ? (kept ? `${kept[0]} keeps ${within()}. ` : `Nothing keeps ${within()} there. `) : "";
    sure.textContent = within() ? verdict + largest() : "";
  }

  form.slider.addEventListener("input", () => { form.batch.value = told.rows[Number(form.slider.value)][0]; show(); });
  form.addEventListener("input", (event) => { if (event.target !== form.slider) show(); });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(show));
  show();
})();
