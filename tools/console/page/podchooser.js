// A field to choose one of the pods that wait, with suggestions while one types.

import { h, put } from "./dom.js";
import { get } from "./live.js";

const SUGGESTED = 30;
const PAUSE = 150; // milliseconds after a key, until suggestions are asked for

/** `ask(key)` is called with namespace/name once a pod is chosen, and with an empty text once none is. */
export function podChooser(chosen, ask) {
  let timer = 0, asked = chosen;
  const list = h("datalist", { id: "waiting-pods" });
  const field = h("input", { type: "search", id: "why-pod", value: chosen, placeholder: "namespace/name", autocomplete: "off", spellcheck: false,
    onfocus: suggest, oninput: typed, onchange: () => choose(field.value), onkeydown: (event) => { if (event.key === "Enter") choose(field.value); } });
  field.setAttribute("list", list.id);
  const element = h("label", { htmlFor: field.id, hidden: !chosen }, "Pod that waits", field, list);

  function typed(event) {
    clearTimeout(timer);
    if (event.inputType === "insertReplacementText" || [...list.children].some((each) => each.value === field.value)) choose(field.value); // a suggestion
    else timer = setTimeout(suggest, PAUSE);
  }

  function choose(text) {
    const key = text.trim();
    if (key === asked || (key && !key.includes("/"))) return;
    asked = key;
    ask(key);
  }

  async function suggest() {
    try {
      const found = await get("/api/pods", { text: field.value.trim(), state: "", limit: SUGGESTED });
      const waiting = found.pods.filter((pod) => pod.state !== "placed" && pod.state !== "binding");
      put(list, waiting.map((pod) => h("option", { value: `${pod.namespace}/${pod.name}` }, pod.message ?? "")));
    } catch { /* without suggestions */ }
  }

  return { element, focus: () => { field.focus(); suggest(); } };
}
