// Preemptions: which pods were preempted by which.

import { h, put } from "./dom.js";
import { count, length } from "./format.js";
import { get } from "./live.js";
import { address, views } from "./pods.js";

const AGAIN = 3000;

export function preemptions(main) {
  const list = h("ol", { class: "stack" }), summary = h("p", { class: "quiet small", role: "status" });
  let timer = 0, ended = false, shown = "";
  put(main, views("preemptions"), h("div", { class: "controls" }, h("h1", {}, "Preemptions")), list, summary);

  async function load() {
    try {
      const found = await get("/api/preemptions");
      if (ended) return;
      put(summary, found.length ? `${count(found.length)} lately, the newest first` : "No pod was preempted lately.");
      if (JSON.stringify(found) !== shown) {
        shown = JSON.stringify(found);
        put(list, found.map(preemption));
      }
    } catch (error) { put(summary, error.message); }
    if (!ended) timer = setTimeout(load, AGAIN);
  }
  load();
  return () => { ended = true; clearTimeout(timer); };
}

/** One preemption: on the left the victims, on the right their preemptor. */
export function preemption(each) {
  return h("li", { class: "sheet exchange" },
    h("ul", { "aria-label": "Victims" }, each.victims.map((victim) => h("li", {},
      h("a", { class: "name", href: address(victim.pod) }, victim.pod), h("span", { class: "quiet small" }, ` priority ${count(victim.priority)}${victim.owner ? `, of ${victim.owner}` : ""}`)))),
    h("span", { class: "quiet", "aria-hidden": "true" }, "→"),
    h("div", {},
      h("p", {}, h("a", { class: "name", href: address(each.pod) }, each.pod), h("span", { class: "quiet small" }, each.priority === null ? "" : ` priority ${count(each.priority)}`)),
      h("p", { class: "quiet small" }, `on ${each.node}, ${length(Math.max(0, Date.now() / 1000 - each.at))} ago`),
      each.failure ? h("p", { class: "problem" }, each.failure) : null));
}
