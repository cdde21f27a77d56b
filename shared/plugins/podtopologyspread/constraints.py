"""The constraints that apply to a pod: its own, or else the default ones; and the plugin's queueing hints."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from flotilla.events import Action as EventAction
from flotilla.events import Registration, Resource
from flotilla.objects import ClusterObjects, LabelSelector, LabelSelectorRequirement, Node, ObjectKind, Pod
from shared.config.args import PodTopologySpreadArgs
from shared.model.objects import OwnerReference, TopologySpreadConstraint
from shared.model.selectors import label_selector_matches
from shared.model.wellknown import HOSTNAME, ZONE
from shared.plugins.queueing_hints import is_placed

Action = Literal["DoNotSchedule", "ScheduleAnyway"]

BUILT_IN = (
    TopologySpreadConstraint(max_skew=3, topology_key=HOSTNAME, when_unsatisfiable="ScheduleAnyway"),
    TopologySpreadConstraint(max_skew=5, topology_key=ZONE, when_unsatisfiable="ScheduleAnyway"),
)


@dataclass(frozen=True, slots=True)
class Constraint:
    """One constraint, with the selector that results from its label keys. `min_domains` is 1 where none is given."""

    key: str
    max_skew: int
    min_domains: int
    selector: LabelSelector | None
    honors_affinity: bool
    honors_taints: bool

    @property
    def is_of_hosts(self) -> bool:
        return self.key == HOSTNAME

    @property
    def counts(self) -> bool:
        """An empty selector matches every pod, and yet none is counted."""
        return self.selector is not None and bool(self.selector.match_labels or self.selector.match_expressions)

    def matches(self, labels: Mapping[str, str]) -> bool:
        return label_selector_matches(self.selector, labels)


@dataclass(frozen=True, slots=True)
class Rules:
    """Constraints of one kind, hard or soft. `every_key`: nodes that lack one of their labels are left out.

    `fellows`: the selector that default constraints were given.
    """

    constraints: tuple[Constraint, ...]
    every_key: bool
    fellows: LabelSelector | None = None


class Defaults:
    """What applies to pods without constraints of their own."""

    def __init__(self, args: PodTopologySpreadArgs) -> None:
        self.built_in = args.defaulting_type == "System"
        self.constraints: Sequence[TopologySpreadConstraint] = BUILT_IN if self.built_in else args.default_constraints
        self.any_hard = any(each.when_unsatisfiable == "DoNotSchedule" for each in self.constraints)

    def apply_to(self, pod: Pod) -> bool:
        return bool(self.constraints) and not pod.spec.topology_spread_constraints

    def rules(self, pod: Pod, action: Action, fellows: LabelSelector | None) -> Rules:
        """The constraints of this kind that are in force for a pod; `fellows` selects the pods that belong with it."""
        own = pod.spec.topology_spread_constraints
        if own:
            return Rules(tuple(_resolved(c, pod) for c in own if c.when_unsatisfiable == action), True)
        given = [c for c in self.constraints if c.when_unsatisfiable == action]
        if not given or fellows is None:
            return Rules((), True)
        return Rules(tuple(_constraint(c, fellows) for c in given), not self.built_in, fellows)


def _constraint(given: TopologySpreadConstraint, selector: LabelSelector | None) -> Constraint:
    return Constraint(
        given.topology_key,
        given.max_skew,
        given.min_domains or 1,
        selector,
        given.node_affinity_policy == "Honor",
        given.node_taints_policy == "Honor",
    )


def _resolved(given: TopologySpreadConstraint, pod: Pod) -> Constraint:
    """With the pod's own values of the label keys that are to match; where they are there already, nothing is added."""
    selector = given.label_selector
    if selector is None:
        return _constraint(given, None)
    labels = pod.metadata.labels
    added = [
        LabelSelectorRequirement(key=key, operator="In", values=[labels[key]])
        for key in given.match_label_keys
        if key in labels and selector.match_labels.get(key) != labels[key]
    ]
    if added:
        conditions = selector.match_expressions + [each for each in added if each not in selector.match_expressions]
        selector = LabelSelector(match_labels=selector.match_labels, match_expressions=conditions)
    return _constraint(given, selector)


# Which pods belong with a pod: those of its services and of the controller that owns it

_CONTROLLERS: Mapping[tuple[str, str], ObjectKind] = {
    ("v1", "ReplicationController"): ObjectKind.REPLICATION_CONTROLLER,
    ("apps/v1", "ReplicaSet"): ObjectKind.REPLICA_SET,
    ("apps/v1", "StatefulSet"): ObjectKind.STATEFUL_SET,
}


def controller_of(pod: Pod) -> OwnerReference | None:
    return next((owner for owner in pod.metadata.owner_references if owner.controller), None)


def kinds_looked_at(pod: Pod) -> tuple[ObjectKind, ...]:
    """The kinds of objects on which `fellows` rests for this pod."""
    owner = controller_of(pod)
    kind = None if owner is None else _CONTROLLERS.get((owner.api_version, owner.kind))
    return (ObjectKind.SERVICE,) if kind is None else (ObjectKind.SERVICE, kind)


def fellows(pod: Pod, objects: ClusterObjects) -> LabelSelector | None:
    """The selectors of the pod's services and of its controller, all together; None if they select by nothing."""
    labels: dict[str, str] = {}
    for service in objects.services_in(pod.namespace).values():
        if service.spec.selector.items() <= pod.metadata.labels.items():
            labels |= service.spec.selector
    conditions: list[LabelSelectorRequirement] = []
    owner = controller_of(pod)
    if owner is not None:
        key = f"{pod.namespace}/{owner.name}"
        match _CONTROLLERS.get((owner.api_version, owner.kind)):
            case ObjectKind.REPLICATION_CONTROLLER:
                replication = objects.replication_controllers.get(key)
                labels |= {} if replication is None else replication.spec.selector
            case ObjectKind.REPLICA_SET:
                replicas = objects.replica_sets.get(key)
                conditions = _add(labels, None if replicas is None else replicas.spec.selector)
            case ObjectKind.STATEFUL_SET:
                stateful = objects.stateful_sets.get(key)
                conditions = _add(labels, None if stateful is None else stateful.spec.selector)
    if not labels and not conditions:
        return None
    return LabelSelector(match_labels=dict(sorted(labels.items())), match_expressions=conditions)


def _add(labels: dict[str, str], selector: LabelSelector | None) -> list[LabelSelectorRequirement]:
    """Adds a selector's labels; what conflicts with those there, and its conditions, are returned."""
    if selector is None:
        return []
    conditions: list[LabelSelectorRequirement] = []
    for key, value in sorted(selector.match_labels.items()):
        if labels.setdefault(key, value) != value:
            conditions.append(LabelSelectorRequirement(key=key, operator="In", values=[value]))
    return conditions + selector.match_expressions


# Queueing hints


@dataclass(frozen=True, slots=True)
class SpreadingHints:
    """Of a profile, as it may have default constraints. Only hard constraints are looked at; there may be none."""

    defaults: Defaults

    def registrations(self) -> tuple[Registration, ...]:
        of_pods = (
            EventAction.ADD | EventAction.UPDATE_POD_LABEL | EventAction.UPDATE_POD_TOLERATION | EventAction.DELETE
        )
        of_nodes = EventAction.ADD | EventAction.DELETE | EventAction.UPDATE_NODE_LABEL | EventAction.UPDATE_NODE_TAINT
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

    def _constraints(self, pod: Pod, objects: ClusterObjects) -> tuple[Constraint, ...]:
        """Who belongs with the pod is looked up only where a default constraint may need it."""
        asked = self.defaults.apply_to(pod) and self.defaults.any_hard
        return self.defaults.rules(pod, "DoNotSchedule", fellows(pod, objects) if asked else None).constraints


def _counts_for(pod: Pod, other: Pod) -> bool:
    return other.uid == pod.uid or (other.namespace == pod.namespace and is_placed(other))


def _takes_part(node: Node, constraints: tuple[Constraint, ...]) -> bool:
    """Whether it is in a domain of every constraint; it is where there is none."""
    return all(constraint.key in node.metadata.labels for constraint in constraints)
