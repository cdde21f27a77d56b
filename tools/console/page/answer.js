// The answer to a question what if: in a sentence, on the map of nodes, and pod by pod.

import { Cells } from "./cells.js";
import { onScheme, reason, style } from "./colours.js";
import { bars, h, put, table } from "./dom.js";
import { count, plural } from "./format.js";
import { get, live } from "./live.js";

const ZONE = "topology.kubernetes.io/zone";
const VERDICTS = { scheduled: "is placed", unschedulable: "fits nowhere", gated: "is held", failed: "fails", preempted: "is preempted", ignored: "is for another scheduler" };
const MOST_ROWS = 300;
const ADDED = "added";

/** Its element, and `draw()`, which draws the map once the element is on the page and returns what ends it. */
export async function outcome(answer) {
  const zones = await get("/api/labels", { key: ZONE });
  const drawn = h("div", { class: "map" });
  const pods = answer.pods ?? [], lost = answer.lost ?? [];
  const element = h("div", { class: "stack" },
    h("p", { class: "verdict" }, answer.capacity ? capacitySentence(answer) : answer.needed ? neededSentence(answer.needed) : placedSentence(answer)),
    answer.needed ? h("p", {}, placedSentence(answer)) : null,
    answer.capacity?.message ? h("p", { class: "quiet small" }, `The next one does not fit: ${answer.capacity.message}`) : null,
    (answer.notes ?? []).map((note) => h("p", { class: "quiet small" }, note)),
    lost.length ? h("p", { class: "problem" }, `No owner would recreate these: ${lost.join(", ")}`) : null,
    h("section", { class: "sheet", "aria-label": "Map" }, drawn),
    answer.capacity ? capacityGroups(answer) : null,
    pods.length ? podRows(pods) : null);
  return { element, draw: () => drawAnswer(drawn, answer, zones) };
}

const some = (capacity) => `${capacity.more ? "at least " : ""}${count(capacity.total)}`;

function capacitySentence({ capacity, capacity_before: before }) {
  return `${some(capacity)} more of this pod ${capacity.total === 1 ? "fits" : "fit"}, on ${plural(capacity.nodes, "node")}${before ? `; ${some(before)} before the change` : ""}.`;
}

function capacityGroups({ capacity, capacity_before: before }) {
  const names = Object.keys({ ...before?.groups, ...capacity.groups }), largest = Math.max(1, ...Object.values(capacity.groups ?? {}));
  if (!names.length) return null;
  return h("section", { class: "sheet", "aria-label": "Where they fit" }, h("h2", {}, `By ${capacity.by}`),
    bars(names.map((name) => {
      const fit = capacity.groups?.[name] ?? 0;
      return [name, before ? `${count(before.groups?.[name] ?? 0)} → ${count(fit)}` : count(fit), fit / largest];
    }), ""));
}

function neededSentence(needed) {
  const nodes = Object.entries(needed.counts).map(([name, n]) => `${count(n)} ${name}`).join(", ");
  const how = needed.proven ? "no cheaper set does" : "the best set found; a cheaper one may do";
  const rest = needed.complete ? "" : " Some pods would not even fit with all nodes that the groups allow.";
  return nodes ? `Needed: ${nodes}, at a price of ${Number(needed.price.toFixed(2))}: ${how}.${rest}` : `No node has to be added.${rest}`;
}

function placedSentence({ pods = [], victims = [] }) {
  const of = (some) => `${count(some.filter((pod) => pod.verdict === "scheduled").length)} of ${count(some.length)}`;
  const waiting = pods.filter((pod) => pod.origin.startsWith("pending")), others = pods.filter((pod) => !pod.origin.startsWith("pending"));
  if (!pods.length) return "No pod waits, and none was asked about.";
  const parts = [];
  if (others.length) parts.push(`${of(others)} ${others.length === 1 ? "pod" : "pods"} would be placed`);
  if (waiting.length) parts.push(others.length ? `and ${of(waiting)} that wait now` : `${of(waiting)} pods that wait now would be placed`);
  return `${parts.join(", ")}${victims.length ? `; ${plural(victims.length, "pod")} would be preempted` : ""}.`;
}

function podRows(pods) {
  const rows = pods.slice(0, MOST_ROWS).map((pod) => [`${pod.namespace}/${pod.name}`, pod.origin, VERDICTS[pod.verdict] ?? pod.verdict, pod.node ?? pod.nominated ?? "",
    (pod.victims ?? []).map((each) => each.pod).join(", "), pod.message ?? ""]);
  return h("section", { class: "sheet", "aria-label": "Pods" },
    table("Pods", [["Pod", "name"], ["From", "quiet"], ["", ""], ["Node", "name"], ["Victims", "name"], ["Why", "quiet"]], rows),
    pods.length > MOST_ROWS ? h("p", { class: "quiet small" }, `the first ${MOST_ROWS} of ${count(pods.length)}`) : null);
}

/** The nodes, with those that get pods and those that lose some. Returns what ends it. */
function drawAnswer(drawn, answer, zones) {
  const gets = new Map(Object.entries(answer.nodes ?? {})), loses = new Set((answer.victims ?? []).map((victim) => victim.node));
  const canvas = h("canvas", { role: "img", "aria-label": `${plural(gets.size, "node")} get pods, ${plural(loses.size, "node")} lose pods` });
  const cells = new Cells(canvas), legend = h("div", { class: "legend" }), pointed = h("p", { class: "quiet small" }, "\u00a0");
  put(drawn, legend, canvas, pointed);
  const groups = new Map();
  const added = [...gets.keys()].filter((name) => !live.byName.has(name)).map((name, i) => ({ id: -1 - i, name, flags: 0, used: [], room: [] }));
  for (const node of [...live.nodes.values(), ...added]) {
    const name = node.id < 0 ? ADDED : zones[node.id] ?? "without a zone";
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(node);
  }
  const compare = new Intl.Collator("en", { numeric: true }).compare;
  for (const nodes of groups.values()) nodes.sort((a, b) => compare(a.name, b.name));
  const ordered = [...groups].sort(([a], [b]) => (b === ADDED) - (a === ADDED) || compare(a, b));
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect(), node = cells.at(event.clientX - box.left, event.clientY - box.top);
    if (node) pointed.textContent = `${node.name}: ${gets.has(node.name) ? `gets ${plural(gets.get(node.name), "pod")}` : "gets no pod"}${loses.has(node.name) ? ", loses some" : ""}`;
  });
  function draw() {
    cells.style = style();
    const { accent, sheet, line } = cells.style;
    cells.colour = (node) => (loses.has(node.name) ? [reason(0), sheet] : gets.has(node.name) ? [accent, sheet] : [line, sheet]);
    cells.text = (node) => (gets.has(node.name) ? `+${gets.get(node.name)}` : "");
    const key = (colour, text) => { const i = h("i"); i.style.background = colour; return h("span", { class: "key" }, i, text); };
    put(legend, key(accent, `gets pods: ${plural(gets.size, "node")}`), loses.size ? key(reason(0), "pods are preempted there") : null, key(line, "as it is"));
    cells.layOut(ordered, drawn.clientWidth, Math.max(240, innerHeight - 420));
    cells.drawAll();
    canvas.dataset.nodes = cells.order.length;
  }
  draw();
  return onScheme(draw);
}
