"""Counts and rejections in words."""

from collections.abc import Iterable, Sequence

from flotilla.results import Status
from shared.explain.words import amount, count, domain, domain_counts, listed, requirement, selector_text
from shared.messages.explaining import Cause, NodeFindings, NodeVerdict, ScoredNode
from shared.model.pod import Pod
from shared.model.resources import PODS
from tools.explain.explanation import Group

# Rejections


def groups(findings: NodeFindings, pod: Pod) -> tuple[Group, ...]:
    """Nodes by their first rejection, those of most nodes first."""
    return tuple(
        Group(
            nodes=rejected.nodes,
            text=rejection(rejected.status, rejected.nodes, findings.causes, findings.restricted_by, pod),
            plugin=rejected.status.plugin or "/".join(findings.restricted_by),
            reason=rejected.status.message,
            examples=rejected.examples,
        )
        for rejected in findings.rejected
    )


def of_node(verdict: NodeVerdict, findings: NodeFindings, pod: Pod) -> str:
    """All rejections of one node; what begins the sentence is the node's name."""
    said = (rejection(status, 1, verdict.causes, findings.restricted_by, pod) for status in verdict.statuses)
    return listed(list(dict.fromkeys(said)), 8)


def rejection(status: Status, nodes: int, causes: Sequence[Cause], restricted_by: Sequence[str], pod: Pod) -> str:
    """What is the case with these nodes: `lack cpu (it asks for 2, at most 1.5 is free)`."""
    own = [cause for cause in causes if cause.plugin == status.plugin and (cause.first or nodes == 1)]
    one = nodes == 1
    match status.plugin:
        case "NodeResourcesFit":
            return _lack(status, own, one=one)
        case "TaintToleration" if own:
            taints = listed([cause.name for cause in own], 3)
            word = "taint" if len(own) == 1 and ", " not in own[0].name else "taints"
            return f"{_has(one)} the {word} {taints}"
        case "NodeUnschedulable":
            return "is cordoned" if one else "are cordoned"
        case "NodeAffinity" if own:
            have = listed([cause.name for cause in own], 2)
            has = f"{'it has' if one else 'they have'} {have}"
            return f"{'does' if one else 'do'} not match its node {_selection(pod)} ({has})"
        case "NodePorts" if own:
            ports = listed([cause.name for cause in own])
            holder = f" by {own[0].pods[0].key}" if own[0].pods else ""
            return f"{_has(one)} its host port {ports} taken{holder}"
        case "PodTopologySpread":
            return _uneven(status, own, pod, one=one)
        case "InterPodAffinity":
            return _near(status, own, pod, one=one)
        case "VolumeBinding" | "VolumeZone" if own and own[0].values:
            labels = ", ".join(f"{key}={value}" for key, value in own[0].values.items())
            return f"{'does' if one else 'do'} not reach its claim {own[0].name}, which needs {labels}"
        case "VolumeRestrictions" if own and own[0].pods:
            return f"{_has(one)} its claim {own[0].name} in use by {own[0].pods[0].key}"
        case "Extender":
            return f"{'is' if one else 'are'} rejected by an extender: {status.message}"
        case "":
            by = f" of {listed(list(restricted_by))}" if restricted_by else ""
            return f"{'is' if one else 'are'} not among the nodes{by} that it may go to"
        case _:
            return _plain(status, one=one)


def _has(one: bool) -> str:
    return "has" if one else "have"


def _plain(status: Status, *, one: bool) -> str:
    """kube-scheduler's reason: `node(s) had no available disk`."""
    reason = status.message
    for prefix in ("node(s) had ", "node(s) "):
        if reason.startswith(prefix):
            reason = reason.removeprefix(prefix)
            return f"had {reason}" if prefix.endswith("had ") else reason
    return f"{'is' if one else 'are'} rejected by {status.plugin}: {reason}"


def _lack(status: Status, own: Sequence[Cause], *, one: bool) -> str:
    names = [reason.removeprefix("Insufficient ") for reason in status.reasons]
    by_name = {cause.name: cause for cause in own}
    parts: list[str] = []
    for name in names:
        if name == "Too many pods":
            full = by_name.get(PODS)
            parts.append(f"a slot for a pod ({_has_at_most(full)})" if full is not None else "a slot for a pod")
            continue
        cause = by_name.get(name)
        if cause is None:
            parts.append(name)
            continue
        asked = amount(name, cause.asked)
        if not cause.whole:
            there = "it has none" if one else "they have none"
        elif cause.asked > cause.whole:
            there = f"{'it' if one else 'the largest'} has {amount(name, cause.whole)} in all"
        elif not cause.free:
            there = "none is free"
        else:
            there = f"{'' if one else 'at most '}{amount(name, cause.free)} is free"
        parts.append(
            f"{name} (it asks for {asked}, {there})" if cause.whole else f"{name} (it asks for {asked}, and {there})"
        )
    return f"{'lacks' if one else 'lack'} {listed(parts)}"


def _has_at_most(cause: Cause) -> str:
    return f"all {cause.whole} are taken" if cause.nodes == 1 else f"at most {cause.whole} on one node"


def _selection(pod: Pod) -> str:
    selector = ", ".join(f"{key}={value}" for key, value in pod.spec.node_selector.items())
    affinity = pod.spec.affinity
    terms: list[str] = []
    if affinity is not None and affinity.node_affinity is not None and affinity.node_affinity.required is not None:
        terms = [
            " and ".join(requirement(each.key, each.operator, each.values) for each in term.match_expressions)
            for term in affinity.node_affinity.required.node_selector_terms
        ]
    if selector and terms:
        return f"selector {selector} and affinity {' or '.join(terms)}"
    return f"selector {selector}" if selector else f"affinity {' or '.join(terms)}"


def _uneven(status: Status, own: Sequence[Cause], pod: Pod, *, one: bool) -> str:
    keys = listed([domain(cause.name) for cause in own]) or "domain"
    if "missing required label" in status.message:
        wanted = listed([c.topology_key for c in pod.spec.topology_spread_constraints])
        return f"{'lacks' if one else 'lack'} a label that it spreads over ({wanted})"
    counts = next((cause.values for cause in own if len(cause.values) > 1), {})
    there = f": pods by {keys} are {domain_counts(counts)}" if counts else ""
    return f"would make its spreading over {keys} too uneven{there}"


def _near(status: Status, own: Sequence[Cause], pod: Pod, *, one: bool) -> str:
    message = status.message
    if "existing pods" in message:
        pods = _pods(own, "symmetric")
        return f"{_has(one)} pods near that avoid it{pods}"
    if "anti-affinity" in message:
        pods = _pods(own, "anti-affinity")
        return f"{_has(one)} pods near that it avoids{pods}"
    terms = (
        []
        if pod.spec.affinity is None or pod.spec.affinity.pod_affinity is None
        else pod.spec.affinity.pod_affinity.required
    )
    wanted = listed([f"{selector_text(term.label_selector)} in the same {domain(term.topology_key)}" for term in terms])
    return f"{_has(one)} no pod near that it wants to be with ({wanted})"


def _pods(own: Iterable[Cause], what: str) -> str:
    named = [pod.key for cause in own if cause.what == what for pod in cause.pods]
    return f" (such as {listed(named, 2)})" if named else ""


# Scores


def won_by(best: Sequence[ScoredNode]) -> str:
    """By which plugins' scores the first node is ahead of the second."""
    if len(best) < 2:
        return ""
    first, second = best[0], best[1]
    ahead = first.total - second.total
    if not ahead:
        equals = sum(each.total == first.total for each in best)
        return f"{listed([each.node for each in best[:equals]], 5)} are equally good"
    points = {
        name: score.weighted - (second.plugins[name].weighted if name in second.plugins else 0)
        for name, score in first.plugins.items()
    }
    gained = sorted(((by, name) for name, by in points.items() if by), key=lambda each: -abs(each[0]))
    parts = [f"{name} {by:+d}" for by, name in gained]
    why = f": {', '.join(parts)}" if parts else ""
    return f"{first.node} is ahead of {second.node} by {count(ahead, 'point')}{why}"
