// A drawing in a frame of fixed height: Panzoom moves and zooms it by wheel, pinch, mouse, buttons and keys.
"use strict";
const viewport = (() => {
  // The smallest letters of a drawing have 11 px; under 9 px they are hard to read.
  const READABLE = 9 / 11;
  // A beginning whose sides are cut off reads worse than one in small letters, which still tell which box is which.
  const LEGIBLE = 7 / 11;
  const LARGEST = 3;
  const SMALLEST = 0.02;
  const STEP = 1.35;
  const EDGE = 16;
  // A click moves the mouse a little.
  const STILL = 5;
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  const APPLE = /Mac|iP(hone|ad)/.test(navigator.platform);

  // `frame` holds `layer`, a point that the drawing flows over: Panzoom zooms around the middle of its element.
  // `tools` holds buttons with data-zoom, `moved` is told that another part is seen.
  function on(frame, layer, tools, moved = () => {}) {
    let size = { width: 1, height: 1 };
    let fitted = true;
    // What it would prevent at the start of a movement is that the frame gets the focus.
    const zoomer = Panzoom(layer, { noBind: true, canvas: true, cursor: "", minScale: SMALLEST, maxScale: LARGEST, touchAction: "pan-x pan-y", pinchAndPan: true, handleStartEvent: () => {}, duration: 180 });
    const gently = (wanted) => Boolean(wanted) && !calm.matches;
    const area = () => ({ width: frame.clientWidth, height: frame.clientHeight });
    const scale = () => zoomer.getScale();
    // Pixels of the frame at which the drawing begins.
    const begins = () => ({ x: zoomer.getPan().x * scale(), y: zoomer.getPan().y * scale() });
    const seen = (rect) => ({ x: begins().x + rect.x * scale(), y: begins().y + rect.y * scale(), width: rect.width * scale(), height: rect.height * scale() });

    function put(to, x, y, animate) {
      // Panzoom starts at its option's place a moment after it was made: that must be no other.
      zoomer.setOptions({ startX: x / to, startY: y / to });
      zoomer.zoom(to, { animate: gently(animate), force: true });
      zoomer.pan(x / to, y / to, { animate: gently(animate), force: true });
    }
    const whole = () => Math.min(1, (area().width - 2 * EDGE) / size.width, (area().height - 2 * EDGE) / size.height);
    function fit(animate) {
      const to = Math.max(SMALLEST, whole());
      put(to, (area().width - size.width * to) / 2, Math.max(EDGE, (area().height - size.height * to) / 2), animate);
      fitted = true;
    }
    // All of it if that can be read, else its beginning, `head`, in its whole width.
    function start(head) {
      if (whole() >= LEGIBLE) fit(false);
      else {
        const across = (area().width - 2 * EDGE) / size.width;
        const to = across < LEGIBLE ? READABLE : Math.min(1, across);
        const x = across >= to ? (area().width - size.width * to) / 2 : area().width / 2 - (head.x + head.width / 2) * to;
        put(to, x, EDGE - Math.max(0, head.y - EDGE) * to, false);
        fitted = false;
      }
    }
    // A rectangle of the drawing at a size that can be read; of one that is too large its head, which is `head`.
    function show(rect, { head = rect, animate = false } = {}) {
      const { width, height } = area();
      const at = seen(rect);
      const inside = at.x >= 0 && at.y >= 0 && at.x + at.width <= width && at.y + at.height <= height;
      if (inside && scale() >= READABLE) return;
      const to = Math.min(1, Math.max(READABLE, Math.min((width - 2 * EDGE) / rect.width, (height - 2 * EDGE) / rect.height)));
      const wide = rect.width * to > width;
      const high = rect.height * to > height;
      const x = width / 2 - (wide ? head.x + head.width / 2 : rect.x + rect.width / 2) * to;
      // A head far below the rectangle's upper edge counts more than that edge.
      const above = (head.y + head.height - rect.y) * to > height - 2 * EDGE ? head.y - 60 : rect.y;
      put(to, x, high ? EDGE - above * to : height / 2 - (rect.y + rect.height / 2) * to, animate);
      fitted = false;
    }
    // As little as it takes to see it.
    function keep(rect) {
      const { width, height } = area();
      const { x, y } = begins();
      const at = seen(rect);
      const shift = (from, long, most) => (long > most - 2 * EDGE ? (from > EDGE ? EDGE - from : from + long < most - EDGE ? most - EDGE - from - long : 0) : Math.max(EDGE - from, 0) || Math.min(most - EDGE - from - long, 0));
      const [right, down] = [shift(at.x, at.width, width), shift(at.y, at.height, height)];
      if (right || down) put(scale(), x + right, y + down, true);
    }
    const visible = (rect) => {
      const at = seen(rect);
      return at.x < area().width && at.y < area().height && at.x + at.width > 0 && at.y + at.height > 0;
    };
    function zoom(factor, around = { x: area().width / 2, y: area().height / 2 }, animate = true) {
      const to = Math.min(LARGEST, Math.max(SMALLEST, scale() * factor));
      const from = begins();
      put(to, around.x - ((around.x - from.x) * to) / scale(), around.y - ((around.y - from.y) * to) / scale(), animate);
      fitted = false;
    }
    function by(right, down) {
      put(scale(), begins().x + right, begins().y + down, false);
      fitted = false;
    }

    const WAYS = { in: () => zoom(STEP), out: () => zoom(1 / STEP), fit: () => fit(true) };
    tools.querySelectorAll("[data-zoom]").forEach((button) => button.addEventListener("click", WAYS[button.dataset.zoom]));

    // The wheel scrolls the page until the drawing is in use, as maps in pages have it.
    const hint = document.createElement("p");
    hint.className = "graph-hint";
    hint.textContent = `Click the drawing, or hold ${APPLE ? "⌘" : "Ctrl"}, to zoom with the wheel`;
    hint.setAttribute("aria-hidden", "true");
    frame.append(hint);
    let hiding;
    function tell() {
      hint.dataset.told = "";
      clearTimeout(hiding);
      hiding = setTimeout(() => delete hint.dataset.told, 1400);
    }
    const place = (event) => {
      const box = frame.getBoundingClientRect();
      return { x: event.clientX - box.left - frame.clientLeft, y: event.clientY - box.top - frame.clientTop };
    };
    frame.addEventListener("wheel", (event) => {
      // A pinch on a touchpad comes as a wheel with Ctrl.
      const meant = event.ctrlKey || event.metaKey;
      if (!meant && !frame.matches(":focus-within")) { tell(); return; }
      event.preventDefault();
      const pixels = event.deltaY * [1, 16, area().height][event.deltaMode];
      zoom(Math.exp(-Math.max(-120, Math.min(120, pixels)) * (event.ctrlKey && Math.abs(pixels) < 40 ? 0.01 : 0.0025)), place(event), false);
    }, { passive: false });

    // One finger scrolls the page until the drawing is in use, two move and zoom it.
    const fingers = new Set();
    let grip = null;
    let dragged = false;
    frame.addEventListener("touchmove", (event) => {
      if (event.touches.length > 1 || frame.matches(":focus-within")) event.preventDefault();
    }, { passive: false });
    frame.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      if (event.pointerType === "touch") fingers.add(event.pointerId);
      grip = { x: event.clientX, y: event.clientY };
      dragged = false;
      zoomer.handleDown(event);
    });
    document.addEventListener("pointermove", (event) => {
      if (!grip || (event.pointerType === "touch" && fingers.size < 2 && !frame.matches(":focus-within"))) return;
      if (!dragged && fingers.size < 2 && Math.hypot(event.clientX - grip.x, event.clientY - grip.y) <= STILL) return;
      dragged = true;
      fitted = false;
      frame.dataset.dragged = "";
      zoomer.handleMove(event);
    }, { passive: true });
    ["pointerup", "pointercancel"].forEach((name) => document.addEventListener(name, (event) => {
      fingers.delete(event.pointerId);
      if (!grip) return;
      zoomer.handleUp(event);
      if (fingers.size === 0) grip = null;
      delete frame.dataset.dragged;
    }));
    // Who has moved the drawing did not mean what is under the mouse now.
    frame.addEventListener("click", (event) => {
      if (!dragged) return;
      event.stopPropagation();
      event.preventDefault();
      dragged = false;
    }, { capture: true });

    const ARROWS = { ArrowUp: [0, 60], ArrowDown: [0, -60], ArrowLeft: [60, 0], ArrowRight: [-60, 0] };
    frame.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const way = { "+": "in", "=": "in", "-": "out", 0: "fit" }[event.key];
      if (way) WAYS[way]();
      else if (event.target === frame && ARROWS[event.key]) by(...ARROWS[event.key]);
      else if (event.target === frame && event.key === "Escape") frame.blur();
      else return;
      event.preventDefault();
    });
    // The browser brings what has the focus into view by scrolling: that is ours to do.
    frame.addEventListener("scroll", () => {
      const { scrollLeft, scrollTop } = frame;
      if (!scrollLeft && !scrollTop) return;
      frame.scrollTo(0, 0);
      by(-scrollLeft, -scrollTop);
    });
    new ResizeObserver(() => { if (fitted) fit(false); }).observe(frame);
    let asked;
    layer.addEventListener("panzoomchange", () => { clearTimeout(asked); asked = setTimeout(moved, 120); look(); });

    // All of it in a corner, and what is seen of it, where that is a part: a press on it goes there.
    const svg = (tag, parent, attributes) => {
      const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
      Object.entries(attributes).forEach(([name, value]) => made.setAttribute(name, value));
      return parent.appendChild(made);
    };
    const map = svg("svg", frame, { class: "graph-map", "aria-hidden": "true", preserveAspectRatio: "none" });
    const [shapes, window] = [svg("path", map, { class: "graph-map-boxes" }), svg("rect", map, { class: "graph-map-seen" })];
    function look() {
      const { width, height } = area();
      map.toggleAttribute("data-part", size.width * scale() > width + 1 || size.height * scale() > height + 1);
      const from = begins();
      Object.entries({ x: -from.x / scale(), y: -from.y / scale(), width: width / scale(), height: height / scale() }).forEach(([name, value]) => window.setAttribute(name, value));
    }
    ["pointerdown", "pointermove"].forEach((name) => map.addEventListener(name, (event) => {
      event.stopPropagation();
      if (!event.buttons) return;
      const box = map.getBoundingClientRect();
      const part = { x: (event.clientX - box.left) / box.width, y: (event.clientY - box.top) / box.height };
      put(scale(), area().width / 2 - part.x * size.width * scale(), area().height / 2 - part.y * size.height * scale(), false);
      fitted = false;
    }));
    function resize(width, height, nodes) {
      size = { width, height };
      const most = Math.min(170 / width, 190 / height);
      Object.entries({ viewBox: `0 0 ${width} ${height}`, width: Math.max(60, width * most), height: Math.max(40, height * most) }).forEach(([name, value]) => map.setAttribute(name, value));
      shapes.setAttribute("d", nodes.filter((node) => !node.outline).map((node) => `M${node.x - node.width / 2} ${node.y - node.height / 2}h${node.width}v${node.height}h${-node.width}z`).join(""));
    }

    return { start, show, keep, visible, resize };
  }

  // dagre's frame is that of the boxes: an arrow that goes round them bends outside of it, and would be cut off.
  function framed(layout, margin) {
    const size = layout.graph();
    const edges = layout.edges().map((edge) => layout.edge(edge));
    const all = (axis, end, from) => edges.reduce((found, edge) => edge.points.reduce((best, point) => end(best, point[axis]), found), from);
    const [left, top] = ["x", "y"].map((axis) => Math.min(0, all(axis, Math.min, margin) - margin));
    const [right, bottom] = [["x", size.width], ["y", size.height]].map(([axis, long]) => Math.max(long, all(axis, Math.max, 0) + margin));
    const shift = (item) => { if (item && item.x !== undefined) { item.x -= left; item.y -= top; } };
    layout.nodes().forEach((id) => shift(layout.node(id)));
    edges.forEach((edge) => [edge, ...edge.points].forEach(shift));
    Object.assign(size, { width: right - left, height: bottom - top });
  }

  return { on, framed };
})();
