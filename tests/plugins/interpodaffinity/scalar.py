"""(Anti-)affinity decided slowly: every pod against every pod, with counts in a plain dictionary."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from shared.model.objects import Node, Pod, PodAffinityTerm, WeightedPodAffinityTerm
from shared.model.selectors import label_selector_matches

Pair = tuple[str, str]
"""A topology key and a value."""

NOT_AFFINE = "node(s) didn't match pod affinity rules"
NOT_ANTI = "node(s) didn't match pod anti-affinity rules"
NOT_SYMMETRIC = "node(s) didn't satisfy existing pods anti-affinity rules"


@dataclass(frozen=True, slots=True)
class Cluster:
    """`namespaces`: the labels of those that are known."""

    nodes: tuple[Node, ...]
    pods: tuple[tuple[Pod, ...], ...]
    namespaces: Mapping[str, Mapping[str, str]]

    def with_pods(self, at: int, *more: Pod) -> "Cluster":
        return self._instead(at, (*self.pods[at], *more))

    def without_pods(self, at: int, *gone: Pod) -> "Cluster":
        left = list(self.pods[at])
        for pod in gone:
            left.remove(pod)
        return self._instead(at, tuple(left))

    def _instead(self, at: int, there: tuple[Pod, ...]) -> "Cluster":
        return replace(self, pods=(*self.pods[:at], there, *self.pods[at + 1 :]))

    def placed(self) -> Iterable[tuple[Pod, Node]]:
        return ((pod, node) for node, there in zip(self.nodes, self.pods, strict=True) for pod in there)


def affinity(pod: Pod) -> list[PodAffinityTerm]:
    there = pod.spec.affinity and pod.spec.affinity.pod_affinity
    return there.required if there else []


def anti(pod: Pod) -> list[PodAffinityTerm]:
    there = pod.spec.affinity and pod.spec.affinity.pod_anti_affinity
    return there.required if there else []


def wishes(pod: Pod) -> list[tuple[int, PodAffinityTerm]]:
    found: list[tuple[int, PodAffinityTerm]] = []
    if pod.spec.affinity is not None:
        near, far = pod.spec.affinity.pod_affinity, pod.spec.affinity.pod_anti_affinity
        plus: Sequence[WeightedPodAffinityTerm] = near.preferred if near else ()
        minus: Sequence[WeightedPodAffinityTerm] = far.preferred if far else ()
        found += [(each.weight, each.pod_affinity_term) for each in plus]
        found += [(-each.weight, each.pod_affinity_term) for each in minus]
    return found


def skips_filter(cluster: Cluster, pod: Pod) -> bool:
    return not affinity(pod) and not anti(pod) and not _shunned(cluster, pod)


def reason(cluster: Cluster, pod: Pod, at: int) -> str | None:
    """Why the pod does not fit on a node, if the plugin is asked at all."""
    labels = cluster.nodes[at].metadata.labels
    counts, own = _matching_all(cluster, pod), affinity(pod)
    if any(term.topology_key not in labels for term in own):
        return NOT_AFFINE
    if not all(counts[term.topology_key, labels[term.topology_key]] for term in own) and not (
        not counts and all(_chooses(cluster, pod, term, pod) for term in own)
    ):
        return NOT_AFFINE
    for other, node in cluster.placed():
        there = node.metadata.labels
        for term in anti(pod):
            if _chooses(cluster, pod, term, other) and _alike(term.topology_key, labels, there):
                return NOT_ANTI
    if any(labels.get(key) == value for key, value in _shunned(cluster, pod)):
        return NOT_SYMMETRIC
    return None


def contributions(cluster: Cluster, pod: Pod, hard_weight: int = 1, ignore: bool = False) -> list[tuple[Pair, int]]:
    """All that speaks for or against a domain."""
    if ignore and not wishes(pod):
        return []
    found: list[tuple[Pair, int]] = []
    for other, node in cluster.placed():
        labels = node.metadata.labels
        weighed = [(w, t) for w, t in wishes(pod) if _chooses(cluster, pod, t, other)]
        weighed += [(w, t) for w, t in wishes(other) if _is_chosen(cluster, other, t, pod)]
        weighed += [(hard_weight, t) for t in affinity(other) if hard_weight and _is_chosen(cluster, other, t, pod)]
        found += [((t.topology_key, labels[t.topology_key]), w) for w, t in weighed if t.topology_key in labels]
    return found


def score(cluster: Cluster, pod: Pod, at: int, hard_weight: int = 1, ignore: bool = False) -> int:
    labels = cluster.nodes[at].metadata.labels
    return sum(
        weight for (key, value), weight in contributions(cluster, pod, hard_weight, ignore) if labels.get(key) == value
    )


def _matching_all(cluster: Cluster, pod: Pod) -> Counter[Pair]:
    counts: Counter[Pair] = Counter()
    terms = affinity(pod)
    for other, node in cluster.placed():
        if terms and all(_chooses(cluster, pod, term, other) for term in terms):
            labels = node.metadata.labels
            counts.update((t.topology_key, labels[t.topology_key]) for t in terms if t.topology_key in labels)
    return counts


def _shunned(cluster: Cluster, pod: Pod) -> set[Pair]:
    """The domains that pods are in which do not want this one near."""
    return {
        (term.topology_key, node.metadata.labels[term.topology_key])
        for other, node in cluster.placed()
        for term in anti(other)
        if _is_chosen(cluster, other, term, pod) and term.topology_key in node.metadata.labels
    }


def _chooses(cluster: Cluster, owner: Pod, term: PodAffinityTerm, other: Pod) -> bool:
    """Does a term of the pod that is to be scheduled mean another pod? The namespaces are looked up beforehand."""
    names = set(term.namespaces)
    if term.namespace_selector is None:
        names |= {owner.namespace} if not names else set()
    elif label_selector_matches(term.namespace_selector, {}):
        names.add(other.namespace)
    else:
        known = cluster.namespaces.items()
        names |= {name for name, labels in known if label_selector_matches(term.namespace_selector, labels)}
    return other.namespace in names and label_selector_matches(term.label_selector, other.metadata.labels)


def _is_chosen(cluster: Cluster, owner: Pod, term: PodAffinityTerm, pod: Pod) -> bool:
    """Does a term of a placed pod mean the pod that is to be scheduled? Its namespace's labels are looked at."""
    names = set(term.namespaces)
    if term.namespace_selector is None and not names:
        names = {owner.namespace}
    labels = cluster.namespaces.get(pod.namespace, {})
    in_namespace = pod.namespace in names or label_selector_matches(term.namespace_selector, labels)
    return in_namespace and label_selector_matches(term.label_selector, pod.metadata.labels)


def _alike(key: str, labels: Mapping[str, str], others: Mapping[str, str]) -> bool:
    return key in labels and labels.get(key) == others.get(key)
