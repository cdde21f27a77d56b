// Gangs: pods that are placed together or not at all, and what each group waits for.

import { h, put, table } from "./dom.js";
import { count, plural } from "./format.js";
import { get } from "./live.js";
import { views } from "./pods.js";

const AGAIN = 3000;

export function gangs(main) {
  const list = h("div"), summary = h("p", { class: "quiet small", role: "status" });
  let timer = 0, ended = false, shown = "";
  put(main, views("gangs"), h("div", { class: "controls" }, h("h1", {}, "Gangs")), h("section", { class: "sheet", "aria-label": "Gangs" }, list, summary));

  async function load() {
    try {
      const found = await get("/api/gangs");
      if (ended) return;
      put(summary, found.length ? plural(found.length, "group") : "There are no pod groups.");
      if (JSON.stringify(found) !== shown) {
        shown = JSON.stringify(found);
        put(list, found.length ? table("Gangs", [["Group", "name"], ["State", ""], ["Placed", "number"], ["of at least", "number"], ["What", ""]], found.map((each) => [
          h("a", { href: `#/pods?text=${encodeURIComponent(`${each.group}`)}` }, each.group), each.state, count(each.counts.placed ?? 0), count(each.minimum), each.what.join("; ")])) : null);
      }
    } catch (error) { put(summary, error.message); }
    if (!ended) timer = setTimeout(load, AGAIN);
  }
  load();
  return () => { ended = true; clearTimeout(timer); };
}
