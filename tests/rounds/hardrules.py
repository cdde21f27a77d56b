"""Hard topology rules, said as plainly as they can be: one pod, one node, and the pods that are placed already."""

from collections.abc import Iterator, Sequence

from shared.model.objects import Node, Pod, PodAffinityTerm
from shared.model.selectors import label_selector_matches

Placed = Sequence[tuple[Pod, Node]]


def admits(pod: Pod, node: Node, nodes: Sequence[Node], placed: Placed) -> bool:
    return (
        spread_admits(pod, node, nodes, placed)
        and affinity_admits(pod, node, placed)
        and not any(_meets(term, pod, node, other, there) for term in _anti(pod) for other, there in placed)
        and not any(_meets(term, other, there, pod, node) for other, there in placed for term in _anti(other))
        and _claims_are_free(pod, placed)
    )


def spread_admits(pod: Pod, node: Node, nodes: Sequence[Node], placed: Placed) -> bool:
    constraints = [c for c in pod.spec.topology_spread_constraints if c.when_unsatisfiable == "DoNotSchedule"]
    keys = [c.topology_key for c in constraints]
    if not all(key in node.metadata.labels for key in keys):
        return False
    wanted = pod.spec.node_selector.items()  # other nodes are no domains for it: nodeAffinityPolicy is Honor
    eligible = [
        each
        for each in nodes
        if all(key in each.metadata.labels for key in keys) and wanted <= each.metadata.labels.items()
    ]
    for constraint in constraints:
        key = constraint.topology_key
        counts = {each.metadata.labels[key]: 0 for each in eligible}
        for other, there in placed:
            matches = label_selector_matches(constraint.label_selector, other.metadata.labels)
            if matches and other.namespace == pod.namespace and there in eligible:
                counts[there.metadata.labels[key]] += 1
        fewest = 0 if len(counts) < (constraint.min_domains or 1) else min(counts.values())
        own = int(label_selector_matches(constraint.label_selector, pod.metadata.labels))
        if counts[node.metadata.labels[key]] + own - fewest > constraint.max_skew:
            return False
    return True


def affinity_admits(pod: Pod, node: Node, placed: Placed) -> bool:
    terms = list(_required(pod))
    if not terms:
        return True
    if not all(term.topology_key in node.metadata.labels for term in terms):
        return False
    friends = [(other, there) for other, there in placed if all(_selects(term, pod, other) for term in terms)]
    if all(any(_together(term, node, there) for _, there in friends) for term in terms):
        return True
    nowhere = not any(term.topology_key in there.metadata.labels for _, there in friends for term in terms)
    return nowhere and all(_selects(term, pod, pod) for term in terms)


def _claims_are_free(pod: Pod, placed: Placed) -> bool:
    """All claims here may be used by one pod only."""
    wanted = _claims(pod)
    return not any(wanted & _claims(other) for other, _ in placed)


def _claims(pod: Pod) -> set[tuple[str, str]]:
    sources = (volume.persistent_volume_claim for volume in pod.spec.volumes)
    return {(pod.namespace, source.claim_name) for source in sources if source is not None}


def _required(pod: Pod) -> Iterator[PodAffinityTerm]:
    affinity = pod.spec.affinity
    if affinity is not None and affinity.pod_affinity is not None:
        yield from affinity.pod_affinity.required


def _anti(pod: Pod) -> Iterator[PodAffinityTerm]:
    affinity = pod.spec.affinity
    if affinity is not None and affinity.pod_anti_affinity is not None:
        yield from affinity.pod_anti_affinity.required


def _selects(term: PodAffinityTerm, owner: Pod, other: Pod) -> bool:
    namespaces = term.namespaces or [owner.namespace]
    return other.namespace in namespaces and label_selector_matches(term.label_selector, other.metadata.labels)


def _together(term: PodAffinityTerm, one: Node, other: Node) -> bool:
    value = one.metadata.labels.get(term.topology_key)
    return value is not None and value == other.metadata.labels.get(term.topology_key)


def _meets(term: PodAffinityTerm, owner: Pod, where: Node, other: Pod, there: Node) -> bool:
    return _selects(term, owner, other) and _together(term, where, there)
