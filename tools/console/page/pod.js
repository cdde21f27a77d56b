// One pod: where it is or why it is not, and how it came to that.

import { bars, h, put } from "./dom.js";
import { parts, timeline } from "./explanation.js";
import { amount, count, length, plural } from "./format.js";
import { get } from "./live.js";
import { address } from "./pods.js";
import { preemption } from "./preemptions.js";

const AGAIN = 1500, SOON = 300;
const STATES = {
  active: "is next to be scheduled", backoff: "was rejected, and backs off", "error-backoff": "failed with an error, and backs off",
  unschedulable: "fits nowhere, and waits for a change", gated: "is held back", "in-flight": "is being decided", binding: "is being bound",
};

export function pod(main, parameters, [namespace, name]) {
  const content = h("div", { class: "stack" });
  let timer = 0, ended = false, explained = null, happened = [], explainedFor = "";
  put(main, h("p", { class: "crumbs" }, h("a", { href: "#/pods" }, "Pods")), content);

  async function load() {
    let made;
    try {
      const found = await get("/api/pod", { namespace, name });
      // Asked again only when the pod has moved: an explanation makes workers judge every node.
      const stage = JSON.stringify([found.uid, found.queued?.state, found.queued?.attempts, found.node]);
      if (stage !== explainedFor) {
        explainedFor = stage;
        get("/api/timeline", { namespace, name, uid: found.uid }).then((told) => { happened = told; }, () => {}); // the explanation says what is wrong
        get("/api/explanation", { namespace, name }).then((told) => { explained = told; }, (error) => { explained = { failure: error.message }; });
      }
      made = details(found, explained, happened);
    } catch (error) {
      made = [h("h1", { class: "name" }, `${namespace}/${name}`), h("p", { class: "problem" }, error.message)];
    }
    if (ended) return;
    if (!content.contains(document.activeElement)) put(content, made);
    timer = setTimeout(load, explained ? AGAIN : SOON);
  }
  load();
  return () => { ended = true; clearTimeout(timer); };
}

function details(pod, told, happened) {
  const queued = pod.queued, key = `${pod.namespace}/${pod.name}`;
  const known = told && !told.failure ? parts(told) : {};
  const part = (found) => (found ? section(found[0], found[1]) : null);
  return [
    h("h1", { class: "name" }, key),
    h("p", { class: "verdict" }, told?.sentence ? `${told.sentence.replace(`${key} `, "It ")}.` : verdict(pod)),
    told?.failure ? h("p", { class: "quiet small" }, told.failure) : null,
    h("div", { class: "columns" },
      h("div", { class: "stack" },
        part(known.help), part(known.groups),
        queued && told?.groups?.length ? h("p", { class: "small" }, h("a", { href: `#/map?why=${encodeURIComponent(key)}` }, "On the map: why each node rejects it")) : null,
        !told?.groups?.length && queued?.message ? section("Why its last attempt failed", rejections(queued)) : null,
        part(known.best), part(known.notes),
        pod.preempted ? section("Victims", h("ol", {}, preemption(pod.preempted))) : null,
        pod.preempted_by ? section("Preempted by", h("ol", {}, preemption(pod.preempted_by))) : null),
      h("div", { class: "stack" },
        happened.length ? section("What happened", timeline(pod.now, happened)) : null,
        pod.uid ? section("Facts", facts(pod)) : null,
        pod.requests && Object.keys(pod.requests).length ? section("It requests", h("dl", { class: "facts" },
          Object.entries(pod.requests).map(([resource, n]) => [h("dt", {}, resource), h("dd", {}, amount(resource, n))]))) : null)),
  ];
}

function section(title, content) {
  return h("section", { class: "sheet", "aria-label": title }, h("h2", {}, title), content);
}

function verdict(pod) {
  const node = pod.node && h("a", { class: "name", href: `#/map?node=${encodeURIComponent(pod.node)}` }, pod.node);
  if (!pod.queued && !node) return ["It was preempted by ", h("a", { class: "name", href: address(pod.preempted_by.pod) }, pod.preempted_by.pod), "."];
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
    ["Node", pod.node && h("a", { class: "name", href: `#/map?node=${encodeURIComponent(pod.node)}` }, pod.node)],
    ["UID", pod.uid && h("code", {}, pod.uid)],
    ["Scheduler", queued.scheduler],
    ["Priority", queued.priority === undefined ? undefined : count(queued.priority)],
    ["Attempts", queued.attempts === undefined ? undefined : `${count(queued.attempts)}${queued.rejections ? `, ${count(queued.rejections)} rejected` : ""}${queued.errors ? `, ${count(queued.errors)} errors in a row` : ""}`],
    ["Rejected by", queued.plugins?.join(", ")],
    ["Held by", queued.gate && `${queued.gate}${queued.gate_reason ? `: ${queued.gate_reason}` : ""}`],
    ["Waits for", queued.waits_for],
    ["Trace", pod.trace && h("a", { href: pod.trace, rel: "noreferrer" }, "in Jaeger")],
  ];
  return h("dl", { class: "facts" }, rows.filter(([, value]) => value).map(([title, value]) => [h("dt", {}, title), h("dd", {}, value)]));
}
