// What if: pods that are not there yet, nodes that come or go, another configuration; what would become of the pods.

import { outcome } from "./answer.js";
import { choice, h, put } from "./dom.js";
import { groupChooser } from "./groups.js";
import { live, post } from "./live.js";

const EXAMPLE = `apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - name: main
    image: nginx
    resources: {requests: {cpu: "2", memory: 4Gi}}
`;
const QUESTIONS = [["placed", "Where would these pods go?"], ["capacity", "How many more of this pod fit?"], ["groups", "Which nodes must be added for them?"]];
const ABOUT = {
  placed: "Where pods would be placed if they were created now, or if nodes came or went: decided as the pipeline would, on its present state.",
  capacity: "How many copies of the pod would find a node after the pods that wait now, without preempting any pod.",
  groups: "The cheapest nodes with which these pods, and those that wait now, all fit. Sets of nodes are tried one after another.",
};
const MOST_NAMES = 1000;
// What was asked last, as long as the page is open.
const kept = { question: "placed", text: EXAMPLE, count: "0", like: "", remove: "", drain: "", config: "", by: "", chosen: new Map(), groups: "" };

export function whatIf(main) {
  main.className = "wide";
  let stop = () => {}, ended = false;
  const field = (name, title, properties = {}) => {
    const input = h("input", { id: `if-${name}`, value: kept[name], oninput: () => { kept[name] = input.value; }, ...properties });
    return h("label", { htmlFor: input.id }, title, input);
  };
  const area = (name, title, rows, properties = {}) => {
    const text = h("textarea", { id: `if-${name}`, rows, spellcheck: false, value: kept[name], oninput: () => { kept[name] = text.value; }, ...properties });
    return h("label", { htmlFor: text.id }, title, text);
  };
  const names = h("datalist", { id: "node-names" }, [...live.byName.keys()].slice(0, MOST_NAMES).map((name) => h("option", { value: name })));
  const labels = h("datalist", { id: "label-keys" }, live.labels.map((key) => h("option", { value: key })));
  const question = choice("Question", QUESTIONS, kept.question, (value) => { kept.question = value; adapt(); });
  const by = field("by", "Counted by the label", { placeholder: "that of the node pool" });
  const groups = groupChooser(kept);
  const changes = h("details", { open: Boolean(Number(kept.count) || kept.remove || kept.drain) }, h("summary", {}, "Nodes that come or go"),
    h("div", { class: "stack" },
      h("div", { class: "pairs" },
        field("count", "Nodes to add", { type: "number", min: "0", max: "10000" }),
        field("like", "like this one", { placeholder: "node" })),
      field("remove", "Nodes that go", { placeholder: "node, node" }),
      field("drain", "Nodes that are drained", { placeholder: "node, node" })));
  const config = h("details", { open: Boolean(kept.config) }, h("summary", {}, "Another configuration"),
    area("config", "A KubeSchedulerConfiguration, instead of the pipeline's", 8));
  const ask = h("button", { class: "main", type: "submit" }, "Decide");
  const shown = h("div", { class: "stack", "aria-live": "polite" });
  const form = h("form", { class: "sheet stack question", "aria-label": "The question", onsubmit: (event) => { event.preventDefault(); decide(); } },
    question.element, area("text", "Pods, or what makes them, as YAML or JSON", 11), by, groups.element, changes, config, names, labels,
    h("p", {}, ask, h("span", { class: "quiet small" }, "  Nothing is changed by asking.")));
  form.querySelector("#if-like").setAttribute("list", "node-names");
  form.querySelector("#if-by").setAttribute("list", "label-keys");
  put(main, h("div", { class: "controls" }, h("h1", {}, "What if")), h("div", { class: "asked" }, form, shown));
  adapt();

  function adapt() {
    by.hidden = kept.question !== "capacity";
    groups.element.hidden = kept.question !== "groups";
    stop();
    put(shown, h("p", { class: "quiet" }, ABOUT[kept.question]));
  }

  async function decide() {
    ask.disabled = true;
    stop();
    stop = () => {};
    put(shown, h("p", { class: "quiet", role: "status" }, "deciding"));
    try {
      const answer = await post("/api/whatif", await asked());
      const made = await outcome(answer);
      if (!ended) { put(shown, made.element); stop = made.draw(); }
    } catch (error) { if (!ended) put(shown, h("p", { class: "problem", role: "alert" }, error.message)); }
    ask.disabled = false;
  }

  async function asked() {
    const [manifests, configs] = [await parsed("pods", kept.text), await parsed("configuration", kept.config)];
    if (configs.length > 1) throw new Error("configuration: expected one KubeSchedulerConfiguration, not several documents");
    const made = { manifests, add_nodes: Number(kept.count) || 0, like: kept.like.trim(), remove: listed(kept.remove), drain: listed(kept.drain) };
    if (configs.length) [made.config] = configs;
    if (kept.question === "capacity") Object.assign(made, { capacity: true, by: kept.by.trim() });
    if (kept.question === "groups") {
      made.node_groups = [...groups.chosen(), ...(await parsed("groups", kept.groups)).flat()];
      if (!made.node_groups.length) throw new Error("Choose a kind of node that could be added, or write down a group of nodes.");
    }
    return made;
  }

  return () => { ended = true; stop(); groups.stop(); };
}

const listed = (names) => names.split(/[\s,]+/).filter(Boolean);

/** The documents of a text; YAML is read by the server. */
const parsed = (of, text) => (text.trim() ? post(`/api/manifests?name=${of}`, text) : []);
