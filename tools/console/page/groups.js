// Groups of nodes that could be added: kinds of nodes that there are, each with a price, and those of a text.

import { h, put } from "./dom.js";
import { plural } from "./format.js";
import { get, listen } from "./live.js";

const DEFAULT_MAX = 20; // nodes of a kind
const EXAMPLE = `- {name: large, max: 5, price: 8, template: {
    metadata: {labels: {size: large}},
    status: {allocatable: {cpu: "32", memory: 128Gi, pods: "110"}}}}`;

/** An element to choose with, `chosen()`: the groups among the kinds, and what ends it. `kept`: what was chosen before. */
export function groupChooser(kept) {
  const kinds = h("ul", { class: "kinds" }, h("li", { class: "quiet small" }, "reading the kinds of nodes"));
  const text = h("textarea", { id: "if-groups", rows: 5, spellcheck: false, value: kept.groups, placeholder: EXAMPLE, oninput: () => { kept.groups = text.value; } });
  const element = h("fieldset", { class: "stack" },
    h("legend", {}, "Nodes that could be added"), kinds,
    h("label", { htmlFor: "if-groups" }, "Others, as in groups.yaml", text));
  async function load() {
    try {
      const found = await get("/api/kinds");
      put(kinds, found.length ? found.map((kind) => row(kind, kept.chosen)) : h("li", { class: "quiet small" }, "There are no nodes yet."));
    } catch (error) { put(kinds, h("li", { class: "problem small" }, error.message)); }
  }
  load();
  // The cluster may still be read while the page opens; later changes do not disturb who is typing.
  const stop = listen((change) => { if (change.shaped && !kinds.querySelector("input")) load(); });
  const chosen = () => [...kept.chosen.values()].filter((group) => group.wanted).map(({ wanted, ...group }) => group);
  return { element, chosen, stop };
}

function row(kind, chosen) {
  const group = chosen.get(kind.name) ?? { name: kind.name, like: kind.like, max: DEFAULT_MAX, price: kind.cpu || 1, wanted: false };
  chosen.set(kind.name, { ...group, like: kind.like });
  const set = (name, value) => chosen.set(kind.name, { ...chosen.get(kind.name), [name]: value });
  const number = (name, title, properties) => {
    const input = h("input", { type: "number", value: String(group[name]), required: true, "aria-label": `${title} of ${kind.name}`, oninput: () => set(name, Number(input.value)), ...properties });
    return h("label", {}, title, input);
  };
  const wanted = h("input", { type: "checkbox", checked: group.wanted, onchange: () => set("wanted", wanted.checked) });
  return h("li", {},
    h("label", { class: "check" }, wanted, h("span", { class: "name" }, kind.name), h("span", { class: "quiet small" }, ` ${plural(kind.nodes, "node")}, ${kind.cpu} cpu`)),
    number("max", "at most", { min: "0", max: "1000" }), number("price", "price", { min: "0", step: "any" }));
}
