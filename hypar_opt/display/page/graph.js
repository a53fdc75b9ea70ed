// The operator graph: its data has the place of each layer, a block's repetitions that are alike
// drawn once. Opened, each has ranks of its own, and all below moves down.
(() => {
  "use strict";
  const data = document.getElementById("data-graph");
  if (!data) return;
  const graph = JSON.parse(data.textContent);
  const view = document.getElementById("graph-view");
  const levels = graph.choices[0].length;
  const SWATCH = 16, BOX = { width: 158 + SWATCH * levels, height: 30 };
  const COLUMN = BOX.width + 26, RANK = 48, MARGIN = 16;
  const open = new Set();
  let scale = 1;

  const element = (name, attributes, ...children) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  };
  const text = (content, attributes) => element("text", attributes, content);
  const top = (frame) => graph.frames[frame].corners[0][1];
  const bottom = (frame) => graph.frames[frame].corners[1][1];
  const copies = (frame) => (open.has(frame) ? graph.frames[frame].count : 1);
  const ranksOf = (frame) => bottom(frame) - top(frame) + 1;

  // Where each layer is drawn: its node, and in an open frame which repetition it is of.
  const nodeOf = new Map();
  graph.nodes.forEach((node, number) => nodeOf.set(node.layer === null ? -1 : node.layer, number));
  const frameOf = graph.names.map(() => null);
  graph.frames.forEach((frame, number) => {
    const stop = frame.first + frame.length * frame.count;
    for (let layer = frame.first; layer < stop; layer++) frameOf[layer] = number;
  });
  function drawn(layer) {
    const frame = layer < 0 ? null : frameOf[layer];
    if (frame === null) return { node: nodeOf.get(layer), frame, copy: 0 };
    const { first, length } = graph.frames[frame];
    const copy = open.has(frame) ? Math.floor((layer - first) / length) : 0;
    return { node: nodeOf.get(first + ((layer - first) % length)), frame, copy };
  }

  // The row of a rank: open frames above it have pushed it down, and so have repetitions before.
  function row(rank, frame = null, copy = 0) {
    let moved = copy ? copy * ranksOf(frame) : 0;
    for (const other of open) if (bottom(other) < rank) moved += (copies(other) - 1) * ranksOf(other);
    return rank + moved;
  }
  const x = (column) => MARGIN + BOX.width / 2 + column * COLUMN;
  const y = (at) => MARGIN + RANK * (at + 0.5);

  const folded = new Map(graph.edges.map(({ ends, path }) => [ends.join(), path]));
  // How an edge comes to a node from above its frame; every repetition is entered alike.
  const entry = new Map();
  for (const { ends, path } of graph.edges) {
    const [from, to] = ends.map((end) => graph.nodes[end].frame);
    if (to !== null && from !== to && !entry.has(ends[1])) entry.set(ends[1], path);
  }

  // The columns and rows that an edge passes.
  function route(source, target) {
    const between = source.frame !== null && source.frame === target.frame && source.copy !== target.copy;
    const path = between ? entry.get(target.node) : folded.get(`${source.node},${target.node}`);
    const place = ({ node, frame, copy }) => {
      const [column, rank] = graph.nodes[node].at;
      return [column, row(rank, frame, copy)];
    };
    const points = [place(source)];
    for (const [column, rank] of (path ?? []).slice(1, -1)) {
      const inside = [target, source].find(
        ({ frame }) => frame !== null && top(frame) <= rank && rank <= bottom(frame));
      if (between && !inside) continue;
      points.push([column, row(rank, inside?.frame ?? null, inside?.copy ?? 0)]);
    }
    points.push(place(target));
    return points;
  }

  function curve(points) {
    // Past boxes an edge is straight: it goes sideways between two ranks alone.
    const half = BOX.height / 2;
    const at = points.flatMap(([column, at], n) => {
      const [above, below] = [-half, half].map((side) => [x(column), y(at) + side]);
      return n === 0 ? [below] : n === points.length - 1 ? [[above[0], above[1] - 5]] : [above, below];
    });
    let d = `M${at[0]}`;
    for (let n = 1; n < at.length; n++) {
      const [fromX, fromY] = at[n - 1], [toX, toY] = at[n];
      // Straight down beside an open block, and only then to its place.
      const turn = Math.max(fromY, toY - RANK + BOX.height);
      const middle = (turn + toY) / 2;
      d += fromX === toX ? `V${toY}` : `V${turn}C${fromX} ${middle} ${toX} ${middle} ${toX} ${toY}`;
    }
    return `${d}m-3 0h6l-3 5z`;
  }

  function box(number, copy) {
    const node = graph.nodes[number];
    const [column, rank] = node.at;
    const frame = node.frame;
    const layer = node.layer === null ? null : node.layer + copy * (graph.frames[frame]?.length ?? 0);
    const group = element("g", {
      class: "node", transform: `translate(${x(column) - BOX.width / 2} ${y(row(rank, frame, copy)) - BOX.height / 2})`,
    });
    group.append(element("rect", { width: BOX.width, height: BOX.height, rx: 5 }));
    if (layer === null) {
      group.append(text(node.label, { x: BOX.width / 2, y: 19, "text-anchor": "middle", class: "kind" }));
      return group;
    }
    group.dataset.layer = graph.names[layer];
    const label = node.label.length > 22 ? `${node.label.slice(0, 10)}…${node.label.slice(-11)}` : node.label;
    const kind = graph.kinds[layer];
    group.append(
      element("title", {}, [
        graph.names[layer], kind,
        ...graph.choices[layer].map((choice, n) => `H${n + 1} ${choice}, stored ${graph.stored[layer][n]}`),
      ].join("\n")),
      text(label, { x: 8, y: 13 }),
      text(kind.length > 24 ? `${kind.slice(0, 23)}…` : kind, { x: 8, y: 25, class: "kind" }),
    );
    graph.symbols[layer].forEach((symbol, level) => {
      const left = BOX.width - 7 - SWATCH * (levels - level);
      group.append(
        element("rect", { class: symbol, x: left + 1, y: 7, width: SWATCH - 2, height: SWATCH, rx: 3 }),
        text(graph.glyphs[symbol], { class: `glyph ${symbol}`, x: left + SWATCH / 2, y: 18.5, "text-anchor": "middle" }),
      );
    });
    // How a tensor with several readers is stored: a strip below the choices.
    graph.shared[layer].forEach((symbol, level) => {
      const left = BOX.width - 7 - SWATCH * (levels - level);
      group.append(element("rect", { class: symbol, x: left + 1, y: 25, width: SWATCH - 2, height: 3 }));
    });
    return group;
  }

  function toggle(frame) {
    open.has(frame) ? open.delete(frame) : open.add(frame);
    draw();
    view.querySelector(`[data-frame="${frame}"] [role=button]`)?.focus();
  }

  function frameBoxes(number) {
    const frame = graph.frames[number];
    const [[left, first], [right, last]] = frame.corners;
    return Array.from({ length: copies(number) }, (_, copy) => {
      const upper = y(row(first, number, copy)) - RANK / 2 + 3;
      const group = element("g", { class: "frame", "data-frame": number }, element("rect", {
        x: x(left) - BOX.width / 2 - 10, y: upper,
        width: x(right) - x(left) + BOX.width + 20,
        height: y(row(last, number, copy)) + RANK / 2 - 3 - upper, rx: 8,
      }));
      const start = Number(frame.label.slice(frame.block.length + 1).split("-")[0]);
      const label = copies(number) > 1 ? `${frame.block}.${start + copy}` : frame.label;
      const sign = frame.count < 2 ? "" : open.has(number) ? " −" : ` × ${frame.count} +`;
      const name = text(label + sign, { x: x(right) + BOX.width / 2 + 18, y: upper + 16 });
      if (frame.count > 1) {
        const all = open.has(number) ? `fold ${frame.label}` : `open ${frame.label}`;
        for (const [key, value] of Object.entries({ role: "button", tabindex: 0, "aria-label": all }))
          name.setAttribute(key, value);
        name.addEventListener("click", () => toggle(number));
        name.addEventListener("keydown", (event) => {
          if (event.key !== "Enter" && event.key !== " ") return;
          event.preventDefault();
          toggle(number);
        });
      }
      group.append(name);
      return group;
    });
  }

  function draw() {
    const beside = Math.max(0, ...graph.frames.map(({ label }) => 8 * (label.length + 8)));
    const width = x(graph.columns) + BOX.width / 2 + MARGIN + beside;
    const height = y(row(graph.ranks - 1)) + RANK / 2 + MARGIN;
    const edges = new Map();
    graph.sources.forEach((read, layer) => {
      for (const source of read) {
        const [from, to] = [drawn(source), drawn(layer)];
        // From a folded repetition to the next an edge would lead upwards.
        if (from.copy === to.copy && from.frame === to.frame && from.node >= to.node) continue;
        edges.set([from.node, from.copy, to.node, to.copy].join(), route(from, to));
      }
    });
    const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "The operator graph; the same follows as a table" });
    svg.append(...graph.frames.flatMap((_, number) => frameBoxes(number)));
    for (const points of edges.values()) svg.append(element("path", { class: "edge", d: curve(points) }));
    graph.nodes.forEach((node, number) => {
      const count = node.frame === null ? 1 : copies(node.frame);
      for (let copy = 0; copy < count; copy++) svg.append(box(number, copy));
    });
    svg.dataset.width = width;
    svg.dataset.height = height;
    view.replaceChildren(svg);
    resize();
    document.getElementById("graph-open").textContent =
      open.size < graph.frames.filter(({ count }) => count > 1).length ? "Open all blocks" : "Fold all blocks";
  }

  function resize() {
    const svg = view.firstElementChild;
    svg.setAttribute("width", svg.dataset.width * scale);
    svg.setAttribute("height", svg.dataset.height * scale);
  }
  // About a point of the view, which stays where it is.
  function zoom(factor, left = view.clientWidth / 2, above = view.clientHeight / 2) {
    const before = scale;
    scale = Math.min(4, Math.max(0.05, scale * factor));
    const grown = scale / before;
    resize();
    view.scrollLeft = (view.scrollLeft + left) * grown - left;
    view.scrollTop = (view.scrollTop + above) * grown - above;
  }
  function fit() {
    const { width, height } = view.firstElementChild.dataset;
    scale = Math.min(1, view.clientWidth / width, view.clientHeight / height);
    resize();
  }

  const on = (id, act) => document.getElementById(id).addEventListener("click", act);
  on("graph-in", () => zoom(1.25));
  on("graph-out", () => zoom(0.8));
  on("graph-fit", fit);
  on("graph-open", () => {
    const all = graph.frames.flatMap(({ count }, number) => (count > 1 ? [number] : []));
    const opened = all.every((number) => open.has(number));
    all.forEach((number) => (opened ? open.delete(number) : open.add(number)));
    draw();
  });
  document.getElementById("graph-open").hidden = graph.frames.every(({ count }) => count < 2);
  view.addEventListener("wheel", (event) => {
    // A wheel alone scrolls, as everywhere on the page.
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const corner = view.getBoundingClientRect();
    zoom(Math.exp(-event.deltaY / 300), event.clientX - corner.left, event.clientY - corner.top);
  }, { passive: false });
  let held = null;
  view.addEventListener("pointerdown", (event) => {
    // A finger scrolls by itself.
    if (event.pointerType !== "mouse" || event.button || event.target.closest("[role=button]")) return;
    held = { x: event.clientX, y: event.clientY, left: view.scrollLeft, top: view.scrollTop };
    view.setPointerCapture(event.pointerId);
  });
  view.addEventListener("pointermove", (event) => {
    if (!held) return;
    view.scrollLeft = held.left + held.x - event.clientX;
    view.scrollTop = held.top + held.y - event.clientY;
  });
  for (const end of ["pointerup", "pointercancel"]) view.addEventListener(end, () => (held = null));
  view.addEventListener("keydown", (event) => {
    if (event.target !== view || event.ctrlKey || event.metaKey) return;
    if (event.key === "+" || event.key === "=") zoom(1.25);
    else if (event.key === "-") zoom(0.8);
    else if (event.key === "0") fit();
    else return;
    event.preventDefault();
  });

  draw();
  // As wide as there is room: its height scrolls.
  scale = Math.min(1, view.clientWidth / view.firstElementChild.dataset.width);
  resize();
  view.setAttribute("data-drawn", "");
})();
