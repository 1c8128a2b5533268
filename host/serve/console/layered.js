// A layered layout of a graph without circles: a row for each distance from the sources, edges downwards, few crossings.
// Source: Sugiyama, Tagawa and Toda 1981, "Methods for Visual Understanding of Hierarchical System Structures": rows by the
// longest path, places for edges that cross rows, order by barycentres, then places near the neighbours.

/** Passes over all rows that order them, and that move boxes to the middle of their neighbours. */
const ORDER_PASSES = 6;
const PLACE_PASSES = 6;
/** The width of an edge's place in a row that it crosses. */
const CROSSING_WIDTH = 12;

/**
 * Returns the row of each node: one more than the last row of those that it comes after. Nodes are `{ name, after }` in
 * topological order. Names that are not in the list are ignored.
 */
export function rowsOf(nodes) {
  const rows = new Map();
  for (const { name, after } of nodes) {
    rows.set(name, Math.max(-1, ...after.map((one) => rows.get(one) ?? -1)) + 1);
  }
  return rows;
}

/**
 * Places nodes `{ name, after, width, height }`, in topological order, with `across` pixels beside each other and `along`
 * between rows. Returns `{ places, edges, width, height }`: the left upper corner `{ x, y }` of each node by its name, and for
 * each edge `{ from, to, points }`, the points `[x, y]` that it goes through.
 */
export function layered(nodes, { across, along }) {
  const rows = rowsOf(nodes);
  const cells = new Map(nodes.map((node) => [node.name, { name: node.name, row: rows.get(node.name), width: node.width, height: node.height, above: [], below: [] }]));
  const edges = [];
  /** The places of the edges of a node in the rows that they cross, which they share. */
  const crossings = new Map();
  const crossing = (source, row) => {
    const key = JSON.stringify([source, row]);
    if (!crossings.has(key)) crossings.set(key, { name: null, row, width: CROSSING_WIDTH, height: 0, above: [], below: [] });
    return crossings.get(key);
  };
  for (const node of nodes) {
    for (const name of new Set(node.after)) {
      if (!cells.has(name)) continue;
      const path = [cells.get(name)];
      for (let row = path[0].row + 1; row < rows.get(node.name); row += 1) {
        path.push(crossing(name, row));
      }
      path.push(cells.get(node.name));
      for (let at = 1; at < path.length; at += 1) {
        if (path[at - 1].below.includes(path[at])) continue;
        path[at - 1].below.push(path[at]);
        path[at].above.push(path[at - 1]);
      }
      edges.push({ from: name, to: node.name, path });
    }
  }
  const layers = [];
  for (const cell of [...cells.values(), ...crossings.values()]) (layers[cell.row] ??= []).push(cell);
  order(layers);
  place(layers, across);
  const heights = layers.map((layer) => Math.max(...layer.map(({ height }) => height)));
  const tops = heights.map((_, row) => heights.slice(0, row).reduce((sum, height) => sum + height + along, 0));
  const left = Math.min(0, ...layers.flat().map(({ x, width }) => x - width / 2));
  const places = new Map([...cells.values()].map(({ name, x, width, row }) => [name, { x: x - width / 2 - left, y: tops[row] }]));
  const points = ({ path }) => path.flatMap((cell, at) => {
    const x = cell.x - left;
    if (at === 0) return [[x, tops[cell.row] + cell.height]];
    if (at === path.length - 1) return [[x, tops[cell.row]]];
    return [[x, tops[cell.row]], [x, tops[cell.row] + heights[cell.row]]];
  });
  return {
    places,
    edges: edges.map((edge) => ({ from: edge.from, to: edge.to, points: points(edge) })),
    width: Math.max(0, ...layers.flat().map(({ x, width }) => x + width / 2)) - left,
    height: heights.reduce((sum, height) => sum + height + along, 0) - (heights.length ? along : 0),
  };
}

/** Orders each row by the mean place of the neighbours above, then below, and so on. */
function order(layers) {
  const number = (layer) => layer.forEach((cell, at) => { cell.at = at; });
  layers.forEach(number);
  const mean = (cell, side) => (cell[side].length ? cell[side].reduce((sum, { at }) => sum + at, 0) / cell[side].length : cell.at);
  for (let pass = 0; pass < ORDER_PASSES; pass += 1) {
    const side = pass % 2 ? 'below' : 'above';
    for (const layer of pass % 2 ? [...layers].reverse() : layers) {
      const keys = new Map(layer.map((cell) => [cell, mean(cell, side)]));
      layer.sort((a, b) => keys.get(a) - keys.get(b) || a.at - b.at);
      number(layer);
    }
  }
}

/** Places the cells of each row in their order, near the middle of their neighbours; `x` is a cell's middle. */
function place(layers, across) {
  for (const layer of layers) {
    let x = 0;
    for (const cell of layer) {
      cell.x = x + cell.width / 2;
      x += cell.width + across;
    }
    const middle = (x - across) / 2;
    layer.forEach((cell) => { cell.x -= middle; });
  }
  for (let pass = 0; pass < PLACE_PASSES; pass += 1) {
    const side = pass % 2 ? 'below' : 'above';
    for (const layer of pass % 2 ? [...layers].reverse() : layers) placeRow(layer, side, across);
  }
}

/** Moves the cells of a row towards the middle of their neighbours on one side: boxes first, and then edges between them. */
function placeRow(layer, side, across) {
  const space = (a, b) => (a.width + b.width) / 2 + across;
  const isBox = ({ name }) => name !== null;
  const mean = (cells) => cells.reduce((sum, { x }) => sum + x, 0) / cells.length;
  const wanted = new Map(layer.map((cell) => {
    // An edge that crosses rows does not move the boxes of a chain.
    const near = isBox(cell) && cell[side].some(isBox) ? cell[side].filter(isBox) : cell[side];
    return [cell, near.length ? mean(near) : cell.x];
  }));
  const boxes = layer.filter(isBox);
  if (boxes.length === 0) boxes.push(...layer);
  const between = (a, b) => layer.slice(layer.indexOf(a), layer.indexOf(b)).reduce((sum, cell, at, all) => sum + space(cell, all[at + 1] ?? b), 0);
  // As far right and as far left as the others allow, and the middle of both.
  const right = boxes.map((box) => wanted.get(box));
  const gaps = boxes.slice(1).map((box, at) => between(boxes[at], box));
  for (let at = 1; at < boxes.length; at += 1) right[at] = Math.max(right[at], right[at - 1] + gaps[at - 1]);
  const left = boxes.map((box) => wanted.get(box));
  for (let at = boxes.length - 2; at >= 0; at -= 1) left[at] = Math.min(left[at], left[at + 1] - gaps[at]);
  boxes.forEach((box, at) => { box.x = (right[at] + left[at]) / 2; });
  const placed = new Set(boxes);
  const first = layer.indexOf(boxes[0]);
  for (let at = first - 1; at >= 0; at -= 1) layer[at].x = Math.min(wanted.get(layer[at]), layer[at + 1].x - space(layer[at], layer[at + 1]));
  for (let at = first + 1; at < layer.length; at += 1) {
    if (!placed.has(layer[at])) layer[at].x = Math.max(wanted.get(layer[at]), layer[at - 1].x + space(layer[at - 1], layer[at]));
  }
  for (let at = layer.length - 2; at > first; at -= 1) {
    if (!placed.has(layer[at])) layer[at].x = Math.min(layer[at].x, layer[at + 1].x - space(layer[at], layer[at + 1]));
  }
}

/** The path of an edge through its points, as the attribute `d`: straight where it crosses rows, else curved. */
export function edgePath(points) {
  let path = `M${points[0][0].toFixed(1)} ${points[0][1].toFixed(1)}`;
  for (let at = 1; at < points.length; at += 1) {
    const [[x1, y1], [x2, y2]] = [points[at - 1], points[at]];
    const middle = ((y1 + y2) / 2).toFixed(1);
    path += x1 === x2 ? `L${x2.toFixed(1)} ${y2.toFixed(1)}` : `C${x1.toFixed(1)} ${middle} ${x2.toFixed(1)} ${middle} ${x2.toFixed(1)} ${y2.toFixed(1)}`;
  }
  return path;
}
