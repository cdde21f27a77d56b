"""Labels that a controller gives to each of its pods with another value, so that no two pods have equal labels.

Pods that differ in nothing else are of one class as long as nothing selects pods by these labels.
"""

from collections.abc import Iterable

from shared.model.affinity import LabelSelector
from shared.model.pod import Pod

INDIVIDUAL_LABELS = frozenset(
    {
        "batch.kubernetes.io/job-completion-index",
        "apps.kubernetes.io/pod-index",
        "statefulset.kubernetes.io/pod-name",
        "leaderworkerset.sigs.k8s.io/worker-index",
        "training.kubeflow.org/replica-index",
    }
)
NONE: frozenset[str] = frozenset()


def read_by_selector(selector: LabelSelector | None) -> frozenset[str]:
    """The individual labels by which it selects."""
    if selector is None:
        return NONE
    return _of((*selector.match_labels, *(each.key for each in selector.match_expressions)))


def read_by_pod(pod: Pod) -> frozenset[str]:
    """The individual labels by which the pod's affinity and spread constraints select pods."""
    read = NONE
    for constraint in pod.spec.topology_spread_constraints:
        read |= read_by_selector(constraint.label_selector) | _of(constraint.match_label_keys)
    affinity = pod.spec.affinity
    if affinity is None:
        return read
    for each in (affinity.pod_affinity, affinity.pod_anti_affinity):
        if each is None:
            continue
        for term in (*each.required, *(preferred.pod_affinity_term for preferred in each.preferred)):
            read |= read_by_selector(term.label_selector) | _of((*term.match_label_keys, *term.mismatch_label_keys))
    return read


def _of(keys: Iterable[str]) -> frozenset[str]:
    return INDIVIDUAL_LABELS.intersection(keys)
