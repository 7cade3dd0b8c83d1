// Models x devices: a heat table of virtual rows, its filters, which live in the address, and one cell in full below it.
"use strict";
const fleet = (() => {
  const { data, element } = report;
  const { figure, UNKNOWN } = figures;
  const { two, range } = grids;
  const byId = (id) => document.getElementById(id);
  const narrow = matchMedia("(max-width: 700px)").matches;

  // A column is a list, one value for all, or texts by their place.
  const reader = (packed) => {
    if (Array.isArray(packed)) return (at) => packed[at];
    if ("all" in packed) return () => packed.all;
    return (at) => packed.of[packed.at[at]];
  };
  const readers = (columns) => Object.fromEntries(Object.entries(columns).map(([name, packed]) => [name, reader(packed)]));
  const M = readers(data.models);
  const C = readers(data.cells);
  const devices = data.devices;
  const count = data.models.name.length;
  const wide = devices.length;
  const start = new Int32Array(count + 1);
  for (let model = 0; model < count; model += 1) start[model + 1] = start[model] + M.size(model);

  const dollars = (cell) => C.usd_per_month(cell) ?? C.usd_per_million(cell) ?? null;
  const usable = (cell) => C.runs(cell) && C.fits(cell) && C.meets(cell) !== false;
  const trouble = (cell) => (!C.runs(cell) ? "does not run" : !C.fits(cell) ? "does not fit" : C.meets(cell) === false ? "misses its limit" : "");
  const cellAt = (model, index) => (index === null || index === undefined ? -1 : start[model] + index);
  const cheapest = (model) => cellAt(model, M.cheapest(model));
  const best = (model) => cellAt(model, M.best(model));
  const unit = (model, cell) => (C.usd_per_month(cell) !== null ? "capacity" : M.question(model) === "generate" || C.tpot_s(cell) !== null ? "generate" : "run");
  const money = (model, cell) => (dollars(cell) === null ? UNKNOWN : `${figure(dollars(cell), "dollars")} ${data.per_short[unit(model, cell)]}`);
  const batchOf = (cell) => (C.batch(cell) === null ? "" : `batch ${figure(C.batch(cell), "count")}`);
  const batches = [];
  const state = { show: "dollars", batch: null, hidden: new Set() };

  // Of several cells on one device: what may be an answer, then the fewest dollars, then the shortest time.
  function before(a, b) {
    if (usable(a) !== usable(b)) return usable(a);
    const [one, other] = [dollars(a) ?? Infinity, dollars(b) ?? Infinity];
    if (one !== other) return one < other;
    return (C.latency_s(a) ?? Infinity) < (C.latency_s(b) ?? Infinity);
  }
  const shown = new Int32Array(count * wide);
  let bests = new Map();
  function choose() {
    shown.fill(-1);
    bests = new Map();
    for (let model = 0; model < count; model += 1) {
      // How many are served at once is a service's answer, not its question.
      const any = state.batch === null || M.question(model) === "capacity";
      const first = cheapest(model);
      for (let cell = start[model]; cell < start[model + 1]; cell += 1) {
        if (!any && C.batch(cell) !== null && C.batch(cell) !== state.batch) continue;
        const place = model * wide + C.device(cell);
        const other = shown[place];
        if (other < 0 || (any && cell === first) || (!(any && other === first) && before(cell, other))) shown[place] = cell;
      }
    }
  }

  const signed = (said, cell) => (said === UNKNOWN ? said : `${said} ${data.marks[C.origin(cell)] || C.origin(cell)}`);
  // Of a service the rate is the question's.
  const tokens = (cell) => (C.ttft_s(cell) === null ? null : C.throughput_per_s(cell));
  const time = (cell) => C.latency_s(cell) ?? C.tpot_s(cell) ?? null;
  const SHOWS = {
    dollars: {
      value: dollars, rising: 1,
      face: (model, cell) => [figure(dollars(cell), "dollars"), dollars(cell) === null ? "no price known" : C.count(cell) === null ? data.per_short[unit(model, cell)] : `${data.per_short[unit(model, cell)]}, ${figure(C.count(cell), "count")} inst.`],
      units: { run: "dollars per million inferences", generate: "dollars per million output tokens", capacity: "dollars a month for all its instances" },
    },
    latency: {
      value: time, rising: 1, batched: true,
      face: (model, cell) => (M.question(model) === "generate" && C.ttft_s(cell) !== null
        ? [signed(`TTFT ${figure(C.ttft_s(cell), "seconds")}`, cell), `TPOT ${figure(C.tpot_s(cell), "seconds")}`]
        : [signed(figure(C.latency_s(cell), "seconds"), cell), M.question(model) === "capacity" && M.percentile(model) ? M.percentile(model) : batched(model) ? batchOf(cell) : range(C.low_s(cell), C.high_s(cell), "seconds")]),
      units: { run: "one run, host to host", generate: "time to first token (TTFT) above time for each further one (TPOT), sorted by the whole request", capacity: "waiting included, at the percentile of its limit" },
    },
    tokens: {
      value: tokens, rising: -1, batched: true,
      face: (model, cell) => [tokens(cell) === null ? UNKNOWN : tokens(cell) >= 1000 ? figure(tokens(cell), "whole") : figure(tokens(cell), "number"), tokens(cell) === null ? "" : "tokens/s"],
      units: { generate: "output tokens per second, all sequences together" },
    },
    fit: {
      value: C.memory_bytes, rising: 1, plain: true,
      face: (model, cell) => [figure(C.memory_bytes(cell), "bytes"), C.runs(cell) ? C.fits(cell) ? "fits" : "does not fit" : "does not run"],
      units: { run: "memory that the model needs on the device", generate: "memory that the model and its cache need", capacity: "memory that one copy needs" },
    },
    verdict: {
      value: (cell) => (usable(cell) ? 0 : C.runs(cell) ? C.fits(cell) ? 1 : 2 : 3), rising: 1, plain: true,
      face: (model, cell) => [C.plan(cell) || UNKNOWN, cell === best(model) ? "best" : cell === cheapest(model) ? "cheapest" : trouble(cell) || (C.meets(cell) ? "keeps its limit" : "runs and fits")],
      units: { run: "what runs it there, and whether it may be the answer", generate: "what runs it there, and whether it may be the answer", capacity: "what runs it there, and whether it may be the answer" },
    },
  };
  const STEPS = [[1.05, 5, "best of its row"], [1.5, 4, "up to 1.5x of it"], [2.5, 3, "up to 2.5x"], [5, 2, "up to 5x"], [Infinity, 1, "more"]];

  // Times of one batch are no measure for those of another; a service's batch is part of its answer.
  const batched = (model) => state.batch === null && batches.length > 1 && M.question(model) !== "capacity" && SHOWS[state.show].batched === true;
  function bestOf(model, batch) {
    const name = `${model} ${batch}`;
    if (bests.has(name)) return bests.get(name);
    const { value, rising } = SHOWS[state.show];
    let found = null;
    for (let device = 0; device < wide; device += 1) {
      const cell = shown[model * wide + device];
      const own = cell < 0 || !usable(cell) || (batch !== null && C.batch(cell) !== batch) ? null : value(cell);
      if (own !== null && (found === null || rising * (own - found) < 0)) found = own;
    }
    bests.set(name, found);
    return found;
  }
  function heat(model, cell) {
    if (cell < 0) return "";
    if (!usable(cell)) return "no";
    const { value, rising, plain } = SHOWS[state.show];
    if (plain) return state.show === "verdict" && (cell === best(model) || cell === cheapest(model)) ? "5" : "3";
    const [own, top] = [value(cell), bestOf(model, batched(model) ? C.batch(cell) : null)];
    if (own === null || top === null) return "1";
    const ratio = own === top ? 1 : rising > 0 ? own / top : top / own;
    return String((STEPS.find(([most]) => ratio <= most) || STEPS.at(-1))[1]);
  }

  // ---------------------------------------------------------------- columns
  const chip = (device) => element("span", { className: `chip chip-${device}`, textContent: data.verdicts[device] || device });
  const address = (model) => `./${encodeURIComponent(M.name(model))}.html`;
  // The end tells one size of a model from the next as often as the beginning does.
  const middle = (text, most) => (text.length <= most ? text : `${text.slice(0, Math.ceil(most / 2))}…${text.slice(-Math.floor(most / 2) + 1)}`);

  function mark(cell, model, device) {
    const part = cell.getElement();
    part.tabIndex = -1;
    Object.assign(part.dataset, { model, device });
    return part;
  }
  function nameCell(cell) {
    const model = cell.getData().index;
    mark(cell, model, "");
    const text = middle(M.name(model), narrow ? 14 : 28);
    const label = M.failure(model) ? element("span", { textContent: text, title: M.name(model) }) : element("a", { href: address(model), textContent: text, title: M.name(model) });
    return two(label, [M.owner(model), ...M.tags(model)].filter(Boolean).join(" · "));
  }
  function verdictCell(cell) {
    const model = cell.getData().index;
    mark(cell, model, "");
    if (M.failure(model)) return two(element("span", { className: "failing", textContent: "failed" }), data.failures[M.failure(model)]);
    const said = M.errors(model) ? `${M.errors(model)} ${M.errors(model) === 1 ? "error" : "errors"}` : M.cheapest(model) === null && M.best(model) === null ? "no answer" : data.questions[M.question(model)];
    return two(M.verdict(model) ? chip(M.verdict(model)) : UNKNOWN, said);
  }
  function cheapestCell(cell) {
    const model = cell.getData().index;
    const found = cheapest(model);
    mark(cell, model, found < 0 ? "" : C.device(found));
    if (found < 0) return element("span", { textContent: UNKNOWN });
    return two(devices[C.device(found)].name, [money(model, found), batchOf(found)].filter(Boolean).join(", "));
  }
  function savedCell(cell) {
    const model = cell.getData().index;
    mark(cell, model, "");
    return M.saved(model) === null ? element("span", { textContent: "" }) : two(figure(M.saved(model), "dollars"), "/month saved", "num");
  }
  const deviceCell = (device) => (cell) => {
    const model = cell.getData().index;
    const part = mark(cell, model, device);
    const found = shown[model * wide + device];
    const level = heat(model, found);
    if (level) part.dataset.heat = level;
    else delete part.dataset.heat;
    const first = cheapest(model);
    const here = found >= 0 && found === first;
    part.classList.toggle("cheapest", here);
    if (found < 0) return element("span", { className: "none", textContent: M.failure(model) ? "" : UNKNOWN });
    const [text, below] = SHOWS[state.show].face(model, found);
    const value = element("span", { textContent: text });
    const elsewhere = !here && first >= 0 && C.device(first) === device;
    if (here || elsewhere) value.append(element("span", { className: "star", role: "img", ariaLabel: here ? " cheapest" : ` cheapest at ${batchOf(first)}`, textContent: here ? " ★" : " ☆" }));
    return two(value, state.show === "fit" ? below : trouble(found) || below, "num");
  };

  const ORDER = Object.keys(data.questions);
  const compared = (valueOf, apart) => (a, b, rowA, rowB, column, direction) => {
    const [one, other] = [rowA.getData().index, rowB.getData().index];
    // Dollars for different things are not one order: each kind of question keeps its own.
    if (apart() && M.question(one) !== M.question(other)) {
      const kinds = ORDER.indexOf(M.question(one)) - ORDER.indexOf(M.question(other));
      return direction === "asc" ? kinds : -kinds;
    }
    const [x, y] = [valueOf(one), valueOf(other)];
    if (x === y) return one - other;
    if (x === null || y === null) return (x === null) === (direction === "asc") ? 1 : -1;
    return x - y;
  };
  const text = (valueOf) => (a, b, rowA, rowB, column, direction) => {
    const [x, y] = [valueOf(rowA.getData().index), valueOf(rowB.getData().index)];
    if (x === y) return rowA.getData().index - rowB.getData().index;
    if (!x || !y) return !x === (direction === "asc") ? 1 : -1;
    return x.localeCompare(y, "en", { numeric: true });
  };
  // What is no answer on a device stands behind all that is.
  const onDevice = (device) => (model) => {
    const cell = shown[model * wide + device];
    return cell < 0 || (!usable(cell) && state.show !== "fit" && state.show !== "verdict") ? null : SHOWS[state.show].value(cell);
  };
  const right = { hozAlign: "right", headerHozAlign: "right" };
  const some = (valueOf) => { for (let model = 0; model < count; model += 1) if (valueOf(model)) return true; return false; };
  const columns = [
    { title: "Model", field: "name", width: narrow ? 138 : 230, frozen: true, formatter: nameCell, sorter: text(M.name) },
    { title: "Verdict", field: "verdict", width: 112, formatter: verdictCell, sorter: text((model) => (M.failure(model) ? "" : data.verdicts[M.verdict(model)] || "")) },
    { title: "Cheapest device", field: "cheapest", width: 226, formatter: cheapestCell, sorter: compared((model) => (cheapest(model) < 0 ? null : dollars(cheapest(model))), () => true) },
    ...(some(M.saved) ? [{ title: "Saves by moving", field: "saved", width: 112, formatter: savedCell, sorter: compared(M.saved, () => false), headerSortStartingDir: "desc", ...right }] : []),
    ...devices.map((device, at) => ({
      title: device.name, field: `d${at}`, width: 118, formatter: deviceCell(at), ...right,
      sorter: compared(onDevice(at), () => state.show === "dollars" || state.show === "latency"),
    })),
    ...(some(M.owner) ? [{ title: "Owner", field: "owner", width: 130, formatter: plain((model) => M.owner(model)), sorter: text(M.owner) }] : []),
    ...(some((model) => M.tags(model).length) ? [{ title: "Tags", field: "tags", width: 180, formatter: plain((model) => M.tags(model).join(", ")), sorter: text((model) => M.tags(model).join(", ")) }] : []),
  ];
  function plain(valueOf) {
    return (cell) => {
      const model = cell.getData().index;
      mark(cell, model, "");
      return element("span", { textContent: valueOf(model) || UNKNOWN, title: valueOf(model) });
    };
  }

  // ---------------------------------------------------------------- filters, in the address too
  const SELECTS = { tag: "fleet-tag", owner: "fleet-owner", question: "fleet-question", verdict: "fleet-verdict", status: "fleet-status" };
  const STATUSES = {
    answered: (model) => !M.failure(model),
    failed: (model) => Boolean(M.failure(model)),
    moves: (model) => M.saved(model) !== null,
    none: (model) => !M.failure(model) && M.size(model) > 0 && M.best(model) === null && M.cheapest(model) === null,
    errors: (model) => M.errors(model) > 0,
  };
  const rows = data.models.name.map((_, index) => ({ index }));
  const haystacks = [];
  const haystack = (model) => (haystacks[model] ??= [M.name(model), M.reference(model), M.owner(model), ...M.tags(model), M.sentence(model), M.notes(model), M.message(model)].join(" ").toLowerCase());

  let grid = null;
  let ready = false;
  function kept() {
    const words = byId("fleet-search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const [tag, owner, question, verdict, status] = Object.values(SELECTS).map((id) => byId(id).value);
    return (model) => words.every((word) => haystack(model).includes(word))
      && (!tag || M.tags(model).includes(tag)) && (!owner || M.owner(model) === owner) && (!question || M.question(model) === question)
      && (!verdict || (!M.failure(model) && M.verdict(model) === verdict)) && (!status || STATUSES[status](model));
  }
  function apply() {
    const keep = kept();
    grid.setFilter((row) => keep(row.index));
    // The plain table beside it is what is printed.
    const printed = document.querySelectorAll(".every-model tbody tr");
    let left = 0;
    for (let model = 0; model < count; model += 1) {
      const stays = keep(model);
      left += stays;
      if (printed[model]) printed[model].hidden = !stays;
    }
    byId("fleet-found").textContent = `${left.toLocaleString("en-US")} of ${count.toLocaleString("en-US")} models`;
    remember();
  }
  let timer = 0;
  function later() { clearTimeout(timer); timer = setTimeout(apply, 120); }

  const ADDRESS = "#models?";
  function remember() {
    if (!ready) return;
    const asked = new URLSearchParams();
    const search = byId("fleet-search").value.trim();
    if (search) asked.set("q", search);
    Object.entries(SELECTS).forEach(([name, id]) => { if (byId(id).value) asked.set(name, byId(id).value); });
    if (state.show !== usual) asked.set("show", state.show);
    if (state.batch !== null) asked.set("batch", String(state.batch));
    if (state.hidden.size !== seldom.size || [...seldom].some((at) => !state.hidden.has(at))) asked.set("devices", devices.filter((_, at) => !state.hidden.has(at)).map((device) => device.slug).join(","));
    const [sorted] = grid.getSorters();
    if (sorted) asked.set("sort", `${sorted.dir === "desc" ? "-" : ""}${sorted.field.replace(/^d(\d+)$/, (_, at) => `@${devices[at].slug}`)}`);
    const told = asked.toString();
    const next = told ? ADDRESS + told : location.hash.startsWith(ADDRESS) ? "#models" : location.hash;
    try { if (next !== location.hash) history.replaceState(history.state, "", next || location.pathname); } catch { /* a page in a frame may have no history */ }
  }
  // An option that this fleet lacks is left at its usual one.
  const pick = (select, value) => { select.value = [...select.options].some((option) => option.value === value) ? value : ""; };
  function recall() {
    if (!location.hash.startsWith(ADDRESS)) return false;
    const asked = new URLSearchParams(location.hash.slice(ADDRESS.length));
    byId("fleet-search").value = asked.get("q") || "";
    Object.entries(SELECTS).forEach(([name, id]) => pick(byId(id), asked.get(name) || ""));
    const radio = [...document.getElementsByName("fleet-show")].find((input) => input.value === asked.get("show"));
    state.show = radio ? radio.value : usual;
    pick(byId("fleet-batch"), asked.get("batch") || "");
    state.batch = byId("fleet-batch").value === "" ? null : Number(byId("fleet-batch").value);
    state.hidden = new Set(asked.has("devices") ? [] : seldom);
    if (asked.has("devices")) {
      const named = new Set(asked.get("devices").split(","));
      devices.forEach((device, at) => { if (!named.has(device.slug)) state.hidden.add(at); });
    }
    return true;
  }
  function recalledSort() {
    const told = new URLSearchParams(location.hash.startsWith(ADDRESS) ? location.hash.slice(ADDRESS.length) : "").get("sort");
    if (!told) return [];
    const name = told.replace(/^-/, "");
    const field = name.startsWith("@") ? `d${devices.findIndex((device) => device.slug === name.slice(1))}` : name;
    return columns.some((column) => column.field === field) ? [{ column: field, dir: told.startsWith("-") ? "desc" : "asc" }] : [];
  }

  // The cells that are shown, model by model as sorted, in columns named as those of fleet.csv.
  const OF_CELL = ["batch", "precision", "runs", "fits", "meets", "latency_s", "low_s", "high_s", "ttft_s", "tpot_s", "throughput_per_s", "origin", "memory_bytes", "energy_j",
    "usd_per_million", "usd_low_per_million", "usd_high_per_million", "usd_per_month", "usd_low_per_month", "usd_high_per_month", "usd_per_hour", "count", "remark"];
  function exported() {
    const head = ["model", "owner", "tags", "question", "device", ...OF_CELL, "best", "cheapest", "verdict", "sentence", "failure", "message", "hint"];
    const lines = grid.getRows("active").map((row) => row.getData().index).flatMap((model) => {
      const own = [M.name(model), M.owner(model), M.tags(model).join("; "), M.question(model)];
      const end = [M.failure(model) ? "" : data.verdicts[M.verdict(model)] || M.verdict(model), M.sentence(model), M.failure(model), M.message(model), M.hint(model)];
      const cells = devices.map((_, at) => [at, shown[model * wide + at]]).filter(([at, cell]) => cell >= 0 && !state.hidden.has(at));
      if (cells.length === 0) return [[...own, "", ...OF_CELL.map(() => null), null, null, ...end]];
      return cells.map(([at, cell]) => [...own, devices[at].slug, ...OF_CELL.map((name) => C[name](cell)), cell === best(model), cell === cheapest(model), ...end]);
    });
    return [head, ...lines];
  }

  // ---------------------------------------------------------------- what cells show
  let usual = "dollars";
  // CPUs of the price list that are nobody's cheapest: there, and not shown until asked for.
  const seldom = new Set(devices.keys());
  function legend() {
    const { units, plain: flat } = SHOWS[state.show];
    const key = (level, words) => element("li", {}, element("span", { className: "key" }), words);
    const entries = flat
      ? [["3", state.show === "fit" ? "fits" : "may be the answer"], ...(state.show === "verdict" ? [["5", "best or cheapest"]] : [])]
      : STEPS.map(([, level, words]) => [String(level), words]);
    byId("fleet-legend").replaceChildren(...[...entries, ["no", "does not run, does not fit, or misses its limit"]].map(([level, words]) => {
      const entry = key(level, words);
      entry.firstChild.dataset.heat = level;
      return entry;
    }));
    const asked = ORDER.filter((question) => some((model) => M.question(model) === question));
    const told = asked.filter((question) => units[question]).map((question) => (asked.length > 1 ? `${data.questions[question]}: ${units[question]}` : units[question]));
    const sorting = asked.length > 1 && (state.show === "dollars" || state.show === "latency") ? " Sorting keeps them apart." : "";
    const mixed = batches.length > 1 && state.batch === null && SHOWS[state.show].batched ? " Each is at its cheapest batch, and coloured among those of that batch: choose a batch to compare devices." : "";
    byId("fleet-units").textContent = `Cells show ${told.join("; ")}.${mixed}${sorting}`;
  }
  // Rows that are made already show the former figures: they are made anew, in the same place.
  function redraw() {
    choose();
    legend();
    if (!ready) return;
    close();
    const [sorted] = grid.getSorters();
    if (sorted && /^d\d+$/.test(sorted.field)) grid.setSort(sorted.field, sorted.dir);
    grid.redraw(true);
    remember();
  }
  function showDevices() {
    document.querySelectorAll("#fleet-device-list input").forEach((input, at) => { input.checked = !state.hidden.has(at); });
    const left = wide - state.hidden.size;
    byId("fleet-devices").firstElementChild.textContent = state.hidden.size ? `Devices shown: ${left} of ${wide}` : "Devices shown: all";
    if (!grid) return;
    grid.blockRedraw();
    devices.forEach((_, at) => {
      const column = grid.getColumn(`d${at}`);
      if (column.isVisible() === state.hidden.has(at)) column.toggle();
    });
    grid.restoreRedraw();
    remember();
  }

  function offer() {
    const tally = (valuesOf) => {
      const found = new Map();
      for (let model = 0; model < count; model += 1) valuesOf(model).forEach((value) => { if (value) found.set(value, (found.get(value) || 0) + 1); });
      return [...found].sort(([a], [b]) => a.localeCompare(b, "en", { numeric: true }));
    };
    [["fleet-tag", (model) => M.tags(model)], ["fleet-owner", (model) => [M.owner(model)]]].forEach(([id, valuesOf]) => {
      const found = tally(valuesOf);
      found.forEach(([value, number]) => byId(id).append(element("option", { value, textContent: `${middle(value, 40)} (${number})` })));
      byId(id).parentElement.hidden = found.length === 0;
    });
    const found = new Set();
    for (let model = 0; model < count; model += 1) {
      if (M.question(model) !== "capacity") for (let cell = start[model]; cell < start[model + 1]; cell += 1) if (C.batch(cell) !== null) found.add(C.batch(cell));
    }
    batches.push(...[...found].sort((a, b) => a - b));
    batches.forEach((batch) => byId("fleet-batch").append(element("option", { value: String(batch), textContent: figure(batch, "count") })));
    byId("fleet-batch").parentElement.hidden = batches.length < 2;
    byId("fleet-device-list").append(...devices.map((device, at) => {
      const input = element("input", { type: "checkbox", checked: true });
      input.addEventListener("change", () => { state.hidden[input.checked ? "delete" : "add"](at); showDevices(); });
      return element("label", {}, input, device.name);
    }));
    let priced = false;
    for (let cell = 0; cell < start[count] && !priced; cell += 1) priced = dollars(cell) !== null;
    devices.forEach((device, at) => { if (device.named) seldom.delete(at); });
    for (let model = 0; model < count; model += 1) [best(model), cheapest(model)].forEach((cell) => { if (cell >= 0) seldom.delete(C.device(cell)); });
    state.hidden = new Set(seldom);
    usual = priced ? "dollars" : "latency";
    state.show = usual;
  }

  // ---------------------------------------------------------------- one cell: a tip beside it, all of it below
  function facts(model, cell) {
    const interval = range(C.low_s(cell), C.high_s(cell), "seconds");
    const monthly = C.usd_per_month(cell) !== null;
    const [low, high] = monthly ? [C.usd_low_per_month(cell), C.usd_high_per_month(cell)] : [C.usd_low_per_million(cell), C.usd_high_per_million(cell)];
    const generated = M.question(model) === "generate";
    return [
      ["Status", [trouble(cell) || "runs and fits", usable(cell) && C.meets(cell) ? "keeps its limit" : "", cell === cheapest(model) ? "the cheapest" : "", cell === best(model) ? "the best" : ""].filter(Boolean).join(", ")],
      ["Plan", [C.plan(cell), C.precision(cell)].filter(Boolean).join(", ")],
      ["TTFT", C.ttft_s(cell) === null ? "" : figure(C.ttft_s(cell), "seconds")],
      ["TPOT", C.tpot_s(cell) === null ? "" : figure(C.tpot_s(cell), "seconds")],
      ["Tokens", tokens(cell) === null ? "" : `${figure(tokens(cell), "number")} tokens/s`],
      [generated ? "Whole request" : M.question(model) === "capacity" ? `Latency ${M.percentile(model)}`.trim() : "Latency", C.latency_s(cell) === null ? "" : `${signed(figure(C.latency_s(cell), "seconds"), cell)} ${C.origin(cell)}`],
      ["90 % interval", interval],
      ["Dollars", dollars(cell) === null ? "no price known" : `${figure(dollars(cell), "dollars")} ${data.per[unit(model, cell)]}`],
      ["90 % interval of dollars", range(low, high, "dollars")],
      ["Machine", [C.machine(cell), C.usd_per_hour(cell) === null ? "" : `${figure(C.usd_per_hour(cell), "dollars")}/hour`].filter(Boolean).join(", ")],
      ["Memory", C.memory_bytes(cell) === null ? "" : figure(C.memory_bytes(cell), "bytes")],
      ["Energy", C.energy_j(cell) === null ? "" : `${figure(C.energy_j(cell), "joules")} for one`],
      ["To know", C.remark(cell)],
    ].filter(([, value]) => value);
  }
  const list = (entries) => element("dl", {}, ...entries.map(([name, value]) => element("div", {}, element("dt", { textContent: name }), element("dd", { textContent: value }))));
  const placeOf = (part) => ({ model: Number(part.dataset.model), device: part.dataset.device === "" ? null : Number(part.dataset.device) });
  function cellOf(part) {
    const { model, device } = placeOf(part);
    if (device === null) return -1;
    return part.getAttribute("tabulator-field") === "cheapest" ? cheapest(model) : shown[model * wide + device];
  }

  const tip = byId("fleet-tip");
  let pointed = null;
  let leaving = 0;
  function point(part) {
    clearTimeout(leaving);
    if (part === pointed) return;
    const { model, device } = placeOf(part);
    const cell = cellOf(part);
    const failure = M.failure(model);
    hideTip();
    if (cell < 0 && !failure && !M.sentence(model)) return;
    pointed = part;
    const head = [middle(M.name(model), 60), device === null || cell < 0 ? "" : devices[device].name, cell < 0 ? "" : batchOf(cell)].filter(Boolean).join(", ");
    tip.replaceChildren(element("p", { textContent: head }));
    if (cell >= 0) tip.append(list(facts(model, cell)));
    else tip.append(element("p", { textContent: failure ? `${data.failures[failure]}: ${M.message(model)}` : M.sentence(model) }));
    tip.hidden = false;
    part.setAttribute("aria-describedby", tip.id);
    const box = part.getBoundingClientRect();
    const size = tip.getBoundingClientRect();
    const below = box.bottom + 6 + size.height <= innerHeight;
    tip.style.left = `${Math.max(12, Math.min(box.left, innerWidth - size.width - 12))}px`;
    tip.style.top = `${below ? box.bottom + 6 : Math.max(6, box.top - size.height - 6)}px`;
  }
  function hideTip() {
    clearTimeout(leaving);
    pointed?.removeAttribute("aria-describedby");
    pointed = null;
    tip.hidden = true;
  }
  const leave = () => { clearTimeout(leaving); leaving = setTimeout(hideTip, 160); };

  const pane = byId("fleet-detail");
  let opener = null;
  function close() {
    pane.hidden = true;
    pane.replaceChildren();
  }
  function open(part, byKey) {
    const { model, device } = placeOf(part);
    opener = part;
    hideTip();
    const heading = device === null ? M.name(model) : `${M.name(model)} on ${devices[device].name}`;
    const button = element("button", { type: "button", className: "button", textContent: "Close" });
    button.addEventListener("click", () => { close(); if (opener?.isConnected) opener.focus(); });
    const told = [
      ["Reference", M.reference(model)], ["Question", data.questions[M.question(model)]], ["Options", M.options(model)], ["Owner", M.owner(model)], ["Tags", M.tags(model).join(", ")],
      ["Parameters", M.parameters(model) === null ? "" : figure(M.parameters(model), "count")], ["Traffic", M.traffic(model)], ["Runs today on", M.today(model)],
      ["Saves by moving", M.saved(model) === null ? "" : `${figure(M.saved(model), "dollars")} a month`],
      ["Findings", [[M.errors(model), "error"], [M.warnings(model), "warning"]].filter(([number]) => number).map(([number, word]) => `${number} ${word}${number === 1 ? "" : "s"}`).join(", ")],
      ["Failure", M.failure(model) && `${data.failures[M.failure(model)]}: ${M.message(model)}`], ["Hint", M.hint(model)], ["Notes", M.notes(model)],
    ].filter(([, value]) => value);
    const link = M.failure(model) ? null : element("p", {}, element("a", { href: address(model), textContent: "Its own page" }));
    pane.replaceChildren(element("div", { className: "detail-head" }, element("h3", { textContent: heading }), button));
    if (M.sentence(model)) pane.append(element("p", { className: "sentence", textContent: M.sentence(model) }));
    pane.append(list(told), link || "");
    const cells = [];
    for (let cell = start[model]; cell < start[model + 1]; cell += 1) if (device === null || C.device(cell) === device) cells.push(cell);
    if (cells.length) pane.append(table(model, cells));
    pane.hidden = false;
    if (byKey) button.focus();
    pane.scrollIntoView({ block: "nearest" });
  }
  function table(model, cells) {
    const known = cells.map((cell) => new Map([["Device", devices[C.device(cell)].name], ["Batch", C.batch(cell) === null ? "" : figure(C.batch(cell), "count")], ...facts(model, cell)]));
    const heads = [...new Set(known.flatMap((one) => [...one.keys()]))];
    const all = element("table", { className: "plain" }, element("thead", {}, element("tr", {}, ...heads.map((head) => element("th", { scope: "col", textContent: head })))),
      element("tbody", {}, ...known.map((one) => element("tr", {}, ...heads.map((head, at) => element(at === 0 ? "th" : "td", { ...(at === 0 ? { scope: "row" } : {}), textContent: one.get(head) || UNKNOWN }))))));
    const box = element("div", { className: `scroll${cells.length > 10 ? " tall" : ""}`, tabIndex: 0, role: "region", ariaLabel: "Devices and batches" }, all);
    return box;
  }

  // ---------------------------------------------------------------- the keyboard: one stop, then arrows
  const root = byId("fleet-table");
  const heads = () => [...root.querySelectorAll(".tabulator-col[tabulator-field]")].filter((head) => head.offsetParent !== null);
  function goTo(row, field) {
    const done = () => {
      const part = row.getCell(field).getElement();
      into(part);
      part.focus({ preventScroll: true });
    };
    grid.scrollToRow(row, "nearest", false).then(done, done);
  }
  // Not below the column that stays.
  function into(part) {
    const holder = root.querySelector(".tabulator-tableholder");
    if (part.classList.contains("tabulator-frozen")) return;
    const frozen = root.querySelector(".tabulator-col.tabulator-frozen").offsetWidth;
    const [box, frame] = [part.getBoundingClientRect(), holder.getBoundingClientRect()];
    if (box.left < frame.left + frozen) holder.scrollLeft -= frame.left + frozen - box.left;
    else if (box.right > frame.left + holder.clientWidth) holder.scrollLeft += box.right - frame.left - holder.clientWidth;
  }
  const MOVES = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1], PageDown: [8, 0], PageUp: [-8, 0], Home: [0, -1e6], End: [0, 1e6] };
  function keys(event) {
    if (event.key === "Escape") { hideTip(); return; }
    const part = event.target.closest?.(".tabulator-cell[data-model]");
    const head = event.target.closest?.(".tabulator-col[tabulator-field]");
    if (part && event.target === part && (event.key === "Enter" || event.key === " ")) { event.preventDefault(); open(part, true); return; }
    const step = MOVES[event.key];
    if (!step || event.altKey || event.metaKey || event.target.closest("input")) return;
    const fields = heads().map((one) => one.getAttribute("tabulator-field"));
    const clamp = (value, most) => Math.max(0, Math.min(value, most));
    if (head) {
      event.preventDefault();
      const at = fields.indexOf(head.getAttribute("tabulator-field"));
      if (step[0] > 0) { const [first] = grid.getRows("active"); if (first) goTo(first, fields[at]); return; }
      const next = heads()[clamp(at + step[1], fields.length - 1)];
      next.focus({ preventScroll: true });
      into(next);
      return;
    }
    const active = grid.getRows("active");
    if (!active.length) return;
    event.preventDefault();
    if (!part) { goTo(active[0], fields[0]); return; }
    const at = active.findIndex((row) => row.getData().index === Number(part.dataset.model));
    const place = fields.indexOf(part.getAttribute("tabulator-field"));
    if (event.key === "ArrowUp" && at === 0) { heads()[place]?.focus(); return; }
    goTo(active[clamp(at + step[0], active.length - 1)], fields[clamp(place + step[1], fields.length - 1)]);
  }

  function listen() {
    const over = (event) => event.target.closest?.(".tabulator-cell[data-model]");
    root.addEventListener("mouseover", (event) => { const part = over(event); if (part) point(part); else leave(); });
    root.addEventListener("mouseleave", leave);
    tip.addEventListener("mouseenter", () => clearTimeout(leaving));
    tip.addEventListener("mouseleave", leave);
    root.addEventListener("focusin", (event) => { const part = over(event); if (part && event.target === part) point(part); });
    root.addEventListener("focusout", leave);
    root.addEventListener("click", (event) => { const part = over(event); if (part && !event.target.closest("a")) open(part, false); });
    // Before the grid's own: its holder would scroll, its heads would not move.
    root.addEventListener("keydown", keys);
    addEventListener("scroll", hideTip, { passive: true });
    document.addEventListener("keydown", (event) => { if (event.key === "Escape") { hideTip(); byId("fleet-devices").open = false; } });
    document.addEventListener("click", (event) => { if (!byId("fleet-devices").contains(event.target)) byId("fleet-devices").open = false; });

    const form = byId("fleet-filters");
    form.addEventListener("input", later);
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("reset", () => setTimeout(apply));
    byId("fleet-csv").addEventListener("click", () => sheets.download("fleet-shown.csv", sheets.csv(exported())));
    document.getElementsByName("fleet-show").forEach((input) => input.addEventListener("change", () => { state.show = input.value; redraw(); }));
    byId("fleet-batch").addEventListener("change", (event) => { state.batch = event.target.value === "" ? null : Number(event.target.value); redraw(); });
    document.querySelectorAll("[data-devices]").forEach((button) => button.addEventListener("click", () => {
      state.hidden = new Set(button.dataset.devices === "none" ? devices.keys() : []);
      showDevices();
    }));
    addEventListener("hashchange", () => {
      if (!recall()) { remember(); return; }
      const sorted = recalledSort();
      settle();
      redraw();
      showDevices();
      if (sorted.length) grid.setSort(sorted);
      else grid.clearSort();
      apply();
    });
  }
  function settle() {
    document.getElementsByName("fleet-show").forEach((input) => { input.checked = input.value === state.show; });
  }

  function begin() {
    offer();
    const recalled = recall();
    settle();
    choose();
    legend();
    grid = new Tabulator(root, {
      data: rows,
      index: "index",
      columns: columns.map((column) => ({ ...column, visible: !/^d\d+$/.test(column.field) || !state.hidden.has(Number(column.field.slice(1))) })),
      height: Math.min(narrow ? 560 : 680, Math.max(190, 47 * count + 60)),
      rowHeight: 46,
      autoResize: false,
      layout: "fitDataFill",
      // The library takes a title for markup: a device's name is a stranger's text.
      columnDefaults: { titleFormatter: (title) => element("span", { textContent: title.getValue() }), headerTooltip: false, resizable: "header", headerSortTristate: true },
      initialSort: recalledSort(),
      placeholder: "No model fits the filters.",
    });
    grid.on("tableBuilt", () => {
      grids.accessible(root, "Models and devices");
      grids.resizes(grid, root);
      root.querySelectorAll(".tabulator-col.tabulator-sortable").forEach((head, at) => { head.tabIndex = at === 0 ? 0 : -1; });
      listen();
      showDevices();
      ready = true;
      apply();
      if (recalled) byId("models").scrollIntoView();
      document.documentElement.dataset.table = "ready";
    });
    grid.on("dataSorted", remember);
    grid.on("scrollVertical", hideTip);
    grid.on("scrollHorizontal", hideTip);
  }
  begin();
  return { state, grid: () => grid, shown: (model, device) => shown[model * wide + device] };
})();
