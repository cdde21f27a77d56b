"""When a pod that matched no node by its affinity or node selector is worth another attempt."""

from flotilla.objects import ClusterObjects
from shared.errors import InvalidObject
from shared.model.objects import Node, NodeSelector, Pod
from shared.model.selectors import node_selector_matches, node_selector_term_matches, unparsable

_FIELD = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"


def after_node_change(added: NodeSelector | None, pod: Pod, before: Node | None, now: Node, _: ClusterObjects) -> bool:
    """The node matches the pod and did not before.

    `added` is what the profile asks of nodes for every pod: of that it only matters whether the node has it now.
    """
    if added is not None and not node_selector_matches(added, now.metadata.labels, now.name):
        return False
    return _matches(pod, now) and (before is None or not _matches(pod, before))


def _matches(pod: Pod, node: Node) -> bool:
    """Raises InvalidObject where no term matches and one of them cannot be read."""
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in pod.spec.node_selector.items()):
        return False
    affinity = pod.spec.affinity
    required = None if affinity is None or affinity.node_affinity is None else affinity.node_affinity.required
    if required is None:
        return True
    terms = required.node_selector_terms
    if any(node_selector_term_matches(term, labels, node.name) for term in terms):
        return True
    for index, term in enumerate(terms):
        fault = unparsable(term)
        if fault is not None:
            raise InvalidObject("Pod", pod.key, f"{_FIELD}.nodeSelectorTerms[{index}]", fault)
    return False
