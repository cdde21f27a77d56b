// A curve of the last minutes, without axes: it shows the shape, the figure above it shows the value.

import { svg } from "./dom.js";

const WIDTH = 240, HEIGHT = 36;

/** Call `draw` with numbers, oldest first. */
export function sparkline(points = 180) {
  const under = svg("path", { class: "under" }), line = svg("path");
  const element = svg("svg", { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    under, line);
  return {
    element,
    draw(values) {
      const most = Math.max(...values, 1e-9), first = points - values.length;
      const at = (value, i) => `${(WIDTH * (first + i) / (points - 1)).toFixed(1)},${(HEIGHT - 1 - (HEIGHT - 3) * value / most).toFixed(1)}`;
      const path = values.length > 1 ? `M${values.map(at).join("L")}` : "";
      line.setAttribute("d", path);
      under.setAttribute("d", path && `${path}L${WIDTH},${HEIGHT}L${(WIDTH * first / (points - 1)).toFixed(1)},${HEIGHT}Z`);
    },
  };
}
