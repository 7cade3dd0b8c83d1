// The what-if of a run: another batch, another limit, answered from the batches that were worked out.
"use strict";
(() => {
  const form = document.getElementById("batch-form");
  if (!form) return;
  const { figure } = figures;
  const told = report.data.sweep;
  const answer = document.getElementById("batch-answer");
  const [sentence, sure] = answer.querySelectorAll("p");
  const signs = report.data.marks;
  const time = ([latency, , origin, low, high]) => [figure(latency, "seconds"), signs[origin], low && high ? `(${figure(low, "seconds")} to ${figure(high, "seconds")})` : ""].filter(Boolean).join(" ");
  const quickest = (plans) => Object.entries(plans).sort(([, one], [, other]) => one[0] - other[0]);

  function largest(limit) {
    const kept = {};
    told.rows.forEach(([batch, plans]) => Object.entries(plans).forEach(([name, plan]) => { if (plan[0] <= limit) kept[name] = [batch, plan]; }));
    const said = Object.entries(kept).map(([name, [batch, plan]]) => `${name} ${figure(batch, "count")} (${figure(plan[1], "per_second")})`);
    return said.length ? `Largest batch worked out within ${figure(limit, "seconds")}: ${said.join(", ")}.` : `No batch that was worked out keeps ${figure(limit, "seconds")}.`;
  }

  function show() {
    const batch = Number(form.batch.value);
    const limit = Number(form.limit.value) / 1e3;
    if (!Number.isInteger(batch) || batch < 1 || !(limit >= 0)) { sentence.textContent = "Give a whole number as the batch and a limit above 0."; sure.textContent = ""; return; }
    const row = told.rows.find(([known]) => known === batch);
    const plans = row ? quickest(row[1]) : [];
    const near = told.rows.filter(([known], at) => known < batch ? (told.rows[at + 1]?.[0] ?? Infinity) > batch : told.rows[at - 1]?.[0] < batch);
    if (plans.length) {
      sentence.textContent = `At batch ${figure(batch, "count")}: ${plans.map(([name, plan]) => `${name} ${time(plan)}, ${figure(plan[1], "per_second")}`).join("; ")}.`;
    } else if (row) {
      sentence.textContent = `Batch ${figure(batch, "count")} does not fit.`;
    } else {
      const between = near.map(([known, of]) => `${figure(known, "count")} (${quickest(of).slice(0, 1).map(([name, plan]) => `${name} ${time(plan)}`).join("")})`);
      sentence.textContent = `Batch ${figure(batch, "count")} was not worked out${between.length ? `; next to it are ${between.join(" and ")}` : ""}.${told.command ? ` ${told.command.replace("--batch BATCH", `--batch ${batch}`)}${limit ? ` --slo ${form.limit.value}ms` : ""} answers it.` : ""}`;
    }
    const kept = plans.find(([, plan]) => plan[0] <= limit);
    const verdict = limit && plans.length ? (kept ? `${kept[0]} keeps ${figure(limit, "seconds")}. ` : `Nothing keeps ${figure(limit, "seconds")} there. `) : "";
    sure.textContent = limit ? verdict + largest(limit) : "";
  }

  form.slider.addEventListener("input", () => { form.batch.value = told.rows[Number(form.slider.value)][0]; show(); });
  form.addEventListener("input", (event) => { if (event.target !== form.slider) show(); });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(show));
  show();
})();
