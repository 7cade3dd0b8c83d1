// The model by module: dagre lays it out, Vega draws it; modules open and close.
"use strict";
const graph = (() => {
  const { data, modules, operators, ancestry } = report;
  const LIMIT = 220;
  const open = new Set([0]);
  let view = null;
  let here = null;

  const hasInside = modules.map((item) => item.operators > 0);

  // What stands for an operator: the outermost closed module around it, else the operator itself.
  function standIn(index) {
    const way = ancestry(operators[index].module_number).reverse();
    const closed = way.find((number) => !open.has(number));
    return closed === undefined ? `o${index}` : `m${closed}`;
  }

  function visible() {
    const nodes = new Map();
    const at = operators.map((_, index) => standIn(index));
    at.forEach((id, index) => {
      const node = nodes.get(id) || { id, operators: 0, timed: 0, gpu: 0, best: null };
      const spent = operators[index].best;
      node.operators += 1;
      // What takes no time is folded away or a view: it runs nowhere.
      if (spent) {
        node.timed += 1;
        node.gpu += operators[index].placement === "gpu" ? 1 : 0;
      }
      if (spent !== null) node.best = (node.best || 0) + spent;
      nodes.set(id, node);
    });
    const links = new Map();
    data.edges.forEach(([from, to, copied]) => {
      const [a, b] = [at[from], at[to]];
      if (a === b) return;
      const link = links.get(`${a} ${b}`) || { from: a, to: b, tensors: 0, copies: 0 };
      link.tensors += 1;
      link.copies += copied;
      links.set(`${a} ${b}`, link);
    });
    return { nodes: [...nodes.values()], links: [...links.values()] };
  }

  function words(node) {
    const number = Number(node.id.slice(1));
    const item = node.id[0] === "m" ? modules[number] : operators[number];
    const first = node.id[0] === "m" ? item.name : item.type;
    const second = node.id[0] === "m" ? [item.class, `${node.operators} op${node.operators === 1 ? "" : "s"}`].filter(Boolean).join(" · ") : `#${number}`;
    const spent = node.best === null ? "" : ` · ${figures.figure(node.best, "seconds")}`;
    return { first, second: second + spent, path: node.id[0] === "m" ? item.path : item.name };
  }

  const PLACES = { none: ["var(--muted)", "nowhere that takes time"], cpu: ["var(--cpu)", "CPU"], gpu: ["var(--gpu)", "GPU"], both: ["var(--hybrid)", "CPU and GPU"] };
  const where = (node) => PLACES[node.timed === 0 ? "none" : node.gpu === 0 ? "cpu" : node.gpu === node.timed ? "gpu" : "both"];
  const ink = (node) => where(node)[0];
  const place = (node) => where(node)[1];

  function laidOut(nodes, links) {
    const layout = new dagre.graphlib.Graph({ compound: true });
    layout.setGraph({ rankdir: "TB", nodesep: 18, ranksep: 30, marginx: 12, marginy: 12 });
    layout.setDefaultEdgeLabel(() => ({}));
    nodes.forEach((node) => {
      const text = words(node);
      const width = Math.min(240, Math.max(90, Math.max(text.first.length * 7.4, text.second.length * 6.2) + 24));
      layout.setNode(node.id, { ...node, ...text, width, height: 44 });
      surround(layout, node);
    });
    links.forEach((link) => layout.setEdge(link.from, link.to, { ...link }));
    dagre.layout(layout);
    return layout;
  }

  // Opened modules stay as outlines around what they hold.
  function surround(layout, node) {
    const number = node.id[0] === "m" ? modules[Number(node.id.slice(1))].parent : operators[Number(node.id.slice(1))].module_number;
    let child = node.id;
    ancestry(number).filter((at) => at !== 0).forEach((at) => {
      if (!layout.hasNode(`g${at}`)) layout.setNode(`g${at}`, { id: `g${at}`, outline: true, first: modules[at].path });
      layout.setParent(child, `g${at}`);
      child = `g${at}`;
    });
  }

  function specification(layout) {
    const all = layout.nodes().map((id) => layout.node(id)).filter(Boolean);
    const boxes = all.filter((node) => !node.outline).map((node) => ({
      id: node.id, x: node.x, y: node.y, width: node.width, height: node.height, first: node.first, second: node.second, ink: ink(node),
      tip: { Module: node.path, Operators: node.operators, "Time, best plan": figures.figure(node.best, "seconds"), "Runs on": place(node) },
    }));
    const outlines = all.filter((node) => node.outline && node.width).map(({ id, x, y, width, height, first }) => ({ id, x, y, width, height, first }));
    const points = layout.edges().flatMap((edge, number) => {
      const { points: line, tensors, copies } = layout.edge(edge);
      const tip = { Tensors: tensors, Copied: copies };
      return line.map((point) => ({ number, x: point.x, y: point.y, copies, tip }));
    });
    const ends = layout.edges().map((edge) => {
      const { points: line, copies } = layout.edge(edge);
      const [before, last] = line.slice(-2);
      return { x: last.x, y: last.y, copies, angle: (Math.atan2(last.y - before.y, last.x - before.x) * 180) / Math.PI + 90 };
    });
    const { width, height } = layout.graph();
    const stroke = [{ test: "datum.copies > 0", value: "var(--copy)" }, { value: "var(--muted)" }];
    const box = { x: { signal: "datum.x - datum.width / 2" }, y: { signal: "datum.y - datum.height / 2" }, width: { field: "width" }, height: { field: "height" } };
    const label = (text, dy, weight, size) => ({
      type: "text", interactive: false, from: { data: "boxes" },
      encode: { enter: { x: { field: "x" }, y: { field: "y", offset: dy }, align: { value: "center" }, baseline: { value: "middle" }, text: { field: text }, limit: { signal: "datum.width - 12" }, fill: { value: "var(--text)" }, fontSize: { value: size }, fontWeight: { value: weight } } },
    });
    return {
      width: Math.max(width, 1), height: Math.max(height, 1), padding: 0, autosize: "none",
      data: [{ name: "boxes", values: boxes }, { name: "outlines", values: outlines }, { name: "points", values: points }, { name: "ends", values: ends }],
      marks: [
        { type: "rect", name: "outline", from: { data: "outlines" }, encode: { enter: { ...box, cornerRadius: { value: 10 }, fill: { value: "var(--text)" }, fillOpacity: { value: 0.03 }, stroke: { value: "var(--muted)" }, strokeOpacity: { value: 0.6 }, cursor: { value: "pointer" }, tooltip: { signal: "'Close ' + datum.first" } } } },
        { type: "text", interactive: false, from: { data: "outlines" }, encode: { enter: { x: { signal: "datum.x - datum.width / 2 + 8" }, y: { signal: "datum.y - datum.height / 2 + 8" }, baseline: { value: "middle" }, text: { field: "first" }, limit: { signal: "datum.width - 14" }, fill: { value: "var(--muted)" }, fontSize: { value: 11 } } } },
        {
          type: "group", from: { facet: { name: "one", data: "points", groupby: "number" } },
          marks: [{ type: "line", from: { data: "one" }, encode: { enter: { x: { field: "x" }, y: { field: "y" }, interpolate: { value: "basis" }, stroke, strokeWidth: [{ test: "datum.copies > 0", value: 2.5 }, { value: 1.2 }], strokeDash: { signal: "datum.copies > 0 ? [6, 4] : [1, 0]" }, tooltip: { field: "tip" } } } }],
        },
        { type: "symbol", interactive: false, from: { data: "ends" }, encode: { enter: { x: { field: "x" }, y: { field: "y", offset: -3 }, shape: { value: "triangle" }, size: { value: 46 }, angle: { field: "angle" }, fill: stroke } } },
        { type: "rect", name: "box", from: { data: "boxes" }, encode: { enter: { ...box, cornerRadius: { value: 7 }, fill: { value: "var(--surface)" }, stroke: { field: "ink" }, strokeWidth: { value: 2 }, cursor: { value: "pointer" }, tooltip: { field: "tip" } }, hover: { strokeWidth: { value: 4 } }, update: { strokeWidth: { value: 2 } } } },
        label("first", -8, 600, 12.5), label("second", 10, 400, 11),
      ],
      config: { text: { font: charts.FONT } },
    };
  }

  async function draw() {
    const status = document.getElementById("graph-status");
    const { nodes, links } = visible();
    const layout = laidOut(nodes, links);
    const spec = specification(layout);
    if (view) view.finalize();
    view = undefined;
    // The page must not jump while the old drawing is gone and the new one not there yet.
    const holder = document.getElementById("graph-drawing");
    holder.style.minHeight = `${holder.offsetHeight}px`;
    const result = await vegaEmbed("#graph-drawing", spec, { mode: "vega", renderer: "svg", logLevel: vega.Error, tooltip: { theme: "custom" }, actions: { export: true, source: false, compiled: false, editor: false }, downloadFileName: `${data.name}-graph` });
    view = result.view;
    holder.style.minHeight = "";
    const copies = links.reduce((sum, link) => sum + link.copies, 0);
    const summary = `${nodes.length} boxes, ${links.length} connections, ${copies} copied tensors between them.`;
    const drawing = document.querySelector("#graph-drawing svg");
    reachable(layout, drawing.parentElement);
    charts.named(holder, drawing, "Graph of modules", `${summary} The buttons that follow name each box; the table of operators and the tree of modules hold the same in words.`);
    status.textContent = summary;
    view.addEventListener("click", (_, item) => {
      const id = item && item.datum && item.datum.id;
      if (!id) return;
      act(id);
    });
  }

  function act(id) {
    if (id[0] === "o") report.select(Number(id.slice(1)), "graph");
    return id[0] === "o" ? Promise.resolve() : toggle(id);
  }

  function toggle(id) {
    const number = Number(id.slice(1));
    if (id[0] === "g") modules.forEach((item) => { if (ancestry(item.number).includes(number)) open.delete(item.number); });
    else if (!fits([number])) return Promise.resolve();
    return draw();
  }

  // A button over each box and outline, for the keyboard and for who listens: the mouse goes through them to the drawing.
  function reachable(layout, wrapper) {
    // An outline is where its name is: above what it holds.
    const places = layout.nodes().map((id) => layout.node(id)).filter((node) => node && node.width).map((node) => ({
      id: node.id, x: node.x, y: node.outline ? node.y - node.height / 2 + 12 : node.y, node,
    })).sort((a, b) => a.y - b.y || a.x - b.x);
    const layer = report.element("div", { className: "graph-keys" });
    layer.setAttribute("role", "group");
    layer.setAttribute("aria-label", "Boxes of the graph: arrow keys move, Enter opens or closes a module");
    places.forEach((item) => {
      item.button = report.element("button", { type: "button", tabIndex: -1 });
      item.button.dataset.box = item.id;
      const { x, y, width, height } = item.node;
      Object.assign(item.button.style, { left: `${x - width / 2}px`, top: `${y - height / 2}px`, width: `${width}px`, height: `${height}px` });
      item.button.setAttribute("aria-label", called(item.node));
      if (item.id[0] === "o") item.button.setAttribute("aria-pressed", String(report.selected() === Number(item.id.slice(1))));
      else item.button.setAttribute("aria-expanded", String(item.id[0] === "g"));
      item.button.addEventListener("click", () => act(item.id).then(() => follow(item.id)));
      item.button.addEventListener("keydown", (event) => move(event, item, places));
      item.button.addEventListener("focus", () => stay(item, places));
      layer.append(item.button);
    });
    wrapper.querySelector(".graph-keys")?.remove();
    wrapper.append(layer);
    if (places.length) stay(places.find((item) => item.id === here) || places[0], places);
  }

  function called(node) {
    if (node.outline) return `${node.first}, opened`;
    const kind = node.id[0] === "m" ? "module" : "operator";
    return `${node.first}, ${kind}, ${node.second.replaceAll(" · ", ", ")}, runs on ${place(node)}`;
  }

  // One of the buttons is in the order of the tabulator key, the others are reached from it.
  function stay(item, places) {
    here = item.id;
    places.forEach((other) => { other.button.tabIndex = other === item ? 0 : -1; });
  }

  const WAYS = { ArrowDown: ["y", 1, "x"], ArrowUp: ["y", -1, "x"], ArrowRight: ["x", 1, "y"], ArrowLeft: ["x", -1, "y"] };
  function move(event, item, places) {
    const ends = { Home: places[0], End: places.at(-1) };
    let next = ends[event.key];
    if (WAYS[event.key]) {
      const [along, sign, across] = WAYS[event.key];
      const cost = (other) => sign * (other[along] - item[along]) + 2 * Math.abs(other[across] - item[across]);
      const ahead = places.filter((other) => sign * (other[along] - item[along]) > 1);
      next = ahead.sort((a, b) => cost(a) - cost(b))[0] || item;
    }
    if (!next) return;
    event.preventDefault();
    next.button.focus();
  }

  // What was opened is an outline now, what was closed a box.
  function follow(id) {
    const now = { m: `g${id.slice(1)}`, g: `m${id.slice(1)}`, o: id }[id[0]];
    const find = (name) => document.querySelector(`.graph-keys [data-box="${name}"]`);
    (find(now) || find(id) || document.querySelector(".graph-keys [tabindex='0']"))?.focus();
  }

  // Opens these modules unless too much would be on the screen to read.
  function fits(numbers) {
    numbers.forEach((number) => open.add(number));
    if (new Set(operators.map((_, index) => standIn(index))).size <= LIMIT) return true;
    numbers.forEach((number) => open.delete(number));
    document.getElementById("graph-status").textContent = `Opening this would draw more than ${LIMIT} boxes; open something smaller.`;
    return false;
  }

  function closedOnes() {
    const ids = new Set(operators.map((_, index) => standIn(index)));
    return [...ids].filter((id) => id[0] === "m").map((id) => Number(id.slice(1)));
  }

  // The first look: as few modules as tell something.
  function openAtFirst() {
    for (let round = 0; round < 4; round += 1) {
      const closed = closedOnes();
      if (closed.length === 0 || new Set(operators.map((_, index) => standIn(index))).size >= 5 || !fits(closed)) return;
    }
  }

  function begin() {
    const target = document.getElementById("graph");
    openAtFirst();
    const start = new Set(open);
    const first = () => {
      watcher.disconnect();
      if (view === null) draw().then(() => { document.documentElement.dataset.graph = "drawn"; });
    };
    const watcher = new IntersectionObserver((entries) => entries.some((entry) => entry.isIntersecting) && first(), { rootMargin: "400px" });
    watcher.observe(target);
    report.onSelect((index) => document.querySelectorAll('.graph-keys [data-box^="o"]').forEach((button) =>
      button.setAttribute("aria-pressed", String(button.dataset.box === `o${index}`))));
    document.getElementById("graph-reset").addEventListener("click", () => { open.clear(); start.forEach((number) => open.add(number)); draw(); });
    document.getElementById("graph-open").addEventListener("click", () => { if (fits(closedOnes())) draw(); });
    return first;
  }

  return { begin, hasInside };
})();
