// Nodes as cells of a canvas: where each one is, and drawing one, some or all of them.

const GAP = 2, LABEL = 26, BETWEEN = 14;
const SMALLEST = 6, LARGEST = 64;

export const CORDONED = 1;

export class Cells {
  /** `colour(node)` is a CSS colour; `text(node)` is written into cells that are large enough. */
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d", { alpha: false });
    this.places = new Map(); // number of a node -> [x, y]
    this.order = []; // nodes in the order of the cells
    this.size = LARGEST;
    this.colour = () => "gray";
    this.text = () => "";
    this.marked = null;
    this.style = {};
  }

  /** Groups: [name, nodes]. The height follows from the width. */
  layOut(groups, width, height) {
    const total = groups.reduce((sum, [, nodes]) => sum + nodes.length, 0);
    this.size = largestSize(groups, total, width, height);
    const step = this.size + GAP, columns = Math.max(1, Math.floor((width + GAP) / step));
    this.places.clear();
    this.order = [];
    this.labels = [];
    this.columns = columns;
    let y = 0;
    for (const [name, nodes] of groups) {
      this.labels.push([name, nodes.length, y]);
      y += LABEL;
      nodes.forEach((node, i) => {
        this.places.set(node.id, [(i % columns) * step, y + Math.floor(i / columns) * step]);
        this.order.push(node);
      });
      y += Math.ceil(nodes.length / columns) * step + BETWEEN;
    }
    this.index = new Map(this.order.map((node, i) => [node.id, i]));
    const ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.max(1, Math.round((y - BETWEEN) * ratio));
    this.canvas.style.height = `${Math.max(1, y - BETWEEN)}px`;
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
  }

  drawAll() {
    const { context, style } = this;
    context.fillStyle = style.sheet;
    context.fillRect(0, 0, this.canvas.width, this.canvas.height);
    context.textBaseline = "alphabetic";
    for (const [name, n, y] of this.labels ?? []) {
      context.textAlign = "left";
      context.font = `600 13px ${style.font}`;
      context.fillStyle = style.text;
      context.fillText(name, 0, y + 15);
      const end = context.measureText(name).width;
      context.font = `13px ${style.font}`;
      context.fillStyle = style.quiet;
      context.fillText(String(n), end + 8, y + 15);
    }
    for (const node of this.order) this.draw(node);
  }

  draw(node) {
    const place = this.places.get(node.id);
    if (!place) return;
    const { context, size, style } = this, [x, y] = place;
    context.fillStyle = style.sheet;
    context.fillRect(x - 1, y - 1, size + 2, size + 2);
    const [fill, ink] = this.colour(node);
    context.fillStyle = fill;
    context.fillRect(x, y, size, size);
    if (node.flags & CORDONED) this.line(x, y, style.sheet);
    const text = size >= 34 ? this.text(node) : "";
    if (text) {
      context.fillStyle = ink;
      context.textAlign = "center";
      context.font = `${size >= 48 ? 13 : 11}px ${style.font}`;
      context.fillText(text, x + size / 2, y + size / 2 + 4);
    }
    if (this.marked === node.id) this.frame(x, y, style.text);
  }

  line(x, y, colour) {
    this.context.strokeStyle = colour;
    this.context.lineWidth = this.size > 16 ? 2 : 1;
    this.context.beginPath();
    this.context.moveTo(x, y + this.size);
    this.context.lineTo(x + this.size, y);
    this.context.stroke();
  }

  frame(x, y, colour) {
    this.context.strokeStyle = colour;
    this.context.lineWidth = 2;
    this.context.strokeRect(x, y, this.size, this.size);
  }

  /** Marks one node, or none. */
  mark(node) {
    const before = this.marked;
    this.marked = node?.id ?? null;
    for (const id of [before, this.marked]) {
      const found = this.order[this.index?.get(id)];
      if (found) this.draw(found);
    }
  }

  /** The node at a point of the canvas. */
  at(x, y) {
    const step = this.size + GAP, column = Math.floor(x / step);
    let low = 0, high = this.order.length - 1;
    while (low <= high) {
      const middle = (low + high) >> 1, [left, top] = this.places.get(this.order[middle].id);
      if (y >= top && y < top + step) {
        const found = this.order[middle + column - Math.round(left / step)];
        const place = found && this.places.get(found.id);
        return place && place[1] === top && Math.round(place[0] / step) === column ? found : null;
      }
      if (y < top) high = middle - 1; else low = middle + 1;
    }
    return null;
  }

  /** The node that many cells from this one. */
  beside(id, by) {
    const index = this.index?.get(id);
    if (index === undefined) return this.order[0] ?? null;
    return this.order[Math.max(0, Math.min(this.order.length - 1, index + by))] ?? null;
  }
}

/** The largest cells with which everything has this height; the smallest ones if nothing has. */
function largestSize(groups, total, width, height) {
  if (!total) return LARGEST;
  let size = Math.min(LARGEST, Math.floor(Math.sqrt(width * height / total)) - GAP + 2);
  const tall = (cell) => {
    const columns = Math.max(1, Math.floor((width + GAP) / (cell + GAP)));
    return groups.reduce((sum, [, nodes]) => sum + LABEL + BETWEEN + Math.ceil(nodes.length / columns) * (cell + GAP), 0);
  };
  while (size > SMALLEST && tall(size) > height) size -= 1;
  return Math.max(SMALLEST, size);
}
