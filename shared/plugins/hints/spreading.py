"""When a pod is worth another attempt that no node could take without spreading pods too unevenly."""

from dataclasses import dataclass

from flotilla.events import Action, Registration, Resource
from flotilla.objects import ClusterObjects
from shared.model.objects import Node, Pod
from shared.plugins.hints.anypod import holds_place
from shared.plugins.podtopologyspread.constraints import Constraint, Defaults
from shared.plugins.podtopologyspread.owners import fellows

Constraints = tuple[Constraint, ...]


@dataclass(frozen=True, slots=True)
class SpreadingHints:
    """Of a profile, as it may have default constraints. Only hard constraints are looked at; there may be none."""

    defaults: Defaults

    def registrations(self) -> tuple[Registration, ...]:
        of_pods = Action.ADD | Action.UPDATE_POD_LABEL | Action.UPDATE_POD_TOLERATION | Action.DELETE
        of_nodes = Action.ADD | Action.DELETE | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_TAINT
        return (
            Registration(Resource.POD, of_pods, self.after_pod_change),
            Registration(Resource.NODE, of_nodes, self.after_node_change),
        )

    def after_pod_change(self, pod: Pod, before: Pod | None, now: Pod | None, objects: ClusterObjects) -> bool:
        """A pod that counts has come or gone, or counts otherwise now; or this one may go to other nodes now."""
        if (now is not None and not _counts_for(pod, now)) or (before is not None and not _counts_for(pod, before)):
            return False
        if now is not None and before is not None:
            return self._after_update(pod, before, now, objects)
        other = now or before
        return other is not None and any(
            constraint.matches(other.metadata.labels) for constraint in self._constraints(pod, objects)
        )

    def after_node_change(self, pod: Pod, before: Node | None, now: Node | None, objects: ClusterObjects) -> bool:
        """A node has come to be in a domain, or in another one, or is no more, or has other taints."""
        constraints = self._constraints(pod, objects)
        if before is None or now is None:
            node = now or before
            return node is not None and _takes_part(node, constraints)
        took, takes = _takes_part(before, constraints), _takes_part(now, constraints)
        if took != takes:
            return True
        old, new = before.metadata.labels, now.metadata.labels
        return takes and (
            before.spec.taints != now.spec.taints or any(old.get(each.key) != new.get(each.key) for each in constraints)
        )

    def _after_update(self, pod: Pod, before: Pod, now: Pod, objects: ClusterObjects) -> bool:
        constraints = self._constraints(pod, objects)
        tolerates_otherwise = now.uid == pod.uid and before.spec.tolerations != now.spec.tolerations
        if tolerates_otherwise and any(constraint.honors_taints for constraint in constraints):
            return True
        old, new = before.metadata.labels, now.metadata.labels
        return old != new and any(constraint.matches(old) != constraint.matches(new) for constraint in constraints)

    def _constraints(self, pod: Pod, objects: ClusterObjects) -> Constraints:
        """Who belongs with the pod is looked up only where a default constraint may need it."""
        asked = self.defaults.apply_to(pod) and self.defaults.any_hard
        return self.defaults.rules(pod, "DoNotSchedule", fellows(pod, objects) if asked else None).constraints


def _counts_for(pod: Pod, other: Pod) -> bool:
    return other.uid == pod.uid or (other.namespace == pod.namespace and holds_place(other))


def _takes_part(node: Node, constraints: Constraints) -> bool:
    """Whether it is in a domain of every constraint; it is where there is none."""
    return all(constraint.key in node.metadata.labels for constraint in constraints)
