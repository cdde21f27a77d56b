// An explanation of a pod in words, tables and lists, as flotilla explain gives it.

import { bars, h, table } from "./dom.js";
import { count, length, plural } from "./format.js";

/** The parts of the page, each as [title, content]; those without content are left out. */
export function parts(told) {
  const help = told.help.length ? told.help : told.pairs;
  return {
    help: help.length ? ["It would fit if", h("ul", { class: "helps" }, help.map((each) => h("li", {}, each.text,
      each.nodes ? h("span", { class: "quiet small" }, ` then on ${plural(each.nodes, "node")}`) : null,
      each.certain ? null : h("span", { class: "quiet small" }, " as far as the rest of it is concerned"))))] : null,
    groups: told.groups.length ? ["Nodes that reject it, by the first reason", bars(told.groups.map((group) => [
      [group.text, h("span", { class: "quiet small" }, ` ${group.plugin}${group.examples.length ? `, such as ${group.examples[0]}` : ""}`)],
      count(group.nodes), group.nodes / Math.max(1, told.nodes)]), "")] : null,
    best: told.best.length ? [told.state === "pending" ? "Best nodes" : "Best nodes when it was decided", scores(told)] : null,
    notes: told.notes.length || told.preemption ? ["What else is known", h("ul", { class: "list" },
      [...told.notes, told.preemption && `Preemption: ${told.preemption}`].filter(Boolean).map((line) => h("li", {}, line)))] : null,
  };
}

function scores(told) {
  const names = [...new Set(told.best.flatMap((node) => Object.keys(node.plugins ?? {})))];
  const rows = names.map((name) => [
    [name, told.weights[name] > 1 ? h("span", { class: "quiet small" }, ` × ${told.weights[name]}`) : null],
    ...told.best.map((node) => score(node.plugins?.[name]))]);
  return h("div", { class: "stack" },
    table("Scores by plugin", [["", ""], ...told.best.map((node) => [node.node, "number"])],
      [...rows, [h("strong", {}, "total"), ...told.best.map((node) => h("strong", {}, count(node.total)))]]),
    told.won_by ? h("p", { class: "quiet small" }, told.won_by) : null);
}

// A plugin's score: raw, normalized, weighted.
function score(found) {
  if (!found) return "–";
  const [raw, normalized, weighted] = found;
  return raw === normalized ? count(weighted) : h("span", { title: `raw ${raw}, normalized ${normalized}` }, count(weighted));
}

const TEXTS = {
  placed: (each) => [`decided: ${each.node}`, `attempt ${count(each.attempt ?? 0)}, the best of ${count(each.feasible ?? 0)} on which it fitted, of ${plural(each.nodes ?? 0, "node")}${each.gang ? `, with its gang ${each.gang}` : ""}`],
  failed: (each) => ["failed", each.message],
  nominated: (each) => [`nominated to ${each.node}`, each.victims?.length ? `for it go ${each.victims.join(", ")}` : ""],
  evicted: (each) => [`preempted on ${each.node}`, `by ${each.preemptor}`],
};

const STATES = { active: "queued", backoff: "backs off", "error-backoff": "backs off after an error", gated: "held", "in-flight": "attempt", binding: "being bound" };

/** What happened, oldest first: moves in the queue ([at, state, why]) and decisions that the cycle remembers. */
export function timeline(now, moves, journal) {
  const decided = journal.filter((each) => TEXTS[each.kind]).map((each) => [each.at, ...TEXTS[each.kind](each)]);
  const moved = moves.map(([at, state, why]) => [at, STATES[state] ?? state, why]);
  const all = [...moved, ...decided].sort((a, b) => a[0] - b[0]);
  return h("ol", { class: "timeline" }, all.map(([at, what, why], i) =>
    h("li", { class: i === all.length - 1 ? "now" : "" },
      h("time", { dateTime: new Date(1000 * at).toISOString(), title: new Date(1000 * at).toLocaleString() }, `${length(Math.max(0, now - at))} ago`),
      h("span", { class: "what" }, what, why ? h("span", { class: "quiet" }, ` ${why}`) : ""))));
}
