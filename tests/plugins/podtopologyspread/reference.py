"""Spreading judged slowly, one node at a time, over plain lists: what the columns are held against."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from shared.model.affinity import is_tolerated
from shared.model.objects import LabelSelector, Node, Pod, TopologySpreadConstraint
from shared.model.selectors import label_selector_matches, required_node_affinity_matches

HOSTNAME = "kubernetes.io/hostname"
FITS, SKEWED, NO_LABEL = "fits", "skewed", "no label"


@dataclass(frozen=True)
class Host:
    """A node with its pods. `added` and `removed`: those hypothetical on it, or gone from it."""

    node: Node
    pods: Sequence[Pod] = ()
    added: Sequence[Pod] = ()
    removed: Sequence[Pod] = ()
    labels: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", self.node.metadata.labels)


def selector_matches(pod: Pod, constraint: TopologySpreadConstraint, labels: Mapping[str, str]) -> bool:
    if constraint.label_selector is None:
        return False
    keys = {key: pod.metadata.labels[key] for key in constraint.match_label_keys if key in pod.metadata.labels}
    return keys.items() <= labels.items() and label_selector_matches(constraint.label_selector, labels)


def is_empty(pod: Pod, constraint: TopologySpreadConstraint) -> bool:
    selector = constraint.label_selector
    keys = [key for key in constraint.match_label_keys if key in pod.metadata.labels]
    return selector == LabelSelector() and not keys


def count(pod: Pod, constraint: TopologySpreadConstraint, host: Host) -> int:
    if is_empty(pod, constraint):
        return 0
    return sum(
        other.namespace == pod.namespace
        and other.metadata.deletion_timestamp is None
        and selector_matches(pod, constraint, other.metadata.labels)
        for other in host.pods
    )


def takes_part(pod: Pod, constraint: TopologySpreadConstraint, node: Node) -> bool:
    if constraint.node_affinity_policy == "Honor" and not required_node_affinity_matches(pod, node):
        return False
    repelled = any(
        t.effect in ("NoSchedule", "NoExecute") and not is_tolerated(t, pod.spec.tolerations) for t in node.spec.taints
    )
    return not (constraint.node_taints_policy == "Honor" and repelled)


def has_all(constraints: Iterable[TopologySpreadConstraint], host: Host) -> bool:
    return all(constraint.topology_key in host.labels for constraint in constraints)


def verdict(pod: Pod, constraints: Sequence[TopologySpreadConstraint], hosts: Sequence[Host], host: Host) -> str:
    for constraint in constraints:
        value = host.labels.get(constraint.topology_key)
        if value is None:
            return NO_LABEL
        domains: dict[str, int] = {}
        for other in hosts:
            if has_all(constraints, other) and takes_part(pod, constraint, other.node):
                domain = other.labels[constraint.topology_key]
                domains[domain] = domains.get(domain, 0) + count(pod, constraint, other)
        if has_all(constraints, host) and takes_part(pod, constraint, host.node):
            for change, hypothetical in ((1, host.added), (-1, host.removed)):
                for each in hypothetical:
                    if each.namespace == pod.namespace and selector_matches(pod, constraint, each.metadata.labels):
                        domains[value] += change
        lowest = min(domains.values()) if len(domains) >= (constraint.min_domains or 1) else 0
        own = int(selector_matches(pod, constraint, pod.metadata.labels))
        if domains.get(value, 0) + own - lowest > constraint.max_skew:
            return SKEWED
    return FITS


def scores(
    pod: Pod,
    constraints: Sequence[TopologySpreadConstraint],
    hosts: Sequence[Host],
    feasible: Sequence[Host],
    *,
    every_key: bool,
) -> dict[str, int]:
    """From 0 to 100, for the feasible nodes."""
    ignored = [host for host in feasible if every_key and not has_all(constraints, host)]
    scored = [host for host in feasible if host not in ignored]
    domains: list[dict[str, int]] = []
    weights: list[float] = []
    for constraint in constraints:
        key = constraint.topology_key
        counts = {host.labels.get(key, ""): 0 for host in scored}
        for host in hosts:
            domain = host.labels.get(key, "")
            if every_key and not has_all(constraints, host):
                continue
            if domain in counts and takes_part(pod, constraint, host.node):
                counts[domain] += count(pod, constraint, host)
        domains.append(counts)
        weights.append(math.log((len(scored) if key == HOSTNAME else len(counts)) + 2))
    raw: dict[str, int] = {}
    for host in scored:
        total = 0.0
        for constraint, counts, weight in zip(constraints, domains, weights, strict=True):
            key = constraint.topology_key
            if key in host.labels:
                pods = count(pod, constraint, host) if key == HOSTNAME else counts[host.labels[key]]
                total += pods * weight + (constraint.max_skew - 1)
        raw[host.node.name] = math.floor(total + 0.5)
    most, least = max(raw.values(), default=0), min(raw.values(), default=0)
    normal = {name: 100 * (most + least - score) // most if most else 100 for name, score in raw.items()}
    return {host.node.name: 0 for host in ignored} | normal
