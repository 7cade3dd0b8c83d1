// The model by module: dagre lays it out, Vega draws it; modules open and close.
"use strict";
const graph = (() => {
  const { data, modules, operators, rowsOf, unpack, element } = report;
  // So many boxes are still drawn within seconds.
  const LIMIT = 5000;
  const MARGIN = 12;
  // Above what an opened box holds stands its name.
  const TITLE = 14;
  // Calls of modules and parts of crowded ones: several boxes may have one module.
  const boxes = rowsOf(data.boxes.rows).map((row, number) => ({ number, operators: 0, ...row, parent: number ? row.parent : null }));
  const innermost = unpack(data.boxes.of);
  const open = new Set([0]);
  // The box whose inside alone is drawn.
  let only = 0;
  let view = null;
  let here = null;
  let places = [];
  let frame = null;

  // The box itself and all around it.
  function ancestry(number) {
    const line = [];
    for (let at = number; at !== null; at = boxes[at].parent) line.push(at);
    return line;
  }
  const spans = boxes.map(() => ({ from: Infinity, to: -1, types: [] }));
  operators.forEach((item) => ancestry(innermost[item.index]).forEach((at) => {
    boxes[at].operators += 1;
    spans[at].from = Math.min(spans[at].from, item.index);
    spans[at].to = item.index;
    spans[at].types.push(item.type);
  }));
  repeats();
  const within = (number, around) => ancestry(number).includes(around);
  const number = (id) => Number(id.slice(1));

  // Members of a module that run the same operators one after the other are, from four on, one box, "Block ×12", until it is opened.
  function repeats() {
    const texts = spans.map((span) => span.types.join());
    const like = (a, b) => !a.part && !b.part && a.parent === b.parent && modules[a.module].class === modules[b.module].class && texts[a.number] === texts[b.number] && spans[b.number].from === spans[a.number].to + 1;
    const runs = [];
    const last = new Map();
    boxes.slice(1).forEach((item) => {
      const run = last.get(item.parent);
      if (run && like(run.at(-1), item)) run.push(item);
      else {
        last.set(item.parent, [item]);
        runs.push(last.get(item.parent));
      }
    });
    runs.filter((run) => run.length > 3).forEach((run) => {
      const [first] = run;
      const around = boxes[first.parent];
      const told = { part: `${modules[first.module].class || modules[around.module].name} ×${run.length}`, call: `${modules[first.module].name} to ${modules[run.at(-1).module].name}`, repeats: true };
      const operators = run.length * first.operators;
      // A list that holds nothing else is that box itself.
      if (around.number && !around.part && operators === around.operators) Object.assign(around, told);
      else {
        const number = boxes.push({ number: boxes.length, parent: around.number, module: around.module, operators, ...told }) - 1;
        run.forEach((item) => { item.parent = number; });
      }
    });
  }

  // A box's name: its module's, with that of a list around it that has no box itself.
  function name(item) {
    const { path: whole, name: last } = modules[item.module];
    if (item.parent === null) return last;
    const around = modules[boxes[item.parent].module].path;
    const start = around ? `${around}.` : "";
    return whole.startsWith(start) && whole.length > start.length ? whole.slice(start.length) : last;
  }
  // What a reader calls a box: the module's path, and which call or part of it.
  const aside = (item) => [item.part, item.call].filter(Boolean).join(", ");
  function path(at) {
    const item = boxes[at];
    const extra = aside(item);
    return (modules[item.module].path || modules[item.module].name) + (extra ? ` (${extra})` : "");
  }
  // The same in every page of the record: where calls of one module lie in others', the way to it tells them apart.
  const keys = boxes.map((item) => [item.module ? modules[item.module].path : "", item.part, item.call].filter(Boolean).join("|"));
  const twice = new Set(keys.filter((key, at) => keys.indexOf(key) !== at));
  const key = (at) => (twice.has(keys[at]) ? ancestry(at).reverse().map((one) => keys[one]).join(">") : keys[at]);

  // What stands for an operator: the outermost closed box around it, else the operator itself. Of what is outside
  // of the only box that is drawn, a stub: the largest box around it that does not hold that one.
  function standIn(index) {
    const way = ancestry(innermost[index]).reverse();
    const depth = way.indexOf(only);
    if (depth < 0) {
      const around = new Set(ancestry(only));
      const outside = way.find((at) => !around.has(at));
      return outside === undefined ? `t${index}` : `s${outside}`;
    }
    const closed = way.slice(depth).find((at) => !open.has(at));
    return closed === undefined ? `o${index}` : `m${closed}`;
  }
  const isStub = (id) => id[0] === "s" || id[0] === "t";
  // The operators that are drawn, each by what stands for it.
  function drawnIds() {
    return new Set(operators.filter((item) => within(innermost[item.index], only)).map((item) => standIn(item.index)));
  }

  function visible() {
    const nodes = new Map();
    const at = operators.map((_, index) => standIn(index));
    const near = new Set(data.edges.filter(([from, to]) => isStub(at[from]) !== isStub(at[to])).flatMap(([from, to]) => [at[from], at[to]]));
    at.forEach((id, index) => {
      // A stub is there for what it gives or takes.
      if (isStub(id) && !near.has(id)) return;
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
    data.edges.forEach(([from, to, copy]) => {
      const [a, b] = [at[from], at[to]];
      if (a === b || (isStub(a) && isStub(b))) return;
      const link = links.get(`${a} ${b}`) || { from: a, to: b, tensors: 0, copied: new Set() };
      link.tensors += 1;
      if (copy) link.copied.add(copy);
      link.copies = link.copied.size;
      links.set(`${a} ${b}`, link);
    });
    return { nodes: [...nodes.values()], links: [...links.values()] };
  }

  const whole = operators.reduce((sum, item) => sum + (item.best || 0), 0);
  // A stub is "from" or "to" what it stands for.
  function words(node) {
    const boxed = node.id[0] === "m" || node.id[0] === "s";
    const item = boxed ? boxes[number(node.id)] : operators[number(node.id)];
    const spent = node.best === null ? "" : ` · ${figures.figure(node.best, "seconds")}${whole ? `, ${figures.figure(node.best / whole, "share")}` : ""}`;
    if (!boxed) return { first: item.type, second: `#${item.index}${isStub(node.id) ? "" : spent}`, path: item.name };
    const many = `${node.operators} op${node.operators === 1 ? "" : "s"}`;
    const kind = modules[item.module].class;
    if (node.id[0] === "s") return { first: path(item.number), second: many, path: path(item.number) };
    return { first: item.part || name(item), second: [item.part ? "" : kind, item.call, many].filter(Boolean).join(" · ") + spent, path: path(item.number) };
  }

  const PLACES = { none: ["var(--muted)", "nowhere that takes time"], cpu: ["var(--cpu)", "CPU"], gpu: ["var(--gpu)", "GPU"], both: ["var(--hybrid)", "CPU and GPU"] };
  const where = (node) => PLACES[node.timed === 0 ? "none" : node.gpu === 0 ? "cpu" : node.gpu === node.timed ? "gpu" : "both"];
  const ink = (node) => (isStub(node.id) ? "var(--muted)" : where(node)[0]);
  const place = (node) => where(node)[1];

  // What is directly in each open box is laid out by itself, from the inside out: many boxes take as long as a few at a time.
  function laidOut(nodes, links) {
    const inside = new Map([[only, new Map()]]);
    const around = (id) => (isStub(id) ? [only] : ancestry(id[0] === "m" ? boxes[number(id)].parent : innermost[number(id)]));
    const ways = new Map(nodes.map((node) => {
      const way = around(node.id);
      return [node.id, [node.id, ...way.slice(0, way.indexOf(only) + 1).map((at) => `g${at}`)]];
    }));
    nodes.forEach((node) => {
      const text = words(node);
      const width = Math.min(260, Math.max(90, Math.max(text.first.length * 8.4, text.second.length * 6.2) + 24));
      ways.get(node.id).slice(1).reduce((child, id) => {
        const at = number(id);
        if (!inside.has(at)) inside.set(at, new Map());
        if (!inside.get(at).has(child.id)) inside.get(at).set(child.id, child);
        return { id, outline: true, first: path(at) };
      }, { ...node, ...text, width, height: 44 });
    });
    // An arrow is laid out piece by piece: in each opened box around one of its ends from or to a point at the border,
    // and in the innermost box that holds both ends between what they are in there.
    const levels = new Map([...inside.keys()].map((at) => [at, []]));
    const routes = links.map((link) => {
      const [from, to] = [ways.get(link.from), ways.get(link.to)];
      const depth = from.findIndex((id, at) => at > 0 && to.indexOf(id) > 0);
      const below = to.indexOf(from[depth]);
      const pieces = [
        ...from.slice(0, depth - 1).map((id, at) => [number(from[at + 1]), id, "out"]),
        [number(from[depth]), from[depth - 1], to[below - 1]],
        ...to.slice(0, below - 1).map((id, at) => [number(to[at + 1]), "in", id]).reverse(),
      ];
      pieces.forEach(([at, a, b]) => levels.get(at).push([a, b]));
      return { ...link, pieces };
    });
    const placed = new Map();
    function place(at) {
      const part = new dagre.graphlib.Graph();
      part.setGraph({ rankdir: "TB", nodesep: 18, ranksep: 24, marginx: MARGIN, marginy: MARGIN });
      inside.get(at).forEach((node, id) => part.setNode(id, node.outline ? Object.assign(node, place(number(id))) : node));
      levels.get(at).forEach(([from, to]) => {
        [from, to].filter((id) => !part.hasNode(id)).forEach((id) => part.setNode(id, { width: 1, height: 1 }));
        part.setEdge(from, to, {});
      });
      dagre.layout(part);
      viewport.framed(part, MARGIN);
      placed.set(at, part);
      const { width, height } = part.graph();
      return { width: Math.max(width, 120), height: height + TITLE };
    }
    const size = place(only);
    const all = [];
    function settle(at, left, top) {
      const part = placed.get(at);
      Object.assign(part, { left, top });
      inside.get(at).forEach((node, id) => {
        node.x += left;
        node.y += top;
        all.push(node);
        if (node.outline) settle(number(id), node.x - node.width / 2, node.y - node.height / 2 + TITLE);
      });
    }
    settle(only, 0, 0);
    const lines = routes.map(({ pieces, ...link }) => ({ ...link, points: pieces.flatMap(([at, from, to]) => {
      const part = placed.get(at);
      return part.edge(from, to).points.map((point) => ({ x: point.x + part.left, y: point.y + part.top }));
    }) }));
    return { nodes: all, lines, width: size.width, height: size.height - TITLE };
  }
  // Through the middles between its points, so that it bends smoothly.
  function curve(points) {
    const middle = (a, b) => `${(a.x + b.x) / 2} ${(a.y + b.y) / 2}`;
    const [first, last] = [points[0], points.at(-1)];
    return [`M${first.x} ${first.y}`, ...points.slice(1, -1).map((point, at) => `${at ? "" : `L${middle(first, point)}`}Q${point.x} ${point.y} ${middle(point, points[at + 2])}`), `L${last.x} ${last.y}`].join("");
  }

  function specification(layout) {
    const all = layout.nodes;
    const most = Math.max(...all.map((node) => (node.outline || isStub(node.id) ? 0 : node.best || 0)));
    const boxes = all.filter((node) => !node.outline).map((node) => ({
      id: node.id, x: node.x, y: node.y, width: node.width, height: node.height, first: node.first, second: node.second, ink: ink(node), dash: isStub(node.id) ? [4, 3] : [1, 0],
      heat: isStub(node.id) || !most ? 0 : 0.45 * Math.sqrt((node.best || 0) / most),
      tip: { Module: node.path, Operators: node.operators, "Time, best plan": figures.figure(node.best, "seconds"), "Runs on": place(node) },
    }));
    const outlines = all.filter((node) => node.outline).map(({ id, x, y, width, height, first }) => ({ id, x, y, width, height, first }));
    const arrows = layout.lines.map(({ points, tensors, copies }) => {
      const [before, last] = points.slice(-2);
      return { path: curve(points), x: last.x, y: last.y, copies, angle: (Math.atan2(last.y - before.y, last.x - before.x) * 180) / Math.PI + 90, tip: { Tensors: tensors, Copied: copies } };
    });
    const { width, height } = layout;
    const stroke = [{ test: "datum.copies > 0", value: "var(--copy)" }, { value: "var(--muted)" }];
    const box = { x: { signal: "datum.x - datum.width / 2" }, y: { signal: "datum.y - datum.height / 2" }, width: { field: "width" }, height: { field: "height" } };
    const label = (text, dy, weight, size) => ({
      type: "text", interactive: false, from: { data: "boxes" },
      encode: { enter: { x: { field: "x" }, y: { field: "y", offset: dy }, align: { value: "center" }, baseline: { value: "middle" }, text: { field: text }, limit: { signal: "datum.width - 12" }, fill: { value: "var(--text)" }, fontSize: { value: size }, fontWeight: { value: weight } } },
    });
    return {
      width: Math.max(width, 1), height: Math.max(height, 1), padding: 0, autosize: "none",
      data: [{ name: "boxes", values: boxes }, { name: "outlines", values: outlines }, { name: "arrows", values: arrows }],
      marks: [
        { type: "rect", name: "outline", from: { data: "outlines" }, encode: { enter: { ...box, cornerRadius: { value: 10 }, fill: { value: "var(--text)" }, fillOpacity: { value: 0.03 }, stroke: { value: "var(--muted)" }, strokeOpacity: { value: 0.6 }, cursor: { value: "pointer" }, tooltip: { signal: "'Close ' + datum.first" } } } },
        { type: "text", interactive: false, from: { data: "outlines" }, encode: { enter: { x: { signal: "datum.x - datum.width / 2 + 8" }, y: { signal: "datum.y - datum.height / 2 + 8" }, baseline: { value: "middle" }, text: { field: "first" }, limit: { signal: "datum.width - 14" }, fill: { value: "var(--muted)" }, fontSize: { value: 11 } } } },
        { type: "path", from: { data: "arrows" }, encode: { enter: { x: { value: 0 }, y: { value: 0 }, path: { field: "path" }, stroke, strokeWidth: [{ test: "datum.copies > 0", value: 2.5 }, { value: 1.2 }], strokeDash: { signal: "datum.copies > 0 ? [6, 4] : [1, 0]" }, tooltip: { field: "tip" } } } },
        { type: "symbol", interactive: false, from: { data: "arrows" }, encode: { enter: { x: { field: "x" }, y: { field: "y", offset: -3 }, shape: { value: "triangle" }, size: { value: 46 }, angle: { field: "angle" }, fill: stroke } } },
        { type: "rect", name: "box", from: { data: "boxes" }, encode: { enter: { ...box, cornerRadius: { value: 7 }, fill: { value: "var(--surface)" }, stroke: { field: "ink" }, strokeDash: { field: "dash" }, strokeWidth: { value: 2 }, cursor: { value: "pointer" }, tooltip: { field: "tip" } }, hover: { strokeWidth: { value: 4 } }, update: { strokeWidth: { value: 2 } } } },
        // The more of the time, the fuller.
        { type: "rect", interactive: false, from: { data: "boxes" }, encode: { enter: { ...box, cornerRadius: { value: 7 }, fill: { value: "var(--warn)" }, fillOpacity: { field: "heat" } } } },
        label("first", -8, 600, 12.5), label("second", 10, 400, 11),
      ],
      config: { text: { font: charts.FONT } },
    };
  }

  // `shown` is the box or outline that the reader has asked for; without one the beginning is seen.
  async function draw(shown = null, step = false) {
    const { nodes, links } = visible();
    const layout = laidOut(nodes, links);
    const spec = specification(layout);
    // What is alone is gone back from by the browser's button as well.
    address.set("graph", state(), view === null ? {} : { at: "graph", step });
    if (view) view.finalize();
    view = undefined;
    const holder = document.getElementById("graph-drawing");
    const result = await vegaEmbed("#graph-drawing", spec, { mode: "vega", renderer: "svg", logLevel: vega.Error, tooltip: { theme: "custom" }, actions: false });
    view = result.view;
    const drawing = holder.querySelector("svg");
    // One copy serves all that read it on a device.
    const copies = new Set(links.flatMap((link) => [...link.copied])).size;
    const real = nodes.filter((node) => !isStub(node.id)).length;
    const summary = `${real} box${real === 1 ? "" : "es"}, ${links.length} connection${links.length === 1 ? "" : "s"}, ${copies} copied tensor${copies === 1 ? "" : "s"} between them.${only ? ` Only ${path(only)} is drawn: the other ${figures.figure(operators.length - boxes[only].operators, "count")} operators are not, or stand in dashed boxes.` : ""}`;
    reachable(layout, drawing.parentElement);
    charts.named(holder, drawing, "Graph of modules", `${summary} The buttons that follow name each box; the table of operators and the tree of modules hold the same in words.`);
    // Its boxes have the figures of the modules' chart.
    const caption = data.captions["by-module"] || { subject: "", footer: "" };
    pictures.menu(document.getElementById("graph-save"), { title: "Graph of modules", name: "graph", drawn: () => view.toSVG(), said: () => ({ words: summary, ...caption }) });
    said(summary);
    crumbs();
    frame.resize(spec.width, spec.height, layout.nodes);
    const target = shown && places.find((item) => item.id === shown);
    if (target) bring(target, false);
    else frame.start(rectangle(places.find((item) => !item.node.outline) || places[0]));
    marks();
    offer();
    view.addEventListener("click", (_, item) => {
      const id = item && item.datum && item.datum.id;
      if (id) act(id);
    });
  }
  const said = (text) => { document.getElementById("graph-status").textContent = text; };
  const rectangle = (item) => ({ x: item.node.x - item.node.width / 2, y: item.node.y - item.node.height / 2, width: item.node.width, height: item.node.height });
  // Of an opened module too large for the frame its first box is seen at least.
  function bring(item, animate) {
    const rect = rectangle(item);
    const inner = item.node.outline && places.find((other) => !other.node.outline && other.id[0] !== "t" && other.id[0] !== "s" && within(boxOf(other.id), number(item.id)));
    frame.show(rect, { head: inner ? rectangle(inner) : rect, animate });
  }
  // The box that is meant, or in which an operator lies.
  const boxOf = (id) => (id[0] === "o" || id[0] === "t" ? innermost[number(id)] : number(id));

  function act(id) {
    here = id;
    if (id[0] === "o" || id[0] === "t") {
      report.select(number(id), "graph");
      offer();
      return Promise.resolve();
    }
    return id[0] === "s" ? alone(number(id)) : toggle(id);
  }

  function toggle(id) {
    const at = number(id);
    if (id[0] === "g") shut(at);
    else if (!fits([at])) return Promise.resolve();
    here = `${id[0] === "g" ? "m" : "g"}${at}`;
    return draw(here);
  }
  const shut = (around) => boxes.forEach((item) => { if (open.has(item.number) && within(item.number, around)) open.delete(item.number); });

  // Draws the inside of one box, of the model's again all.
  function alone(at) {
    only = at;
    // What is around it is open when it is left.
    ancestry(at).forEach((one) => open.add(one));
    if (tooMuch()) { shut(at); open.add(at); }
    if (drawnIds().size === 1) openAtFirst();
    here = null;
    return draw(null, true);
  }
  function crumbs() {
    const list = document.getElementById("graph-path");
    list.hidden = only === 0;
    const way = ancestry(only).reverse();
    list.querySelector("ol").replaceChildren(...way.map((at) => {
      const button = element("button", { type: "button", className: "link", textContent: at ? boxes[at].part || [name(boxes[at]), boxes[at].call && `(${boxes[at].call})`].filter(Boolean).join(" ") : modules[0].name });
      if (at === only) button.setAttribute("aria-current", "true");
      button.addEventListener("click", () => alone(at).then(() => list.querySelector("[aria-current]")?.focus()));
      return element("li", {}, button);
    }));
  }
  // The button draws alone what the reader has come to: a module, or the one that an operator is in.
  function offer() {
    const button = document.getElementById("graph-only");
    const at = here === null || !places.some((item) => item.id === here) ? only : boxOf(here);
    button.disabled = at === only;
    button.textContent = at === only ? "Only one module" : `Only ${path(at)}`;
    button.dataset.only = at;
  }

  // A button over each box and outline, for the keyboard and for who listens: the mouse goes through them to the drawing.
  function reachable(layout, wrapper) {
    // An outline is where its name is: above what it holds.
    places = layout.nodes.map((node) => ({
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
      if (item.id[0] === "o" || item.id[0] === "t") item.button.setAttribute("aria-pressed", String(report.selected() === number(item.id)));
      else if (item.id[0] !== "s") item.button.setAttribute("aria-expanded", String(item.id[0] === "g"));
      item.button.addEventListener("click", () => act(item.id).then(() => follow(item.id)));
      item.button.addEventListener("keydown", (event) => move(event, item));
      item.button.addEventListener("focus", () => { stay(item); offer(); });
      layer.append(item.button);
    });
    wrapper.querySelector(".graph-keys")?.remove();
    wrapper.append(layer);
    if (places.length) stop(places.find((item) => item.id === here) || places[0]);
  }

  function called(node) {
    if (node.outline) return `${node.first}, opened`;
    if (isStub(node.id)) return `${node.first}, ${node.second}, not in ${path(only)}`;
    const kind = node.id[0] === "m" ? (boxes[number(node.id)].part ? "part" : "module") : "operator";
    return `${node.first}, ${kind}, ${node.second.replaceAll(" · ", ", ")}, runs on ${place(node)}`;
  }

  // One of the buttons is in the order of the tabulator key, the others are reached from it.
  function stop(item) {
    places.forEach((other) => { other.button.tabIndex = other === item ? 0 : -1; });
  }
  function stay(item) {
    here = item.id;
    stop(item);
  }
  // Who comes by the tabulator key comes to what is seen.
  function stopInView() {
    if (frame === null || document.activeElement.closest(".graph-keys")) return;
    const now = places.find((item) => item.button?.tabIndex === 0);
    const spot = (item) => ({ x: item.x - 1, y: item.y - 1, width: 2, height: 2 });
    if (now && !frame.visible(spot(now))) stop(places.find((item) => frame.visible(spot(item))) || now);
  }

  const WAYS = { ArrowDown: ["y", 1, "x"], ArrowUp: ["y", -1, "x"], ArrowRight: ["x", 1, "y"], ArrowLeft: ["x", -1, "y"] };
  function move(event, item) {
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
    event.stopPropagation();
    focusOn(next);
  }
  function focusOn(item) {
    item.button.focus({ preventScroll: true });
    frame.keep({ x: item.x - item.node.width / 2, y: item.y - 22, width: item.node.width, height: 44 });
  }

  // What was opened is an outline now, what was closed a box.
  function follow(id) {
    const now = { m: `g${id.slice(1)}`, g: `m${id.slice(1)}`, o: id }[id[0]];
    const find = (name) => places.find((item) => item.id === name);
    const next = find(now) || find(id) || places.find((item) => item.button.tabIndex === 0);
    next?.button.focus({ preventScroll: true });
  }

  const tooMuch = () => drawnIds().size > LIMIT;
  // Opens these boxes unless too much would be on the screen to read.
  function fits(numbers) {
    const added = numbers.filter((at) => !open.has(at));
    added.forEach((at) => open.add(at));
    if (!tooMuch()) return true;
    added.forEach((at) => open.delete(at));
    said(`Not opened: more than ${figures.figure(LIMIT, "count")} boxes would be drawn. Close something first, or draw only one module.`);
    return false;
  }

  const closedOnes = () => [...drawnIds()].filter((id) => id[0] === "m").map(number);

  // The first look: as few modules as tell something.
  function openAtFirst() {
    for (let round = 0; round < 4; round += 1) {
      const closed = closedOnes().filter((at) => !boxes[at].repeats);
      if (closed.length === 0 || drawnIds().size >= 5 || !fits(closed)) return;
    }
  }

  // Sought in names of modules, types and numbers of operators; where none has it, in classes and the operators'
  // own names. A path is sought where a dot asks for one.
  const lower = (text) => text.toLowerCase();
  const texts = { m: boxes.map((item) => lower(item.part || name(item))), o: operators.map((item) => lower(item.type)) };
  const others = { m: boxes.map((item) => lower(item.part ? "" : modules[item.module].class)), o: operators.map((item) => lower(item.name)) };
  const paths = boxes.map((item) => lower(modules[item.module].path));
  const firsts = boxes.map(() => Infinity);
  operators.forEach((item) => ancestry(innermost[item.index]).forEach((at) => { firsts[at] = Math.min(firsts[at], item.index); }));
  let matches = [];
  let match = -1;
  // In the graph's order, modules before what is in them.
  function all(module, operator) {
    const found = [
      ...boxes.filter((item) => item.number && module(item.number)).map((item) => ({ id: `m${item.number}`, first: firsts[item.number], depth: ancestry(item.number).length })),
      ...operators.filter((item) => operator(item.index)).map((item) => ({ id: `o${item.index}`, first: item.index, depth: Infinity })),
    ];
    return found.sort((a, b) => a.first - b.first || a.depth - b.depth);
  }
  function find(text) {
    const sought = lower(text.trim());
    match = -1;
    matches = [];
    if (sought) {
      matches = all((at) => texts.m[at].includes(sought) || (sought.includes(".") && paths[at].endsWith(sought)), (at) => (sought[0] === "#" ? `#${at}` === sought : texts.o[at].includes(sought)));
      if (!matches.length) matches = all((at) => others.m[at].includes(sought), (at) => others.o[at].includes(sought));
    }
    document.getElementById("graph-found").textContent = !sought ? "" : matches.length ? `${matches.length} found. Enter goes to the next.` : "Nothing found.";
    marks();
  }
  // What is found is marked, and the closed box that hides it.
  function marks() {
    const found = new Set();
    const holding = new Set();
    matches.forEach(({ id }) => {
      const way = ancestry(boxOf(id));
      if (!way.includes(only)) return;
      const shown = [id, `g${number(id)}`].find((name) => (name[0] !== "g" || id[0] === "m") && places.some((item) => item.id === name));
      const closed = way.find((at) => places.some((item) => item.id === `m${at}`));
      if (shown) found.add(shown);
      else if (closed !== undefined) holding.add(`m${closed}`);
    });
    const now = match < 0 ? [] : [matches[match].id, ...(matches[match].id[0] === "m" ? [`g${number(matches[match].id)}`] : [])];
    places.forEach((item) => {
      item.button.classList.toggle("found", found.has(item.id));
      item.button.classList.toggle("holds", holding.has(item.id) && !found.has(item.id));
      item.button.classList.toggle("now", now.includes(item.id));
    });
  }
  async function next(step) {
    if (matches.length === 0) return;
    match = (match + step + matches.length + (match < 0 && step < 0 ? 1 : 0)) % matches.length;
    const { id } = matches[match];
    const inner = id[0] === "m" ? boxes[number(id)].parent : boxOf(id);
    const way = ancestry(inner);
    let redraw = false;
    if (!way.includes(only)) { only = 0; redraw = true; }
    const closed = way.filter((at) => !open.has(at));
    if (closed.length) {
      redraw = true;
      if (!fits(closed)) { shut(only); fits([...way, only]); }
    }
    here = id;
    const target = () => places.find((item) => item.id === id) || places.find((item) => item.id === `g${number(id)}`);
    if (redraw) await draw(id);
    else if (target()) bring(target(), true);
    document.getElementById("graph-found").textContent = `${match + 1} of ${matches.length}: ${id[0] === "m" ? path(number(id)) : `${operators[number(id)].type} #${number(id)}`}`;
    marks();
    offer();
  }

  // What is open and what is alone, in words that any page of this record has; empty as the page opens.
  // A star stands for all that is in a box, +2 for all that is no more than two modules deep.
  let beginning = "";
  const children = boxes.map(() => []);
  boxes.forEach((item) => { if (item.parent !== null) children[item.parent].push(item.number); });
  const allOpen = (at) => open.has(at) && children[at].every(allOpen);
  const named = (at) => (at ? key(at).replace(/[~*%+]/g, (sign) => `%${sign.charCodeAt(0).toString(16)}`) : "");
  function opened(at) {
    if (children[at].length && allOpen(at)) return [`${named(at)}*`];
    const inner = children[at].filter((child) => open.has(child)).flatMap(opened);
    return inner.length || at === 0 ? inner : [named(at)];
  }
  const depth = (at) => ancestry(at).length - 1;
  function level() {
    const deepest = Math.max(...[...open].map(depth));
    return deepest > 0 && boxes.every((item) => open.has(item.number) === (depth(item.number) <= deepest)) ? [`+${deepest}`] : null;
  }
  const told = () => [named(only), ...(allOpen(0) ? ["*"] : level() || opened(0))].join("~");
  const state = () => (told() === beginning ? "" : told());
  function restore(text) {
    const by = new Map(boxes.map((item) => [named(item.number), item.number]));
    const [single, ...inner] = (text || beginning).split("~");
    open.clear();
    open.add(0);
    only = by.get(single) ?? 0;
    ancestry(only).forEach((at) => open.add(at));
    inner.forEach((name) => {
      const all = name.endsWith("*") && by.get(name.slice(0, -1));
      if (/^\+\d+$/.test(name)) fits(boxes.filter((item) => depth(item.number) <= Number(name)).map((item) => item.number));
      else if (by.has(name)) fits(ancestry(by.get(name)));
      else if (all !== false && all !== undefined) fits([...ancestry(all), ...boxes.filter((item) => within(item.number, all)).map((item) => item.number)]);
    });
    here = null;
    return view === null ? Promise.resolve() : draw();
  }

  function begin() {
    const target = document.getElementById("graph");
    openAtFirst();
    beginning = told();
    const start = new Set(open);
    restore(address.get("graph"));
    address.onChange(() => { if ((address.get("graph") || "") !== state()) restore(address.get("graph")); });
    frame = viewport.on(target.querySelector(".graph-scroll"), document.getElementById("graph-drawing"), target.querySelector(".graph-tools"), stopInView);
    const first = () => {
      // What is folded has no width.
      if (target.querySelector("details:not([open])")) return;
      watcher.disconnect();
      if (view === null) draw().then(() => { document.documentElement.dataset.graph = "drawn"; });
    };
    const watcher = new IntersectionObserver((entries) => entries.some((entry) => entry.isIntersecting) && first(), { rootMargin: "400px" });
    watcher.observe(target.querySelector(".graph-scroll"));
    report.onSelect((index) => document.querySelectorAll('.graph-keys [data-box^="o"]').forEach((button) =>
      button.setAttribute("aria-pressed", String(button.dataset.box === `o${index}`))));
    document.getElementById("graph-reset").addEventListener("click", () => { only = 0; open.clear(); start.forEach((at) => open.add(at)); here = null; draw(); });
    document.getElementById("graph-open").addEventListener("click", () => { if (fits(closedOnes())) draw(); });
    document.getElementById("graph-only").addEventListener("click", (event) => alone(Number(event.target.dataset.only)).then(() => document.querySelector("#graph-path [aria-current]").focus()));
    const sought = document.getElementById("graph-find");
    sought.addEventListener("input", () => find(sought.value));
    sought.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault();
      next(event.shiftKey ? -1 : 1);
    });
    return first;
  }

  return { begin, state, restore };
})();
