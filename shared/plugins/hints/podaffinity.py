"""When a pod that other pods' places, by its terms or by theirs, kept off nodes is worth another attempt.

Which namespaces a selector means is not looked up: it is held against no labels at all, so that it means all of them
or none.
"""

from collections.abc import Sequence

from flotilla.objects import ClusterObjects
from shared.model.objects import Node, Pod, PodAffinityTerm
from shared.model.selectors import label_selector_matches
from shared.plugins.hints.anypod import holds_place

_NO_LABELS: dict[str, str] = {}


def after_pod_change(pod: Pod, before: Pod | None, now: Pod | None, objects: ClusterObjects) -> bool:
    """A pod has come to be what this one wants near, or what keeps this one off is no more."""
    if now is not None and before is not None and now.uid == pod.uid:
        return True
    if (now is not None and not holds_place(now)) or (before is not None and not holds_place(before)):
        return False
    if now is None:
        return before is not None and (
            _means_all(pod, _anti_affinity(pod), before) or _means_all(before, _anti_affinity(before), pod)
        )
    near = _affinity(pod)
    if before is None:
        return _means_all(pod, near, now)
    if _means_all(pod, near, now) and not _means_all(pod, near, before):
        return True
    far = _anti_affinity(pod)
    return _means_all(pod, far, before) and not _means_all(pod, far, now)


def after_node_change(pod: Pod, before: Node | None, now: Node, objects: ClusterObjects) -> bool:
    """The node has joined a domain, or left one, by a label that the pod's terms speak of."""
    near, far = _affinity(pod), _anti_affinity(pod)
    labels = now.metadata.labels
    if before is None:
        return bool(far) or any(term.topology_key in labels for term in near)
    old = before.metadata.labels
    return any(
        term.topology_key in labels and labels[term.topology_key] != old.get(term.topology_key) for term in near
    ) or any(term.topology_key in old and old[term.topology_key] != labels.get(term.topology_key) for term in far)


def _affinity(pod: Pod) -> Sequence[PodAffinityTerm]:
    affinity = pod.spec.affinity
    return () if affinity is None or affinity.pod_affinity is None else affinity.pod_affinity.required


def _anti_affinity(pod: Pod) -> Sequence[PodAffinityTerm]:
    affinity = pod.spec.affinity
    return () if affinity is None or affinity.pod_anti_affinity is None else affinity.pod_anti_affinity.required


def _means_all(owner: Pod, terms: Sequence[PodAffinityTerm], other: Pod) -> bool:
    """Whether there are terms, and each of them means the other pod."""
    return bool(terms) and all(_means(owner, term, other) for term in terms)


def _means(owner: Pod, term: PodAffinityTerm, other: Pod) -> bool:
    if term.namespaces:
        named = other.namespace in term.namespaces
    else:
        named = term.namespace_selector is None and other.namespace == owner.namespace
    if not named and not label_selector_matches(term.namespace_selector, _NO_LABELS):
        return False
    return label_selector_matches(term.label_selector, other.metadata.labels)
