"""Other pods in the way, or missing: host ports, spreading, affinity."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from shared.explain.changes.change import Change, leaving, with_spec
from shared.explain.words import domain, domain_counts, listed, selector_text
from shared.messages.explaining import Cause, NodeEdit, NodeFindings, Supposed, SupposedPod
from shared.model.affinity import Affinity, LabelSelector, PodAffinityTerm
from shared.model.pod import Container, Pod
from shared.model.wellknown import HOSTNAME

MAX_SKEWS = 3
"""Larger skews that are tried, one after the other, for a spread constraint."""


def ports(plugin: str, own: Sequence[Cause], findings: NodeFindings, pod: Pod) -> Iterator[Change]:
    for cause in own:
        port, _, protocol = cause.name.partition("/")
        old = int(port)
        for new in (old + 1, old + 1000, old - 1):
            if 0 < new < 65536:
                yield Change(
                    f"it used another host port than {cause.name}, such as {new}",
                    "host-port",
                    frozenset({plugin}),
                    partial(_with_port, old=old, new=new, protocol=protocol),
                    detail={"from": old, "to": new, "protocol": protocol},
                )
        yield from leaving(plugin, cause)


def _with_port(pod: Pod, old: int, new: int, protocol: str) -> Pod:
    def changed(container: Container) -> Container:
        ports = [
            replace(port, host_port=new, container_port=new if pod.spec.host_network else port.container_port)
            if port.host_port == old and (port.protocol or "TCP") == protocol
            else port
            for port in container.ports
        ]
        return replace(container, ports=ports)

    return with_spec(
        pod,
        containers=[changed(each) for each in pod.spec.containers],
        init_containers=[changed(each) for each in pod.spec.init_containers],
    )


def spreading(plugin: str, own: Sequence[Cause], findings: NodeFindings, pod: Pod) -> Iterator[Change]:
    constraints = pod.spec.topology_spread_constraints
    for i, constraint in enumerate(constraints):
        if constraint.when_unsatisfiable != "DoNotSchedule":
            continue
        key = domain(constraint.topology_key)
        counts = next((c.values for c in own if c.name == constraint.topology_key), {})
        for model in findings.models[:1]:
            for emptiest in list(counts)[:1]:
                labels = {constraint.topology_key: emptiest}
                yield Change(
                    f"there were one more node like {model.node} in {key} {emptiest} "
                    f"(pods by {key}: {domain_counts(counts)})",
                    "add-node",
                    frozenset({plugin}),
                    supposed=Supposed((NodeEdit(model.node, copy=True, labels=labels),)),
                    detail={"like": model.node, "labels": labels},
                )
        for more in range(1, MAX_SKEWS + 1):
            skew = constraint.max_skew + more
            yield Change(
                f"its maxSkew over {key} were {skew} instead of {constraint.max_skew}",
                "max-skew",
                frozenset({plugin}),
                partial(_with_constraint, i=i, max_skew=skew),
                detail={"topologyKey": constraint.topology_key, "maxSkew": skew},
            )
        yield Change(
            f"its spreading over {key} were only preferred (whenUnsatisfiable: ScheduleAnyway)",
            "spread-softly",
            frozenset({plugin}),
            partial(_with_constraint, i=i, when_unsatisfiable="ScheduleAnyway"),
            detail={"topologyKey": constraint.topology_key},
        )
    for cause in own:
        for node in cause.examples[:1]:
            missing = {c.topology_key: "new" for c in constraints if c.topology_key == cause.name}
            if missing and not cause.values:
                yield Change(
                    f"node {node} had the label {cause.name}",
                    "label-node",
                    frozenset({plugin}),
                    supposed=Supposed((NodeEdit(node, labels=missing),)),
                    detail={"node": node, "labels": missing},
                )


def _with_constraint(pod: Pod, i: int, **fields: Any) -> Pod:
    constraints = list(pod.spec.topology_spread_constraints)
    constraints[i] = replace(constraints[i], **fields)
    return with_spec(pod, topology_spread_constraints=constraints)


def affinity(plugin: str, own: Sequence[Cause], findings: NodeFindings, pod: Pod) -> Iterator[Change]:
    affinity = pod.spec.affinity or Affinity()
    what = {cause.what for cause in own}
    if "affinity" in what and affinity.pod_affinity is not None:
        yield from _company(plugin, affinity.pod_affinity.required, findings, pod)
    for side, side_field, word in (
        ("affinity", "pod_affinity", "it did not have to be near"),
        ("anti-affinity", "pod_anti_affinity", "it did not have to avoid"),
    ):
        terms = getattr(affinity, side_field)
        if side not in what or terms is None:
            continue
        for i, term in enumerate(terms.required):
            labels, key = selector_text(term.label_selector), domain(term.topology_key)
            yield Change(
                f"{word} pods with {labels} in its {key}",
                f"pod-{side}",
                frozenset({plugin}),
                partial(_without_term, side=side_field, i=i),
                detail={"topologyKey": term.topology_key, "term": i},
            )
    yield from _elsewhere(plugin, own, findings, affinity)
    for cause in own:
        yield from leaving(plugin, cause)


def _company(plugin: str, terms: Sequence[PodAffinityTerm], findings: NodeFindings, pod: Pod) -> Iterator[Change]:
    """A pod that it wants to be with runs on a node that accepts it otherwise. One pod has to match all terms."""
    alone = [node for blocked in findings.blocked if blocked.plugins == (plugin,) for node in blocked.examples]
    labels: dict[str, str] = {}
    for term in terms:
        if term.label_selector is not None:
            labels |= matching_labels(term.label_selector)
    namespace = next((name for term in terms for name in term.namespaces), pod.namespace)
    within = "" if namespace == pod.namespace else f" of namespace {namespace}"
    shown = ", ".join(f"{key}={value}" for key, value in labels.items())
    for node in alone:
        yield Change(
            f"a pod with {shown}{within} ran on node {node}",
            "add-pod",
            frozenset({plugin}),
            supposed=Supposed(pods=(SupposedPod(node, namespace, labels),)),
            detail={"labels": labels, "namespace": namespace, "node": node},
        )


def matching_labels(selector: LabelSelector) -> dict[str, str]:
    """Labels with which a pod matches, unless the selector contradicts itself."""
    labels = {each.key: each.values[0] for each in selector.match_expressions if each.operator == "In"}
    labels |= {each.key: "true" for each in selector.match_expressions if each.operator == "Exists"}
    return labels | selector.match_labels


def _elsewhere(plugin: str, own: Sequence[Cause], findings: NodeFindings, affinity: Affinity) -> Iterator[Change]:
    """A node in a domain of its own, where there is no pod to avoid. Every new node is one if domains are nodes."""
    terms = () if affinity.pod_anti_affinity is None else affinity.pod_anti_affinity.required
    keys = dict.fromkeys(term.topology_key for term in terms if term.topology_key != HOSTNAME)
    if not keys or not any(cause.what == "anti-affinity" for cause in own):
        return
    words = listed([domain(key) for key in keys])
    for model in findings.models[:1]:
        yield Change(
            f"there were a node like {model.node} in a {words} of its own",
            "add-node",
            frozenset({plugin}),
            supposed=Supposed((NodeEdit(model.node, copy=True, labels=dict.fromkeys(keys, "new")),)),
            detail={"like": model.node, "labels": dict.fromkeys(keys, "new")},
        )


def _without_term(pod: Pod, side: str, i: int) -> Pod:
    affinity = pod.spec.affinity or Affinity()
    terms = getattr(affinity, side)
    left = replace(terms, required=[term for j, term in enumerate(terms.required) if j != i])
    return with_spec(pod, affinity=replace(affinity, **{side: left}))
