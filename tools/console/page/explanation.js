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

/** What happened, oldest first: [{at, what, why}], each with the time since the one before. `now`: the server's time. */
export function timeline(now, happened) {
  return h("ol", { class: "timeline" }, happened.map(({ at, what, why }, i) =>
    h("li", { class: i === happened.length - 1 ? "now" : "" },
      h("time", { dateTime: new Date(1000 * at).toISOString(), title: precise(at) },
        i ? `+ ${length(Math.max(0, at - happened[i - 1].at))}` : `${length(Math.max(0, now - at))} ago`),
      h("span", { class: "what" }, what, why ? h("span", { class: "quiet" }, ` ${why}`) : ""))));
}

// Steps may be milliseconds apart.
function precise(at) {
  const date = new Date(1000 * at);
  return `${date.toLocaleString()}, ${String(date.getMilliseconds()).padStart(3, "0")} ms`;
}
