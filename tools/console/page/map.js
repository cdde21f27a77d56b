// The cluster as a map: a cell for each node, in groups, coloured by how much of a resource is requested.

import { CORDONED, Cells } from "./cells.js";
import { MOST_REASONS, onScheme, ramp, reason, style } from "./colours.js";
import { bars, choice, h, put, say, table } from "./dom.js";
import { amount, count, percent, plural } from "./format.js";
import { get, listen, live } from "./live.js";
import { podChooser } from "./podchooser.js";
import { address } from "./pods.js";

const ZONE = "topology.kubernetes.io/zone";
const NO_GROUP = "";
const NO_VALUE = "without this label";
const MOST_ROWS = 500;
const BY_REASON = "why"; // no resource has this name: those of devices have a domain
const AGAIN = 3000; // milliseconds after nodes came or went, until it is asked again why they reject a pod

export function map(main, parameters) {
  main.className = "wide";
  const colours = { ramp: ramp() };
  let why = parameters.get("why") ?? "", reasons = null; // of a pod: why each node rejects it
  let resource = parameters.get("resource") ?? "cpu", grouping = parameters.get("by") ?? ZONE;
  let values = new Map(), chosen = null, dirty = new Set(), frame = 0, whole = true, again = 0, ended = false;

  const canvas = h("canvas", { tabIndex: 0, role: "application", "aria-describedby": "map-help",
    "aria-label": "Map of nodes: arrow keys move, Enter shows the node's pods" });
  const cells = new Cells(canvas);
  const spoken = h("p", { class: "hidden", role: "status" });
  const summary = h("p", { class: "quiet small" });
  const legend = h("div", { class: "legend" });
  const side = h("aside", { class: "sheet side", "aria-label": "The chosen node" });
  const rows = h("div");
  const listing = h("details", { ontoggle: () => listRows() }, h("summary", {}, "The same as a table"), rows);
  const pod = podChooser(why, ask);
  const by = choice("Colour", resources(), why ? BY_REASON : resource, (value) => {
    pod.element.hidden = value !== BY_REASON;
    if (value === BY_REASON) { pod.focus(); return; }
    resource = value;
    ask("");
  });
  const group = choice("Group", labels(), grouping, (value) => { grouping = value; loadGroups(); });
  const search = h("input", { type: "search", id: "node-name", placeholder: "a node's name", oninput: () => find(search.value) });
  const drawn = h("div", { class: "map" }, canvas);
  put(main,
    h("div", { class: "controls" }, h("h1", {}, "Nodes"), by.element, pod.element, group.element, h("label", { htmlFor: "node-name" }, "Find", search)),
    h("div", { class: "mapped" },
      h("section", { class: "sheet", "aria-label": "Map" }, legend, drawn, h("p", { id: "map-help", class: "hidden" }, "Each cell is a node."), spoken, summary, listing),
      side));

  function resources() {
    const named = live.resources.length ? live.resources : ["cpu", "memory", "pods"];
    const there = named.filter((_, i) => [...live.nodes.values()].some((node) => node.room[i]));
    return [...(there.length ? there : named).map((each) => [each, `${each} requested`]), [BY_REASON, "why nodes reject a pod"]];
  }
  function labels() {
    const keys = live.labels.includes(grouping) || grouping === NO_GROUP ? live.labels : [grouping, ...live.labels];
    return [[NO_GROUP, "all nodes together"], ...keys.map((key) => [key, key])];
  }
  const column = () => Math.max(0, live.resources.indexOf(resource));
  const share = (node) => (node.room[column()] ? node.used[column()] / node.room[column()] : 0);

  function recolour() {
    colours.ramp = ramp();
    cells.style = style();
    if (reasons) return byReason();
    cells.colour = (node) => (node.room[column()] ? colours.ramp.of(share(node)) : [cells.style.line, cells.style.quiet]);
    cells.text = (node) => (node.room[column()] ? `${Math.round(100 * share(node))}` : "");
    const steps = colours.ramp.steps.filter((_, i) => i % 2 === 0).map(([fill]) => { const i = h("i"); i.style.background = fill; return i; });
    put(legend,
      h("span", {}, `${resource} requested: 0 %`, h("span", { class: "ramp", "aria-hidden": "true" }, steps), "100 %"),
      cordoned() ? h("span", {}, "a stroke: cordoned") : null);
    redraw();
  }

  function byReason() {
    const fits = [cells.style.accent, cells.style.sheet], ink = cells.style.sheet;
    cells.colour = (node) => {
      const number = reasons.nodes[node.id];
      return number === undefined ? fits : [reason(number), ink];
    };
    cells.text = () => "";
    const key = (colour, text, n) => { const i = h("i"); i.style.background = colour; return h("span", { class: "key" }, i, text, h("span", {}, ` ${count(n)}`)); };
    const named = reasons.reasons.slice(0, MOST_REASONS - 1), others = reasons.reasons.slice(MOST_REASONS - 1);
    put(legend,
      reasons.feasible ? key(cells.style.accent, "it fits", reasons.feasible) : null,
      named.map((each, i) => key(reason(i), each.text, each.nodes)),
      others.length ? key(reason(MOST_REASONS - 1), "for other reasons", others.reduce((sum, each) => sum + each.nodes, 0)) : null);
    redraw();
  }

  /** Colours by why each node rejects this pod; by a resource if it is empty. */
  function ask(key) {
    why = key;
    reasons = null;
    const query = new URLSearchParams(Object.entries({ why, resource: why ? "" : resource }).filter(([, value]) => value));
    history.replaceState(null, "", `#/map?${query}`);
    if (why) loadReasons(); else recolour();
  }

  async function loadReasons() {
    const asked = why, [namespace, name = ""] = why.split("/");
    clearTimeout(again);
    if (!asked) return;
    if (!reasons) put(legend, h("span", {}, "asking why"));
    try {
      const found = await get("/api/rejections", { namespace, name });
      if (asked !== why || ended) return;
      reasons = found;
      recolour();
    } catch (error) {
      if (asked !== why || ended) return;
      reasons = null;
      recolour();
      put(legend, h("span", { class: "problem", role: "alert" }, error.message));
    }
  }

  const cordoned = () => [...live.nodes.values()].some((node) => node.flags & CORDONED);

  async function loadGroups() {
    values = new Map();
    const key = grouping;
    if (key !== NO_GROUP) {
      try {
        const found = await get("/api/labels", { key });
        if (key === grouping) values = new Map(Object.entries(found).map(([id, value]) => [Number(id), value]));
      } catch (error) { say(summary, error.message); }
    }
    redraw();
  }

  function groups() {
    const found = new Map();
    for (const node of live.nodes.values()) {
      const name = grouping === NO_GROUP ? "All nodes" : values.get(node.id) ?? NO_VALUE;
      if (!found.has(name)) found.set(name, []);
      found.get(name).push(node);
    }
    const compare = new Intl.Collator("en", { numeric: true }).compare;
    for (const nodes of found.values()) nodes.sort((a, b) => compare(a.name, b.name));
    return [...found].sort(([a], [b]) => (a === NO_VALUE) - (b === NO_VALUE) || compare(a, b));
  }

  function redraw() { whole = true; schedule(); }
  function schedule() { if (!frame) frame = requestAnimationFrame(paint); }

  function paint() {
    frame = 0;
    if (whole) {
      const width = drawn.clientWidth;
      cells.layOut(groups(), width, Math.max(320, innerHeight - 260));
      cells.drawAll();
      whole = false;
      canvas.dataset.nodes = cells.order.length;
    } else for (const node of dirty) cells.draw(node);
    canvas.dataset.drawn = Number(canvas.dataset.drawn ?? 0) + (dirty.size || cells.order.length);
    dirty.clear();
    summarize();
  }

  function summarize() {
    const i = column();
    let used = 0, room = 0, full = 0;
    for (const node of live.nodes.values()) {
      used += node.used[i] ?? 0;
      room += node.room[i] ?? 0;
      if (node.room[i] && node.used[i] >= node.room[i]) full += 1;
    }
    say(summary, live.nodes.size ? `${plural(live.nodes.size, "node")}; ${resource}: ${amount(resource, used)} of ${amount(resource, room)} requested (${percent(room ? used / room : 0)}), ${plural(full, "node")} full` : "There are no nodes.");
  }

  // The chosen node

  let asked = 0;
  async function choose(node, pods = true) {
    chosen = node?.name ?? null;
    cells.mark(node);
    if (!node) return showNothing();
    say(spoken, `${node.name}: ${reasons ? reasonOf(node) : `${percent(share(node))} of ${resource}`}`);
    const turn = ++asked;
    if (!pods) return undefined;
    try {
      const found = await get("/api/node", { name: node.name });
      if (turn === asked) showNode(found);
    } catch (error) { if (turn === asked) put(side, h("h2", {}, node.name), h("p", { class: "problem" }, error.message)); }
    return undefined;
  }

  const reasonOf = (node) => { const number = reasons.nodes[node.id]; return number === undefined ? "it fits" : reasons.reasons[number].text; };

  function showNothing() {
    put(side, h("h2", {}, "No node is chosen"), h("p", { class: "quiet" }, "Point at a cell, or move over the map with the arrow keys."));
  }

  function showNode(node) {
    const labels = Object.entries(node.labels);
    put(side,
      h("h2", { class: "name" }, node.name),
      reasons && live.byName.has(node.name) ? h("p", {}, h("a", { class: "name", href: address(why) }, why), ": ", reasonOf(live.byName.get(node.name))) : null,
      node.unschedulable ? h("p", { class: "problem" }, "cordoned: it gets no further pods") : null,
      bars(node.resources.map(([name, used, room]) => [
        h("span", {}, name, h("span", { class: "quiet small" }, ` ${amount(name, used)} of ${amount(name, room)}`)), room ? percent(used / room) : "–", room ? used / room : 0]), "It has nothing."),
      h("h2", {}, plural(node.pod_count, "pod")),
      h("ul", { class: "list" }, node.pods.map((key) => h("li", {}, h("a", { class: "name", href: address(key) }, key)))),
      node.pods.length < node.pod_count ? h("p", { class: "quiet small" }, `and ${count(node.pod_count - node.pods.length)} more`) : null,
      node.nominated.length ? [h("h2", {}, "Room is kept for"), h("ul", { class: "list" }, node.nominated.map((key) => h("li", {}, h("a", { class: "name", href: address(key) }, key))))] : null,
      labels.length ? h("details", {}, h("summary", {}, plural(labels.length, "label")), h("ul", { class: "list" }, labels.map(([key, value]) => h("li", { class: "name" }, `${key}=${value}`)))) : null);
  }

  function find(text) {
    const node = text && (live.byName.get(text) ?? cells.order.find((each) => each.name.includes(text)));
    if (node) choose(node);
  }

  function listRows() {
    if (!listing.open) return;
    const some = cells.order.slice(0, MOST_ROWS);
    put(rows,
      table("Nodes", [["Node", "name"], ["Group", ""], [`${resource} requested`, "number"], ["of", "number"], ["Pods", "number"]],
        some.map((node) => [node.name, values.get(node.id) ?? "", amount(resource, node.used[column()] ?? 0), amount(resource, node.room[column()] ?? 0), count(node.used[live.resources.indexOf("pods")] ?? 0)])),
      some.length < cells.order.length ? h("p", { class: "quiet small" }, `the first ${count(some.length)} of ${count(cells.order.length)}`) : null);
  }

  // Pointer and keys

  const under = (event) => { const box = canvas.getBoundingClientRect(); return cells.at(event.clientX - box.left, event.clientY - box.top); };
  let resting = 0;
  canvas.addEventListener("pointermove", (event) => {
    const node = under(event);
    if (!node || node.name === chosen) return;
    choose(node, false);
    clearTimeout(resting);
    resting = setTimeout(() => choose(node), 80); // asks for the pods once the pointer rests
  });
  canvas.addEventListener("click", (event) => { const node = under(event); if (node) choose(node); });
  canvas.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: cells.columns, ArrowUp: -cells.columns, Home: -Infinity, End: Infinity }[event.key];
    if (by === undefined && event.key !== "Enter") return;
    event.preventDefault();
    const node = by === undefined ? live.byName.get(chosen) : cells.beside(live.byName.get(chosen)?.id, by);
    if (node) choose(node);
  });

  const stop = [
    listen((change) => {
      by.set(resources(), pod.element.hidden ? resource : BY_REASON);
      group.set(labels(), grouping);
      if (change.shaped) { recolour(); loadGroups(); clearTimeout(again); again = setTimeout(loadReasons, AGAIN); }
      else if (change.used.length) { for (const node of change.used) dirty.add(node); schedule(); }
    }),
    onScheme(recolour),
  ];
  const sized = new ResizeObserver(redraw);
  sized.observe(drawn);
  showNothing();
  recolour();
  loadReasons();
  loadGroups().then(() => { if (parameters.get("node")) find(parameters.get("node")); });
  return () => { ended = true; stop.forEach((each) => each()); sized.disconnect(); cancelAnimationFrame(frame); clearTimeout(resting); clearTimeout(again); };
}
