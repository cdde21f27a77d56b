// What if: pods that are not there yet, nodes that come or go; where everything would be placed, on the map.

import { Cells } from "./cells.js";
import { onScheme, reason, style } from "./colours.js";
import { h, put, table } from "./dom.js";
import { count, plural } from "./format.js";
import { get, live, post } from "./live.js";

const ZONE = "topology.kubernetes.io/zone";
const EXAMPLE = `apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - name: main
    image: nginx
    resources: {requests: {cpu: "2", memory: 4Gi}}
`;
const VERDICTS = { scheduled: "is placed", unschedulable: "fits nowhere", gated: "is held", failed: "fails", preempted: "is preempted", ignored: "is for another scheduler" };
const MOST_ROWS = 300;
const ADDED = "added";
let kept = { text: EXAMPLE, count: "0", like: "", remove: "", drain: "" }; // as long as the page is open

export function whatIf(main) {
  main.className = "wide";
  const field = (name, title, properties = {}) => {
    const input = h("input", { id: `if-${name}`, value: kept[name], oninput: () => { kept[name] = input.value; }, ...properties });
    return h("label", { htmlFor: input.id }, title, input);
  };
  const text = h("textarea", { id: "if-pods", rows: 12, spellcheck: false, value: kept.text, oninput: () => { kept.text = text.value; } });
  const names = h("datalist", { id: "node-names" }, [...live.byName.keys()].slice(0, 1000).map((name) => h("option", { value: name })));
  const ask = h("button", { class: "main", type: "submit" }, "Decide");
  const outcome = h("div", { class: "stack", "aria-live": "polite" });
  const form = h("form", { class: "sheet stack", "aria-label": "The question", onsubmit: (event) => { event.preventDefault(); decide(); } },
    h("label", { htmlFor: "if-pods" }, "Pods, or what makes them, as YAML or JSON", text),
    h("div", { class: "pairs" },
      field("count", "Nodes to add", { type: "number", min: "0", max: "10000" }),
      field("like", "like this one", { placeholder: "node" })),
    field("remove", "Nodes that go", { placeholder: "node, node" }),
    field("drain", "Nodes that are drained", { placeholder: "node, node" }),
    names,
    h("p", {}, ask, h("span", { class: "quiet small" }, "  Nothing is changed by asking.")));
  for (const input of form.querySelectorAll("#if-like")) input.setAttribute("list", "node-names");
  put(main, h("div", { class: "controls" }, h("h1", {}, "What if")), h("div", { class: "asked" }, form, outcome));
  put(outcome, h("p", { class: "quiet" }, "Where pods would be placed if they were created now, or if nodes came or went: decided as the pipeline would, on its present state."));

  let stop = () => {}, ended = false;
  const listed = (names_) => names_.split(/[\s,]+/).filter(Boolean);

  async function decide() {
    ask.disabled = true;
    stop();
    put(outcome, h("p", { class: "quiet", role: "status" }, "deciding"));
    try {
      const manifests = await post("/api/manifests", kept.text); // YAML is read there
      const question = { manifests, add_nodes: Number(kept.count) || 0, like: kept.like.trim(), remove: listed(kept.remove), drain: listed(kept.drain) };
      const answer = await post("/api/whatif", question);
      if (!ended) await show(answer);
    } catch (error) { if (!ended) put(outcome, h("p", { class: "problem", role: "alert" }, error.message)); }
    ask.disabled = false;
  }

  async function show(answer) {
    const pods = answer.pods ?? [], victims = answer.victims ?? [];
    const of = (some) => `${count(some.filter((pod) => pod.verdict === "scheduled").length)} of ${count(some.length)}`;
    const waiting = pods.filter((pod) => pod.origin.startsWith("pending")), others = pods.filter((pod) => !waiting.includes(pod));
    const sentence = [`${of(others)} ${others.length === 1 ? "pod" : "pods"} would be placed`, waiting.length ? `, and ${of(waiting)} that wait now` : "", victims.length ? `; ${plural(victims.length, "pod")} would be preempted` : "", "."];
    const drawn = h("div", { class: "map" });
    put(outcome,
      h("p", { class: "verdict" }, sentence),
      (answer.notes ?? []).map((note) => h("p", { class: "quiet small" }, note)),
      h("section", { class: "sheet", "aria-label": "Map" }, drawn),
      h("section", { class: "sheet", "aria-label": "Pods" }, table("Pods", [["Pod", "name"], ["", ""], ["Node", "name"], ["Victims", "name"], ["Why", "quiet"]],
        pods.slice(0, MOST_ROWS).map((pod) => [`${pod.namespace}/${pod.name}`, VERDICTS[pod.verdict] ?? pod.verdict, pod.node ?? pod.nominated ?? "", (pod.victims ?? []).map((each) => each.pod).join(", "), pod.message ?? ""])),
        pods.length > MOST_ROWS ? h("p", { class: "quiet small" }, `the first ${MOST_ROWS} of ${count(pods.length)}`) : null),
      (answer.lost ?? []).length ? h("p", { class: "problem" }, `Nobody would make these again: ${answer.lost.join(", ")}`) : null);
    stop = await drawAnswer(drawn, answer);
  }

  return () => { ended = true; stop(); };
}

/** The nodes, with those that get pods and those that lose some. Returns what ends it. */
async function drawAnswer(drawn, answer) {
  const gets = new Map(Object.entries(answer.nodes ?? {})), loses = new Set((answer.victims ?? []).map((victim) => victim.node));
  const zones = await get("/api/labels", { key: ZONE });
  const canvas = h("canvas", { role: "img", "aria-label": `${plural(gets.size, "node")} get pods, ${plural(loses.size, "node")} lose pods` });
  const cells = new Cells(canvas), legend = h("div", { class: "legend" });
  put(drawn, legend, canvas);
  const groups = new Map();
  const known = [...live.nodes.values()];
  const added = [...gets.keys()].filter((name) => !live.byName.has(name)).map((name, i) => ({ id: -1 - i, name, flags: 0, used: [], room: [] }));
  for (const node of [...known, ...added]) {
    const name = node.id < 0 ? ADDED : zones[node.id] ?? "without a zone";
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(node);
  }
  function draw() {
    cells.style = style();
    const { accent, sheet, line } = cells.style;
    cells.colour = (node) => (loses.has(node.name) ? [reason(0), sheet] : gets.has(node.name) ? [accent, sheet] : [line, sheet]);
    cells.text = (node) => (gets.has(node.name) ? `+${gets.get(node.name)}` : "");
    const key = (colour, text) => { const i = h("i"); i.style.background = colour; return h("span", { class: "key" }, i, text); };
    put(legend, key(accent, "gets pods"), loses.size ? key(reason(0), "pods are preempted there") : null, key(line, "as it is"));
    cells.layOut([...groups].sort(([a], [b]) => (b === ADDED) - (a === ADDED) || a.localeCompare(b, "en", { numeric: true })), drawn.clientWidth, Math.max(240, innerHeight - 420));
    cells.drawAll();
    canvas.dataset.nodes = cells.order.length;
  }
  draw();
  return onScheme(draw);
}
