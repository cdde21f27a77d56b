// The overview: how fast, how many, how long, and how each process fares.

import { bars, h, put, say, table } from "./dom.js";
import { amount, bytes, count, digits, length, percent, plural } from "./format.js";
import { LIFE, listen, live } from "./live.js";
import { sparkline } from "./spark.js";

const STATES = {
  active: "next to be scheduled", backoff: "backing off", "error-backoff": "backing off after an error",
  unschedulable: "waiting for a change", gated: "held by a gate", "in-flight": "being decided", binding: "being bound",
};

export function overview(main) {
  const notes = h("div", { class: "notes", role: "status" });
  const rate = figure("Placed a second"), waiting = figure("Waiting"), placed = figure("On nodes"), late = figure("From the queue to the node, p99");
  const queue = h("div"), reasons = h("div"), capacity = h("div"), durations = h("div"), counters = h("div"), services = h("div");
  put(main,
    h("h1", { class: "hidden" }, "Overview"),
    notes,
    h("dl", { class: "figures" }, [rate, waiting, placed, late].map((each) => each.element)),
    h("div", { class: "columns" },
      h("div", { class: "stack" }, section("Waiting, by state", queue), section("Waiting, by reason", reasons), section("Requested of what there is", capacity)),
      h("div", { class: "stack" }, section("How long it takes", durations), section("Rounds", counters))),
    h("div", { class: "stack" }, h("div"), section("Services", services)));

  const shown = new Map();
  const update = (place, value, make) => {
    const text = JSON.stringify(value);
    if (shown.get(place) !== text) { shown.set(place, text); put(place, make()); }
  };

  function show() {
    const now = live.overview, samples = live.samples;
    const last = samples.at(-1) ?? [0, 0, 0, 0];
    // The average of three samples: pods are placed in rounds, so a single second says little.
    const recent = samples.slice(-3).reduce((sum, each) => sum + each[1], 0) / Math.max(1, Math.min(3, samples.length));
    rate.set(digits(recent), "pods/s", samples.map((each) => each[1]));
    waiting.set(count(last[2]), "pods", samples.map((each) => each[2]));
    placed.set(count(last[3]), "pods", samples.map((each) => each[3]));
    const life = (now.durations ?? []).find(([name]) => name === LIFE);
    const [value, unit = ""] = life ? length(life[2][2]).split(" ") : ["–"];
    late.set(value, unit, live.lates);
    update(notes, now.findings.filter(([, wrong]) => wrong), () => now.findings.filter(([, wrong]) => wrong).map(([text]) => h("p", {}, text)));
    const counts = Object.entries(now.counts).filter(([, n]) => n), most = Math.max(1, ...counts.map(([, n]) => n));
    update(queue, counts, () => bars(counts.map(([state, n]) =>
      [h("a", { href: `#/pods?state=${state}` }, STATES[state] ?? state), count(n), n / most]), "No pod waits."));
    const listed = now.listed[0];
    update(reasons, [now.reasons, now.listed], () => [
      bars(now.reasons.slice(0, 8).map(([text, plugins, pods, nodes]) => [
        [h("a", { href: `#/pods?text=${encodeURIComponent(text)}` }, text),
          h("span", { class: "quiet small" }, nodes ? ` at up to ${plural(nodes, "node")}` : "")],
        count(pods), pods / Math.max(1, listed)]), "No pod has been rejected."),
      now.listed[1] > listed ? h("p", { class: "quiet small" }, `of the first ${count(listed)} of ${plural(now.listed[1], "pod")}`) : null]);
    update(capacity, now.totals, () => bars(now.totals.map(([name, used, room]) =>
      [h("span", {}, name, h("span", { class: "quiet small" }, ` ${amount(name, used)} of ${amount(name, room)}`)), percent(used / room), used / room]), "There are no nodes."));
    update(durations, now.durations, () => now.durations.length ? table("Durations", [["", ""], ["p50", "number"], ["p90", "number"], ["p99", "number"]],
      now.durations.map(([text, , quantiles]) => [text, ...quantiles.map(length)])) : h("p", { class: "empty" }, "Nothing has been measured yet."));
    update(counters, now.counters, () => table("Counters of the last minute", [["", ""], ["a second", "number"], ["since the start", "number"]],
      now.counters.map(([text, total, each]) => [text, digits(each), count(total)])));
    update(services, now.processes, () => processes(now.processes));
  }

  show();
  return listen(show);
}

function figure(title) {
  const value = h("span"), unit = h("span", { class: "unit" }), line = sparkline();
  return {
    element: h("div", { class: "figure sheet" }, h("dt", {}, title), h("dd", { class: "value" }, value, unit), h("dd", {}, line.element)),
    set(text, of, values) {
      say(value, text);
      say(unit, of);
      line.draw(values);
    },
  };
}

function section(title, content) {
  return h("section", { class: "sheet", "aria-label": title }, h("h2", {}, title), content);
}

function processes(all) {
  if (!all.length) return h("p", { class: "empty" }, "No process has answered yet.");
  const columns = [["Process", "name"], ["Role", ""], ["CPU", "number"], ["Memory", "number"], ["Behind", "number"], ["Pid", "number"], ["Host", ""]];
  return table("Services", columns, all.map((each) => [
    each.name,
    each.problems.length ? h("span", { class: "problem" }, each.problems.join("; "))
      : each.role === "leader" ? h("span", {}, "leads", h("span", { class: "quiet small" }, ` term ${count(each.term)}`))
        : each.role === "standby" ? h("span", { class: "quiet" }, `stands by: ${each.leader} leads`) : h("span", { class: "quiet" }, "works"),
    each.cpu === null ? "–" : percent(each.cpu),
    each.memory === null ? "–" : bytes(each.memory),
    each.lag === null ? "–" : count(each.lag),
    each.pid, each.host]));
}
