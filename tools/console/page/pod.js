// One pod: where it is or why it is not, and how it came to that.

import { bars, h, put, table } from "./dom.js";
import { amount, count, length, plural } from "./format.js";
import { get } from "./live.js";
import { address } from "./pods.js";
import { preemption } from "./preemptions.js";

const AGAIN = 1500;
const STATES = {
  active: "is next to be scheduled", backoff: "was rejected, and backs off", "error-backoff": "failed with an error, and backs off",
  unschedulable: "fits nowhere, and waits for a change", gated: "is held back", "in-flight": "is being decided", binding: "is being bound",
};

export function pod(main, parameters, [namespace, name]) {
  const content = h("div", { class: "stack" });
  let timer = 0, ended = false, shown = "";
  put(main, h("p", { class: "crumbs" }, h("a", { href: "#/pods" }, "Pods")), content);

  async function load() {
    let made;
    try {
      const found = await get("/api/pod", { namespace, name });
      const { now, ...rest } = found, text = JSON.stringify(rest);
      if (text === shown && !found.queued) made = null;
      shown = text;
      made ??= details(found);
    } catch (error) {
      made = [h("h1", { class: "name" }, `${namespace}/${name}`), h("p", { class: "problem" }, error.message)];
    }
    if (ended) return;
    if (made && !content.contains(document.activeElement)) put(content, made);
    timer = setTimeout(load, AGAIN);
  }
  load();
  return () => { ended = true; clearTimeout(timer); };
}

function details(pod) {
  const queued = pod.queued;
  return [
    h("h1", { class: "name" }, `${pod.namespace}/${pod.name}`),
    h("p", { class: "verdict" }, verdict(pod)),
    h("div", { class: "columns" },
      h("div", { class: "stack" },
        queued?.message ? section("Why its last attempt failed", rejections(queued)) : null,
        pod.took_the_place_of ? section("Who made way for it", h("ol", {}, preemption(pod.took_the_place_of))) : null,
        pod.made_way_for ? section("For whom it made way", h("ol", {}, preemption(pod.made_way_for))) : null,
        section("Facts", facts(pod))),
      h("div", { class: "stack" },
        queued?.history?.length ? section("What happened", timeline(pod)) : null,
        pod.requests && Object.keys(pod.requests).length ? section("It requests", h("dl", { class: "facts" },
          Object.entries(pod.requests).map(([resource, n]) => [h("dt", {}, resource), h("dd", {}, amount(resource, n))]))) : null)),
  ];
}

function section(title, content) {
  return h("section", { class: "sheet", "aria-label": title }, h("h2", {}, title), content);
}

function verdict(pod) {
  const node = pod.node && h("a", { class: "name", href: `#/map?node=${encodeURIComponent(pod.node)}` }, pod.node);
  if (!pod.queued && !node) return ["It made way for ", h("a", { class: "name", href: address(pod.made_way_for.pod) }, pod.made_way_for.pod), "."];
  if (!pod.queued) return ["It is on ", node, "."];
  const parts = [`It ${STATES[pod.queued.state] ?? pod.queued.state}`, `, since ${length(pod.now - pod.queued.since)}.`];
  if (pod.node) parts.push(" It has a place on ", node, ".");
  if (pod.nominated) parts.push(" Room is kept for it on ", h("a", { class: "name", href: `#/map?node=${encodeURIComponent(pod.nominated)}` }, pod.nominated), ".");
  return parts;
}

function rejections(queued) {
  const found = /^\d+\/(\d+) nodes are available: (.*?)(?:\. (.*?))?\.?$/s.exec(queued.message.trim());
  if (!found) return h("p", {}, queued.message);
  const [, nodes, reasons, preemption] = found;
  const rows = reasons.split(/, (?=\d+ )/).map((reason) => {
    const [, n, text] = /^(\d+) (.*)$/s.exec(reason) ?? [null, "0", reason];
    return [text.replace(/\.$/, ""), plural(Number(n), "node"), Number(n) / Math.max(1, Number(nodes))];
  });
  return h("div", { class: "stack" }, bars(rows, ""), preemption ? h("p", { class: "quiet small" }, preemption) : null,
    queued.claims?.length ? h("ul", { class: "list" }, queued.claims.map((line) => h("li", {}, line))) : null);
}

function facts(pod) {
  const queued = pod.queued ?? {};
  const rows = [
    ["UID", h("code", {}, pod.uid)],
    ["Scheduler", queued.scheduler],
    ["Priority", queued.priority === undefined ? undefined : count(queued.priority)],
    ["Attempts", queued.attempts === undefined ? undefined : `${count(queued.attempts)}${queued.rejections ? `, ${count(queued.rejections)} rejected` : ""}${queued.errors ? `, ${count(queued.errors)} errors in a row` : ""}`],
    ["Rejected by", queued.plugins?.join(", ")],
    ["Held by", queued.gate && `${queued.gate}${queued.gate_reason ? `: ${queued.gate_reason}` : ""}`],
    ["Backs off for", queued.backoff_until && length(Math.max(0, queued.backoff_until - pod.now))],
    ["Tried again on", queued.requeue_events?.join(", ")],
    ["Trace", pod.trace && h("a", { href: pod.trace, rel: "noreferrer" }, "in Jaeger")],
  ];
  return h("dl", { class: "facts" }, rows.filter(([, value]) => value).map(([title, value]) => [h("dt", {}, title), h("dd", {}, value)]));
}

function timeline(pod) {
  const moves = pod.queued.history;
  return h("ol", { class: "timeline" }, moves.map(([at, state, why], i) =>
    h("li", { class: i === moves.length - 1 ? "now" : "" },
      h("time", { dateTime: new Date(1000 * at).toISOString(), title: new Date(1000 * at).toLocaleString() }, `${length(Math.max(0, pod.now - at))} ago`),
      h("span", { class: "what" }, state, why ? h("span", { class: "quiet" }, ` ${why}`) : ""))));
}
