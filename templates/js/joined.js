// Two graphs as one, joined by module path: dagre lays out what is open, coloured by time gained and lost.
"use strict";
(() => {
  const { data, rowsOf, element } = report;
  const LIMIT = 160;
  const SHOWN = 12;
  // Arrows of one box from which on all but the first are left out until it is selected: a mask that every layer reads.
  const HUB = 6;
  const NARROW = matchMedia("(max-width: 700px)").matches;
  const MARGIN = 10;
  const WIDEST = NARROW ? 190 : 250;
  const SVG = "http://www.w3.org/2000/svg";

  function drawn(tag, properties = {}, ...children) {
    const made = document.createElementNS(SVG, tag);
    Object.entries(properties).forEach(([name, value]) => { if (value !== null) made.setAttribute(name, value); });
    made.append(...children.filter((child) => child !== null));
    return made;
  }
  const seconds = (value) => figures.figure(value, "seconds");
  const many = (number, noun) => `${number.toLocaleString("en-US")} ${noun}${number === 1 ? "" : "s"}`;
  function signed(rise) {
    return rise === 0 ? "the same" : `${rise > 0 ? "▲ +" : "▼ −"}${seconds(Math.abs(rise))}`;
  }

  function begin(holder, given) {
    const [modules, operators] = [given.modules, given.operators].map((columns) => rowsOf(columns).map((row, number) => ({ number, ...row })));
    const children = modules.map(() => []);
    const own = modules.map(() => []);
    modules.forEach((item) => { if (item.parent !== null) children[item.parent].push(item.number); });
    operators.forEach((item) => own[item.module].push(item.number));
    const fused = new Map();
    given.fusions.forEach(([state, type, members]) => members.forEach((number) => fused.set(number, [...(fused.get(number) || []), { state, type, members }])));
    const stand = new Map();
    given.replaced.forEach(([gone, added]) => { gone.forEach((number) => stand.set(number, added)); added.forEach((number) => stand.set(number, gone)); });
    const open = new Set([0]);
    const scroll = holder.querySelector(".graph-scroll");
    const layer = scroll.querySelector(".graph-layer");
    const frame = viewport.on(scroll, layer, holder.querySelector(".graph-tools"), stopInView);
    const status = holder.querySelector("[data-status]");
    const detail = holder.querySelector(".detail");
    let chosen = null;
    let places = [];
    let left = new Map();

    // Of an operator in both whose time one record does not know, nothing is known to have changed.
    function changeOf(id) {
      const number = Number(id.slice(1));
      if (id[0] !== "o") return modules[number].rise;
      const { state, base_time: base, new_time: added } = operators[number];
      return state === "both" && (base === null || added === null) ? 0 : (added || 0) - (base || 0);
    }
    function tone(id) {
      const share = given.whole ? changeOf(id) / given.whole : 0;
      const step = given.shades.filter((from) => Math.abs(share) >= from).length;
      return step === 0 ? "" : `${share > 0 ? "l" : "g"}${step}`;
    }

    function ancestry(number) {
      const line = [];
      for (let at = number; at !== null; at = modules[at].parent) line.push(at);
      return line;
    }
    // What stands for each operator: the outermost closed module around it, else the operator itself.
    function standIns() {
      const of = modules.map(() => undefined);
      const closed = (number) => {
        if (of[number] === undefined) {
          const { parent } = modules[number];
          const above = parent === null ? null : closed(parent);
          of[number] = above !== null ? above : open.has(number) ? null : number;
        }
        return of[number];
      };
      return operators.map((item, number) => { const at = closed(item.module); return at === null ? `o${number}` : `m${at}`; });
    }
    // What would be drawn, counted without going through every operator.
    function boxes() {
      let found = 0;
      const look = (number) => {
        found += own[number].length;
        children[number].forEach((child) => { if (open.has(child)) look(child); else found += 1; });
      };
      look(0);
      return found;
    }
    function fits(numbers) {
      const added = numbers.filter((number) => !open.has(number));
      added.forEach((number) => open.add(number));
      if (boxes() <= LIMIT) return true;
      added.forEach((number) => open.delete(number));
      status.textContent = `Opening this would draw more than ${LIMIT} boxes; close something first, or open something smaller.`;
      return false;
    }

    function words(id) {
      const number = Number(id.slice(1));
      if (id[0] === "m") {
        const item = modules[number];
        const marks = [item.added && `+${item.added}`, item.gone && `−${item.gone}`, item.flipped && `⇄ ${item.flipped}`, fusionsIn(number) && many(fusionsIn(number), "fusion")].filter(Boolean);
        return { first: item.name, second: [item.class, many(item.operators, "op")].filter(Boolean).join(" · "), marks: marks.join("  "), base: item.base, added: item.new };
      }
      const item = operators[number];
      const marks = [item.flip && `⇄ ${item.flip}`, ...(fused.get(number) || []).map((one) => `${one.state === "new" ? "+" : "−"} fused ${one.type}`)].filter(Boolean);
      const sign = { new: "+ ", gone: "− ", both: "" }[item.state];
      const place = item.new_index === null ? `#${item.base_index}` : `#${item.new_index}`;
      return { first: sign + item.type, second: place, marks: marks.slice(0, 2).join("  "), base: item.base_time, added: item.new_time };
    }
    const inside = modules.map(() => 0);
    given.fusions.forEach(([, , members]) => new Set(members.flatMap((number) => ancestry(operators[number].module))).forEach((number) => { inside[number] += 1; }));
    const fusionsIn = (number) => inside[number];
    function times(id, { base, added }) {
      const state = id[0] === "o" ? operators[Number(id.slice(1))].state : "both";
      if (base === null && added === null) return "no time known";
      if (state !== "both") return seconds(state === "new" ? added : base);
      if (seconds(base) === seconds(added)) return seconds(base);
      return `${seconds(base)} → ${seconds(added)}`;
    }

    function linksOf(at) {
      const links = new Map();
      given.edges.forEach(([from, to, before, after]) => {
        const [a, b] = [at[from], at[to]];
        if (a === b) return;
        const link = links.get(`${a} ${b}`) || { from: a, to: b, base: 0, added: 0, came: new Set(), went: new Set(), copied: false };
        link.base += before > 0;
        link.added += after > 0;
        // One copy serves all readers: it is counted by what is copied.
        if (before < 2 && after === 2) link.came.add(from);
        if (before === 2 && after < 2) link.went.add(from);
        if (before === 2 && after === 2) link.copied = true;
        links.set(`${a} ${b}`, link);
      });
      return [...links.values()];
    }
    // What crosses the devices anew, or no longer, is always drawn.
    function withoutHubs(links) {
      const outs = new Map();
      const ins = new Map();
      links.forEach(({ from, to }) => { outs.set(from, (outs.get(from) || 0) + 1); ins.set(to, (ins.get(to) || 0) + 1); });
      const begun = new Set();
      left = new Map();
      return links.filter((link) => {
        const hubs = [outs.get(link.from) > HUB && `from ${link.from}`, ins.get(link.to) > HUB && `to ${link.to}`].filter(Boolean);
        const again = hubs.some((hub) => begun.has(hub));
        hubs.forEach((hub) => begun.add(hub));
        if (!again || link.came.size || link.went.size) return true;
        [link.from, link.to].forEach((id) => left.set(id, [...(left.get(id) || []), link]));
        return false;
      });
    }

    function laidOut() {
      const at = standIns();
      const links = linksOf(at);
      const kept = withoutHubs(links);
      const layout = new dagre.graphlib.Graph({ compound: true });
      layout.setGraph({ rankdir: "TB", nodesep: NARROW ? 10 : 16, ranksep: 30, marginx: MARGIN, marginy: MARGIN });
      layout.setDefaultEdgeLabel(() => ({}));
      new Set(at).forEach((id) => {
        const text = words(id);
        if (left.has(id)) text.second += ` · ⋯ ${left.get(id).length}`;
        const time = times(id, text);
        const widest = Math.max(text.first.length * 7.6, text.second.length * 6.3, time.length * 6.4 + 16, text.marks.length * 6.8);
        layout.setNode(id, { id, ...text, time, width: Math.min(WIDEST, Math.max(96, widest + 22)), height: text.marks ? 78 : 62 });
        surround(layout, id);
      });
      kept.forEach((link) => {
        const told = (sign, copies) => copies.size > 0 && `${sign} ${copies.size === 1 ? "copy" : `${copies.size} copies`}`;
        const label = [told("+", link.came), told("−", link.went)].filter(Boolean).join(", ");
        layout.setEdge(link.from, link.to, label ? { ...link, label, width: label.length * 6.4, height: 16, labelpos: "c" } : { ...link });
      });
      dagre.layout(layout);
      viewport.framed(layout, MARGIN);
      return layout;
    }
    // Opened modules stay as outlines around what they hold.
    function surround(layout, id) {
      const number = Number(id.slice(1));
      let child = id;
      ancestry(id[0] === "m" ? modules[number].parent : operators[number].module).filter((at) => at !== 0).forEach((at) => {
        if (!layout.hasNode(`g${at}`)) layout.setNode(`g${at}`, { id: `g${at}`, outline: true, first: modules[at].path });
        layout.setParent(child, `g${at}`);
        child = `g${at}`;
      });
    }

    // A text cut to what its box holds; the whole of it is in the box's name and below the graph.
    const cut = (text, width, letter) => (text.length * letter <= width ? text : `${text.slice(0, Math.max(1, Math.floor(width / letter) - 1))}…`);
    function label(x, y, text, className) {
      const made = drawn("text", { x, y, class: className });
      made.textContent = text;
      return made;
    }
    function box(node) {
      const [x, y] = [node.x - node.width / 2, node.y - node.height / 2];
      const state = node.id[0] === "o" ? operators[Number(node.id.slice(1))].state : stateOf(Number(node.id.slice(1)));
      const part = drawn("g", { class: `box ${state}`, role: "button", tabindex: -1, "data-box": node.id, "aria-label": called(node) });
      if (node.id[0] === "m") part.setAttribute("aria-expanded", "false");
      else part.setAttribute("aria-pressed", String(node.id === chosen));
      const size = { x, y, width: node.width, height: node.height, rx: 7 };
      part.append(drawn("rect", { ...size, class: "paper" }), drawn("rect", { ...size, class: `tint ${tone(node.id)}` }));
      const change = changeOf(node.id);
      const way = tone(node.id) === "" ? "" : change > 0 ? " ▲" : " ▼";
      part.append(label(node.x, y + 18, cut(node.first, node.width - 14, 7.2), "name"));
      part.append(label(node.x, y + 34, cut(node.second, node.width - 12, 6), "aside"));
      part.append(label(node.x, y + 50, cut(node.time + way, node.width - 8, 6), "time"));
      if (node.marks) part.append(label(node.x, y + 67, cut(node.marks, node.width - 8, 6.4), "marks"));
      const title = drawn("title");
      title.textContent = `${pathOf(node.id)}\n${given.base}: ${seconds(node.base)}\n${given.new}: ${seconds(node.added)}\n${signed(change)}`;
      part.append(title);
      return part;
    }
    function stateOf(number) {
      const item = modules[number];
      return item.operators === item.added ? "new" : item.operators === item.gone ? "gone" : "both";
    }
    function pathOf(id) {
      const number = Number(id.slice(1));
      if (id[0] !== "o") return modules[number].path || modules[number].name;
      return [operators[number].type, operators[number].path].filter(Boolean).join(" of ");
    }
    function called(node) {
      const number = Number(node.id.slice(1));
      const states = { new: `only in ${given.new}`, gone: `only in ${given.base}`, both: "" };
      const change = changeOf(node.id);
      const told = [pathOf(node.id), node.id[0] === "m" ? `module, ${many(modules[number].operators, "operator")}` : "operator"];
      told.push(states[node.id[0] === "m" ? stateOf(number) : operators[number].state]);
      told.push(`${seconds(node.base)} before, ${seconds(node.added)} now`);
      if (change) told.push(`${seconds(Math.abs(change))} ${change > 0 ? "lost" : "gained"}`);
      if (node.id[0] === "o" && operators[number].flip) told.push(`device ${operators[number].flip.replace("→", "to")}`);
      return told.filter(Boolean).join(", ");
    }
    // Taller by a line than what dagre gives it, for its name.
    function outline(node) {
      const [x, y] = [node.x - node.width / 2, node.y - node.height / 2];
      const part = drawn("g", { class: "outline", role: "button", tabindex: -1, "data-box": node.id, "aria-expanded": "true", "aria-label": `${node.first}, opened` });
      const title = drawn("title");
      title.textContent = `Close ${node.first}`;
      part.append(drawn("rect", { x, y: y - 7, width: node.width, height: node.height + 7, rx: 10, class: "around" }), label(x + 9, y + 5, cut(node.first, node.width - 14, 6.2), "path"), title);
      return part;
    }
    function arrow(layout, edge) {
      const link = layout.edge(edge);
      const { points, label: text } = link;
      const kind = link.came.size ? "came" : link.went.size ? "went" : link.copied ? "copied" : link.base && !link.added ? "gone" : link.added && !link.base ? "new" : "";
      // Curves through the middles of dagre's line, its first and last piece straight.
      const middle = (a, b) => `${(a.x + b.x) / 2},${(a.y + b.y) / 2}`;
      const last = points.at(-1);
      const path = [`M${points[0].x},${points[0].y}`, `L${middle(points[0], points[1])}`, ...points.slice(1, -1).map((point, at) => `Q${point.x},${point.y} ${middle(point, points[at + 2])}`), `L${last.x},${last.y}`].join(" ");
      const before = points.at(-2);
      const angle = (Math.atan2(last.y - before.y, last.x - before.x) * 180) / Math.PI;
      const part = drawn("g", { class: `edge ${kind}` }, drawn("path", { d: path }), drawn("path", { class: "tip", d: "M0,0 L-8,-4 L-8,4 Z", transform: `translate(${last.x},${last.y}) rotate(${angle})` }));
      if (text) part.append(label(link.x, link.y + 4, text, "copy"));
      return part;
    }

    function draw() {
      const layout = laidOut();
      const nodes = layout.nodes().map((id) => layout.node(id)).filter((node) => node && node.width);
      const { width, height } = layout.graph();
      const svg = drawn("svg", { width: Math.max(width, 1), height: Math.max(height, 1), viewBox: `0 0 ${Math.max(width, 1)} ${Math.max(height, 1)}`, role: "group", "aria-label": "Boxes of the graph: arrow keys move, Enter opens or closes a module or selects an operator" });
      const outlines = nodes.filter((node) => node.outline).sort((a, b) => b.width * b.height - a.width * a.height);
      const filled = nodes.filter((node) => !node.outline);
      const parts = new Map([...outlines.map((node) => [node, outline(node)]), ...filled.map((node) => [node, box(node)])]);
      outlines.forEach((node) => svg.append(parts.get(node)));
      const ways = layout.edges();
      ways.forEach((edge) => svg.append(arrow(layout, edge)));
      filled.forEach((node) => svg.append(parts.get(node)));
      layer.replaceChildren(svg);
      frame.resize(width, height);
      // An outline is where its name is: above what it holds.
      places = nodes.map((node) => ({ id: node.id, x: node.x, y: node.outline ? node.y - node.height / 2 + 12 : node.y, node, part: parts.get(node) })).sort((a, b) => a.y - b.y || a.x - b.x);
      mark();
      status.textContent = `${many(filled.length, "box").replace("boxs", "boxes")}, ${many(ways.length, "arrow")}.`;
    }

    // One box is in the order of the tabulator key, the others are reached from it by the arrow keys.
    function mark() {
      // An opened module is chosen as its outline.
      const names = chosen === null ? [] : [chosen, `g${chosen.slice(1)}`];
      const picked = places.find((item) => names.includes(item.id) && (item.id[0] === "o") === (chosen[0] === "o"));
      const here = picked || places[0];
      places.forEach((item) => {
        item.part.setAttribute("tabindex", item === here ? 0 : -1);
        item.part.classList.toggle("chosen", item === picked);
        if (item.id[0] === "o") item.part.setAttribute("aria-pressed", String(item.id === chosen));
      });
      scroll.querySelectorAll(".left").forEach((part) => part.remove());
      (left.get(chosen) || []).forEach((link) => reveal(link));
      holder.querySelectorAll("a[data-box]").forEach((link) => { if (link.dataset.box === chosen) link.setAttribute("aria-current", "true"); else link.removeAttribute("aria-current"); });
      return here;
    }
    // An arrow that was left out, straight and beneath the boxes.
    function reveal({ from, to }) {
      const [a, b] = [from, to].map((id) => places.find((item) => item.id === id));
      if (!a || !b) return;
      const down = b.y > a.y ? 1 : -1;
      const ends = { x1: a.x, y1: a.y + (down * a.node.height) / 2, x2: b.x, y2: b.y - (down * b.node.height) / 2 };
      scroll.querySelector(".box").before(drawn("line", { ...ends, class: "left" }));
    }
    const rectangle = (item) => ({ x: item.node.x - item.node.width / 2, y: item.node.y - item.node.height / 2, width: item.node.width, height: item.node.height });
    // A module's outline may be larger than the view: then what changed most in it is shown.
    function seen(item) {
      if (!item) return;
      const { x, y, width, height, outline: around } = item.node;
      const within = places.filter((other) => !other.node.outline && Math.abs(other.x - x) < width / 2 && Math.abs(other.y - y) < height / 2);
      // The first of those that changed as much as the one that changed most.
      const most = Math.max(...within.map((other) => Math.abs(changeOf(other.id))));
      const inner = (around && within.find((other) => Math.abs(changeOf(other.id)) >= 0.98 * most)) || item;
      frame.show(rectangle(item), { head: rectangle(inner) });
    }
    // Who comes by the tabulator key comes to what is seen.
    function stopInView() {
      if (layer.contains(document.activeElement)) return;
      const spot = (item) => ({ x: item.x - 1, y: item.y - 1, width: 2, height: 2 });
      const now = places.find((item) => item.part.getAttribute("tabindex") === "0");
      if (!now || frame.visible(spot(now))) return;
      const next = places.find((item) => frame.visible(spot(item))) || now;
      places.forEach((item) => item.part.setAttribute("tabindex", item === next ? 0 : -1));
    }

    function act(id) {
      const number = Number(id.slice(1));
      if (id[0] === "o") return choose(id, false);
      if (id[0] === "g") {
        modules.forEach((item) => { if (ancestry(item.number).includes(number)) open.delete(item.number); });
        open.add(0);
      } else if (!fits([number])) return choose(id);
      chosen = `m${number}`;
      draw();
      show();
      const now = places.find((item) => item.id === `${id[0] === "g" ? "m" : "g"}${number}`);
      if (now) { now.part.focus({ preventScroll: true }); if (id[0] === "m") frame.show(rectangle(now)); else frame.keep(rectangle(now), false); }
      return undefined;
    }
    // Opens the way to a box; other ways are closed where all would be too many.
    function choose(id, travel = true) {
      const number = Number(id.slice(1));
      const way = ancestry(id[0] === "o" ? operators[number].module : number);
      const closed = way.some((at) => !open.has(at));
      const crowded = closed && !fits(way);
      if (crowded) {
        open.clear();
        open.add(0);
        if (!fits(way)) fits(way.slice(1));
      }
      chosen = id;
      if (closed || places.length === 0) draw();
      if (crowded) status.textContent += ` All else was closed, as more than ${LIMIT} boxes cannot be read.`;
      const here = mark();
      if (travel) seen(here);
      show();
      return here;
    }

    function show() {
      if (chosen === null) return;
      const number = Number(chosen.slice(1));
      const rows = chosen[0] === "o" ? ofOperator(operators[number]) : ofModule(modules[number]);
      const head = element("tr", {}, element("td"), element("th", { scope: "col", textContent: given.base }), element("th", { scope: "col", textContent: given.new }));
      const lines = rows.filter(([, before, after]) => before || after).map(([name, before, after]) => element("tr", {}, element("th", { scope: "row", textContent: name }), element("td", { textContent: before || figures.UNKNOWN }), element("td", { textContent: after || figures.UNKNOWN })));
      const change = changeOf(chosen);
      const said = [change && !(chosen[0] === "o" && stand.has(number)) ? signed(change) : "", ...(chosen[0] === "o" ? about(operators[number]) : aboutModule(modules[number]))].filter(Boolean);
      detail.replaceChildren(
        element("h4", { textContent: pathOf(chosen) }),
        ...said.map((text) => element("p", { textContent: text })),
        element("table", { className: "both" }, element("thead", {}, head), element("tbody", {}, ...lines)),
      );
      detail.hidden = false;
    }
    function interval(item, side) {
      const time = item[`${side}_time`];
      if (item[`${side}_index`] === null) return "not there";
      if (time === null) return "";
      const [low, high] = [item[`${side}_low`], item[`${side}_high`]];
      const ends = low === null || high === null ? "" : ` (${seconds(low)} to ${seconds(high)})`;
      return `${seconds(time)}${ends} ${item[`${side}_origin`]}`.trim();
    }
    const ofOperator = (item) => [
      ["Time, 90 % interval", interval(item, "base"), interval(item, "new")],
      ["Best plan runs it on", item.base_device, item.new_device],
      ["CUDA session runs it on", item.base_session, item.new_session],
      ["Executed as", item.base_group, item.new_group],
      ["Source", item.base_where, item.new_where],
      ["Name", item.base_name, item.new_name],
      ["Output", item.base_output, item.new_output],
    ];
    const ofModule = (item) => [
      ["Time", item.base === null ? "" : seconds(item.base), item.new === null ? "" : seconds(item.new)],
      ["Operators", figures.figure(item.operators - item.added, "count"), figures.figure(item.operators - item.gone, "count")],
      ["Path", item.was || (stateOf(item.number) === "new" ? "" : item.path), stateOf(item.number) === "gone" ? "" : item.path],
    ];
    function about(item) {
      const others = stand.get(item.number);
      const type = (numbers) => numbers.map((number) => operators[number].type).join(", ");
      const apart = item.state === "both" && [item.base_low, item.base_high, item.new_low, item.new_high].every((end) => end !== null) && changeOf(`o${item.number}`) !== 0
        ? (item.base_high < item.new_low || item.new_high < item.base_low ? "The change is beyond the intervals." : "The change is within the intervals.") : "";
      return [
        apart, item.code && `Source line: ${item.code}`,
        item.was && `In ${given.base} it is in ${item.was}.`,
        others && together(item, others),
        others && (item.state === "new" ? `Stands where ${given.base} has ${type(others)}.` : `In its place ${given.new} has ${type(others)}.`),
        ...(fused.get(item.number) || []).map((one) => `${one.state === "new" ? `Only ${given.new}` : `Only ${given.base}`} runs it as ${one.type} with ${type(one.members.filter((number) => number !== item.number))}.`),
        ...given.copies.filter((copy) => copy[2] === item.number).map(([state, way, , bytes, time]) => `${state === "new" ? `Only ${given.new}` : `Only ${given.base}`} copies what it makes ${way}: ${figures.figure(bytes, "bytes")} in ${seconds(time)}.`),
      ];
    }
    // What stands in another's place is compared with it, not with nothing.
    function together(item, others) {
      const sum = (numbers, side) => numbers.reduce((all, number) => all + (operators[number][side] || 0), 0);
      const [gone, added] = item.state === "new" ? [others, stand.get(others[0])] : [stand.get(others[0]), others];
      return `Together: ${seconds(sum(gone, "base_time"))} before, ${seconds(sum(added, "new_time"))} now.`;
    }
    const aboutModule = (item) => [
      item.added && `${many(item.added, "operator")} only in ${given.new}.`,
      item.gone && `${many(item.gone, "operator")} only in ${given.base}.`,
      item.flipped && `${many(item.flipped, "operator")} on another device.`,
    ];

    const WAYS = { ArrowDown: ["y", 1, "x"], ArrowUp: ["y", -1, "x"], ArrowRight: ["x", 1, "y"], ArrowLeft: ["x", -1, "y"] };
    function move(event, item) {
      let next = { Home: places[0], End: places.at(-1) }[event.key];
      if (WAYS[event.key]) {
        const [along, sign, across] = WAYS[event.key];
        const cost = (other) => sign * (other[along] - item[along]) + 2 * Math.abs(other[across] - item[across]);
        next = places.filter((other) => sign * (other[along] - item[along]) > 1).sort((a, b) => cost(a) - cost(b))[0] || item;
      }
      if (!next) return false;
      places.forEach((other) => other.part.setAttribute("tabindex", other === next ? 0 : -1));
      next.part.focus({ preventScroll: true });
      frame.keep(next.node.outline ? { ...rectangle(next), y: next.y - 12, height: 24 } : rectangle(next));
      return true;
    }
    const beginning = () => frame.start(rectangle(places.find((item) => !item.node.outline) || places[0]));
    const target = (event) => event.target.closest("[data-box]");
    scroll.addEventListener("click", (event) => { if (target(event)) act(target(event).dataset.box); });
    scroll.addEventListener("keydown", (event) => {
      const part = target(event);
      if (!part || event.ctrlKey || event.metaKey || event.altKey) return;
      const item = places.find((one) => one.id === part.dataset.box);
      if (event.key === "Enter" || event.key === " ") act(item.id);
      else if (!move(event, item)) return;
      event.preventDefault();
      event.stopPropagation();
    });

    holder.addEventListener("click", (event) => {
      const link = event.target.closest("a[data-box]");
      if (!link) return;
      event.preventDefault();
      choose(link.dataset.box);
      scroll.scrollIntoView({ block: NARROW ? "start" : "nearest" });
    });
    holder.querySelector("[data-close]").addEventListener("click", () => { open.clear(); open.add(0); chosen = null; detail.hidden = true; draw(); beginning(); });
    holder.querySelector("[data-open]").addEventListener("click", () => {
      const closed = [...new Set(standIns())].filter((id) => id[0] === "m").map((id) => Number(id.slice(1)));
      if (fits(closed)) { draw(); beginning(); }
    });
    holder.querySelector("[data-worst]").addEventListener("click", () => choose(`m${given.worst}`));

    // What is sought is looked for in types, paths and names, then in source lines too; what changed most comes first.
    const names = operators.map((item) => [item.path, item.type, item.base_name, item.new_name].join(" ").toLowerCase());
    const lines = operators.map((item, at) => [names[at], item.base_where, item.new_where, item.code].join(" ").toLowerCase());
    const find = holder.querySelector("[data-find]");
    find.addEventListener("input", () => {
      const parts = find.value.toLowerCase().split(/\s+/).filter(Boolean);
      const has = (text) => parts.every((part) => text.includes(part));
      const found = parts.length === 0 ? [] : [
        ...modules.filter((item) => item.number && has(`${item.path} ${item.class} ${item.was}`.toLowerCase())).map((item) => `m${item.number}`),
        ...operators.filter((item) => has(lines[item.number])).map((item) => `o${item.number}`),
      ];
      const named = (id) => Number(id[0] === "m" || has(names[Number(id.slice(1))]));
      found.sort((a, b) => named(b) - named(a) || Math.abs(changeOf(b)) - Math.abs(changeOf(a)));
      holder.querySelector("[data-found]").textContent = parts.length === 0 ? "" : found.length === 0 ? "Nothing found." : found.length <= SHOWN ? `${found.length} found.` : `${found.length.toLocaleString("en-US")} found, the first ${SHOWN}:`;
      holder.querySelector("[data-hits]").replaceChildren(...found.slice(0, SHOWN).map((id) => {
        const link = element("a", { href: "#", textContent: pathOf(id) });
        link.dataset.box = id;
        return element("li", {}, link, element("small", { textContent: ` ${signed(changeOf(id))}` }));
      }));
    });
    find.addEventListener("keydown", (event) => {
      const first = holder.querySelector("[data-hits] a");
      if (event.key === "Enter" && first) choose(first.dataset.box);
    });

    const watcher = new IntersectionObserver((entries) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      watcher.disconnect();
      choose(`m${given.worst}`);
      holder.dataset.drawn = "yes";
    }, { rootMargin: "600px" });
    watcher.observe(holder);
  }

  document.querySelectorAll("[data-joined]").forEach((holder) => begin(holder, data.joined[Number(holder.dataset.joined)]));
})();
