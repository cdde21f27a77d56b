// All pods: a search, and a list of which only the rows in sight exist.

import { choice, h, put, say } from "./dom.js";
import { count, length, plural } from "./format.js";
import { get, listen, live } from "./live.js";

const PAGE = 100;
const AGAIN = 2000; // milliseconds between two looks at the rows in sight
const STATES = [
  ["", "all"], ["active", "active"], ["backoff", "backing off"], ["error-backoff", "backing off after an error"], ["unschedulable", "unschedulable"],
  ["gated", "gated"], ["in-flight", "being decided"], ["binding", "being bound"], ["placed", "on a node"],
];
const TEXTS = Object.fromEntries(STATES);

/** The address of a pod's page. `key`: namespace/name. */
export const address = (key) => `#/pod/${key.split("/").map(encodeURIComponent).join("/")}`;

/** Links between the pages about pods. */
export function views(now) {
  return h("nav", { class: "views", "aria-label": "About pods" }, [["pods", "All pods"], ["gangs", "Gangs"], ["preemptions", "Preemptions"]].map(([place, title]) =>
    h("a", { href: `#/${place}`, "aria-current": place === now ? "page" : null }, title)));
}

export function pods(main, parameters) {
  let text = parameters.get("text") ?? "", state = parameters.get("state") ?? "", total = 0, asked = 0, timer = 0, height = 40;
  let pages = new Map(); // number of a page -> its pods
  const search = h("input", { type: "search", id: "pod-text", value: text, placeholder: "name, node or reason", oninput: () => { text = search.value; restart(); } });
  const states = choice("State", STATES, state, (value) => { state = value; restart(); });
  const summary = h("p", { class: "quiet small", role: "status" });
  const inner = h("div", { class: "inner" });
  const rows = h("div", { class: "rows", role: "list", "aria-label": "Pods", tabIndex: -1 }, inner);
  put(main,
    views("pods"),
    h("div", { class: "controls" }, h("h1", {}, "Pods"), h("label", { htmlFor: "pod-text" }, "Search", search), states.element),
    h("section", { class: "sheet", "aria-label": "Pods" },
      h("div", { class: "row head", "aria-hidden": "true" }, [["Pod"], ["State"], ["Node"], ["Attempts", "number"], ["Why"]].map(([title, style]) => h("span", { class: style }, title))),
      rows, summary));

  function restart() {
    pages = new Map();
    rows.scrollTop = 0;
    const query = new URLSearchParams(Object.entries({ text, state }).filter(([, value]) => value)).toString();
    history.replaceState(null, "", `#/pods${query ? `?${query}` : ""}`);
    load();
  }

  const sight = () => {
    const first = Math.floor(rows.scrollTop / height), last = Math.ceil((rows.scrollTop + rows.clientHeight) / height);
    return [Math.max(0, first - 5), last + 5];
  };

  async function load(again = false) {
    clearTimeout(timer);
    timer = setTimeout(() => load(true), AGAIN);
    const turn = ++asked, [first, last] = sight();
    try {
      for (let page = Math.floor(first / PAGE); page <= Math.floor(last / PAGE); page += 1) {
        if (pages.has(page) && !again) continue;
        const found = await get("/api/pods", { text, state, offset: page * PAGE, limit: PAGE });
        if (turn !== asked) return;
        if (found.total !== total) pages.clear();
        total = found.total;
        pages.set(page, found.pods);
        if ((page + 1) * PAGE >= total) break;
      }
      show();
    } catch (error) { say(summary, error.message); }
  }

  function show() {
    const focused = document.activeElement?.dataset?.key;
    height = matchMedia("(max-width: 40rem)").matches ? 56 : 40;
    inner.style.height = `${total * height}px`;
    const [first, last] = sight(), made = [];
    for (let i = first; i < Math.min(last, total); i += 1) {
      const pod = pages.get(Math.floor(i / PAGE))?.[i % PAGE];
      if (pod) made.push(row(pod, i));
    }
    put(inner, made);
    if (focused) made.find((each) => each.dataset.key === focused)?.focus({ preventScroll: true });
    const waiting = live.overview.listed;
    say(summary, `${plural(total, "pod")}${waiting[1] > waiting[0] ? `; of ${count(waiting[1])} that wait, the first ${count(waiting[0])} are listed` : ""}`);
    rows.dataset.total = total;
  }

  function row(pod, i) {
    const key = `${pod.namespace}/${pod.name}`, since = pod.since ? length(Math.max(0, Date.now() / 1000 - pod.since)) : "";
    const element = h("a", { class: "row", href: address(key), role: "listitem", "data-key": key, "aria-label": `${key}, ${TEXTS[pod.state] ?? pod.state}` },
      h("span", { class: "name" }, key),
      h("span", {}, TEXTS[pod.state] ?? pod.state, since ? h("span", { class: "quiet small" }, ` ${since}`) : ""),
      h("span", { class: "name" }, pod.node ?? ""),
      h("span", { class: "number" }, pod.attempts ? count(pod.attempts) : ""),
      h("span", { class: "quiet" }, (pod.message ?? "").replace(/^0\/\d+ nodes are available: /, "")));
    element.style.top = `${i * height}px`;
    element.style.height = `${height}px`;
    return element;
  }

  rows.addEventListener("scroll", () => { show(); load(); }, { passive: true });
  rows.addEventListener("keydown", (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const now = document.activeElement;
    if (!by || !now?.classList.contains("row")) return;
    event.preventDefault();
    (by > 0 ? now.nextElementSibling : now.previousElementSibling)?.focus();
  });
  const stop = listen((change) => { if (change.reset) load(true); });
  load();
  return () => { stop(); clearTimeout(timer); asked += 1; };
}
