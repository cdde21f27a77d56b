"""What nodes are: taints, cordons and labels."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from shared.explain.changes.change import Change, with_spec
from shared.messages.explaining import Cause, NodeEdit, NodeFindings, Supposed
from shared.model.affinity import Affinity, Toleration
from shared.model.pod import Pod
from shared.model.wellknown import HOSTNAME


def taints(plugin: str, own: Sequence[Cause], findings: NodeFindings, pod: Pod) -> Iterator[Change]:
    for cause in own:
        added = [_toleration(text) for text in cause.name.split(", ")]
        word = "taint" if len(added) == 1 else "taints"
        yield Change(
            f"it tolerated the {word} {cause.name}",
            "tolerate",
            frozenset({plugin}),
            partial(_tolerating, added=added),
            detail={"tolerations": [_plain(each) for each in added]},
        )


def _tolerating(pod: Pod, added: Sequence[Toleration]) -> Pod:
    return with_spec(pod, tolerations=[*pod.spec.tolerations, *added])


def _toleration(text: str) -> Toleration:
    taint, _, effect = text.rpartition(":")
    key, _, value = taint.partition("=")
    return Toleration(key=key, operator="Equal", value=value, effect=effect)


def _plain(toleration: Toleration) -> dict[str, str]:
    return {"key": toleration.key, "operator": "Equal", "value": toleration.value, "effect": toleration.effect}


def cordons(plugin: str, own: Sequence[Cause], findings: NodeFindings, pod: Pod) -> Iterator[Change]:
    alone = [
        b.examples for b in findings.blocked if set(b.plugins) <= {plugin, "TaintToleration"} and plugin in b.plugins
    ]
    for node in [node for examples in alone for node in examples][:1] or [c.examples[0] for c in own if c.examples]:
        yield Change(
            f"node {node} were uncordoned",
            "uncordon",
            frozenset({plugin, "TaintToleration"}),
            supposed=Supposed((NodeEdit(node, schedulable=True),)),
            detail={"node": node},
        )


def selection(plugin: str, own: Sequence[Cause], findings: NodeFindings, pod: Pod) -> Iterator[Change]:
    """A node gets the labels that it lacks, or the pod does not ask for them."""
    alone = [node for blocked in findings.blocked if blocked.plugins == (plugin,) for node in blocked.examples]
    wanted = labels_wanted(pod)
    for node in alone or [cause.examples[0] for cause in own]:
        there = next((cause.values for cause in own if node in cause.examples), {})
        lacking = {key: value for key, value in wanted.items() if there.get(key) != value}
        if lacking and HOSTNAME not in lacking:
            labels = ", ".join(f"{key}={value}" for key, value in lacking.items())
            yield Change(
                f"node {node} had the label{'s' if len(lacking) > 1 else ''} {labels}",
                "label-node",
                frozenset({plugin}),
                supposed=Supposed((NodeEdit(node, labels=lacking),)),
                detail={"node": node, "labels": lacking},
            )
    for cause in own:
        dropped = {key: value for key, value in pod.spec.node_selector.items() if cause.values.get(key) != value}
        if dropped:
            selector = ", ".join(f"{key}={value}" for key, value in dropped.items())
            yield Change(
                f"its node selector did not ask for {selector}",
                "node-selector",
                frozenset({plugin}),
                partial(_without_selector, dropped=dropped),
                detail={"drop": sorted(dropped)},
            )
    if _required_terms(pod):
        text = "it did not require its node affinity"
        yield Change(text, "node-affinity", frozenset({plugin}), _without_node_affinity)
    if _required_terms(pod) and pod.spec.node_selector:
        yield Change(
            "it had neither its node selector nor its required node affinity",
            "node-affinity",
            frozenset({plugin}),
            lambda given: _without_selector(_without_node_affinity(given), given.spec.node_selector),
        )


def labels_wanted(pod: Pod) -> dict[str, str]:
    """Labels with which a node would match the pod's selector and the first term of its required affinity."""
    wanted = dict(pod.spec.node_selector)
    for term in _required_terms(pod)[:1]:
        for each in term.match_expressions:
            if each.operator == "In" and each.key not in wanted:
                wanted[each.key] = each.values[0]
            elif each.operator == "Exists":
                wanted.setdefault(each.key, "true")
            elif each.operator == "Gt" and each.values[0].lstrip("-").isdigit():
                wanted.setdefault(each.key, str(int(each.values[0]) + 1))
            elif each.operator == "Lt" and each.values[0].lstrip("-").isdigit():
                wanted.setdefault(each.key, str(int(each.values[0]) - 1))
    return wanted


def _required_terms(pod: Pod) -> list[Any]:
    affinity = pod.spec.affinity
    node_affinity = None if affinity is None else affinity.node_affinity
    required = None if node_affinity is None else node_affinity.required
    return [] if required is None else required.node_selector_terms


def _without_selector(pod: Pod, dropped: Mapping[str, str]) -> Pod:
    return with_spec(pod, node_selector={k: v for k, v in pod.spec.node_selector.items() if k not in dropped})


def _without_node_affinity(pod: Pod) -> Pod:
    affinity = pod.spec.affinity or Affinity()
    return with_spec(pod, affinity=replace(affinity, node_affinity=None))
