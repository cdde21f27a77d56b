"""The constraints that apply to a pod: its own, or else the default ones; and the plugin's queueing hints."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from flotilla.events import Action as EventAction
from flotilla.events import Registration, Resource
from flotilla.objects import ClusterObjects, LabelSelector, LabelSelectorRequirement, Node, ObjectKind, Pod
from shared.config.args import PodTopologySpreadArgs
from shared.config.feature_gates import Feature, FeatureGates
from shared.model.objects import OwnerReference, TopologySpreadConstraint
from shared.model.selectors import label_selector_matches
from shared.model.wellknown import HOSTNAME, ZONE
from shared.plugins.base import is_placed

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
    """Constraints of one kind, hard or soft.

    `every_key`: nodes that lack one of their labels are left out. `compares`: tolerations may compare integers.
    """

    constraints: tuple[Constraint, ...]
    every_key: bool
    default_selector: LabelSelector | None = None
    compares: bool = False


class Defaults:
    """What applies to pods without constraints of their own."""

    def __init__(self, args: PodTopologySpreadArgs, gates: FeatureGates) -> None:
        self._label_keys = gates.enabled(Feature.SPREAD_BY_LABEL_KEYS)
        self._compares = gates.enabled(Feature.COMPARING_TOLERATIONS)
        self.built_in = args.defaulting_type == "System"
        self.constraints: Sequence[TopologySpreadConstraint] = BUILT_IN if self.built_in else args.default_constraints
        self.any_hard = any(each.when_unsatisfiable == "DoNotSchedule" for each in self.constraints)

    def apply_to(self, pod: Pod) -> bool:
        return bool(self.constraints) and not pod.spec.topology_spread_constraints

    def rules(self, pod: Pod, action: Action, selector: LabelSelector | None) -> Rules:
        """The constraints of this kind that apply to a pod; default ones get the selector."""
        own = pod.spec.topology_spread_constraints
        if own:
            resolved = (self._resolved(c, pod) for c in own if c.when_unsatisfiable == action)
            return Rules(tuple(resolved), True, compares=self._compares)
        given = [c for c in self.constraints if c.when_unsatisfiable == action]
        if not given or selector is None:
            return Rules((), True)
        constraints = tuple(_constraint(c, selector) for c in given)
        return Rules(constraints, not self.built_in, selector, self._compares)

    def _resolved(self, given: TopologySpreadConstraint, pod: Pod) -> Constraint:
        return _resolved(given, pod) if self._label_keys else _constraint(given, given.label_selector)


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


# The selector of default constraints: the pods of the pod's services and of the controller that owns it

_CONTROLLERS: Mapping[tuple[str, str], ObjectKind] = {
    ("v1", "ReplicationController"): ObjectKind.REPLICATION_CONTROLLER,
    ("apps/v1", "ReplicaSet"): ObjectKind.REPLICA_SET,
    ("apps/v1", "StatefulSet"): ObjectKind.STATEFUL_SET,
}


def controller_of(pod: Pod) -> OwnerReference | None:
    return next((owner for owner in pod.metadata.owner_references if owner.controller), None)


def default_selector_kinds(pod: Pod) -> tuple[ObjectKind, ...]:
    """The kinds of objects that `default_selector` reads for this pod."""
    owner = controller_of(pod)
    kind = None if owner is None else _CONTROLLERS.get((owner.api_version, owner.kind))
    return (ObjectKind.SERVICE,) if kind is None else (ObjectKind.SERVICE, kind)


def default_selector(pod: Pod, objects: ClusterObjects) -> LabelSelector | None:
    """The selectors of the pod's services and of its controller, all together; None if they select by nothing."""
    labels: dict[str, str] = {}
    for service in objects.services_in(pod.namespace).values():
        if service.spec.selector.items() <= pod.metadata.labels.items():
            labels |= service.spec.selector
    conditions: list[LabelSelectorRequirement] = []
    owner = controller_of(pod)
    kind = None if owner is None else _CONTROLLERS.get((owner.api_version, owner.kind))
    key = "" if owner is None else f"{pod.namespace}/{owner.name}"
    if kind is ObjectKind.REPLICATION_CONTROLLER:
        replication = objects.replication_controllers.get(key)
        labels |= {} if replication is None else replication.spec.selector
    elif kind is not None:
        sets = objects.replica_sets if kind is ObjectKind.REPLICA_SET else objects.stateful_sets
        selector = None if (owning := sets.get(key)) is None else owning.spec.selector
        if selector is not None:
            for label, value in sorted(selector.match_labels.items()):
                if labels.setdefault(label, value) != value:
                    conditions.append(LabelSelectorRequirement(key=label, operator="In", values=[value]))
            conditions += selector.match_expressions
    if not labels and not conditions:
        return None
    return LabelSelector(match_labels=dict(sorted(labels.items())), match_expressions=conditions)


# Queueing hints


def spreading_registrations(defaults: Defaults) -> tuple[Registration, ...]:
    """Of a profile with these defaults. Hints look only at hard constraints; there may be none."""

    def constraints_of(pod: Pod, objects: ClusterObjects) -> tuple[Constraint, ...]:
        """The default selector is looked up only where a default constraint may need it."""
        needed = defaults.apply_to(pod) and defaults.any_hard
        selector = default_selector(pod, objects) if needed else None
        return defaults.rules(pod, "DoNotSchedule", selector).constraints

    def after_pod_change(pod: Pod, before: Pod | None, now: Pod | None, objects: ClusterObjects) -> bool:
        """A counted pod came, went or changed its labels; or this pod may go to other nodes now."""
        if (now is not None and not _counts_for(pod, now)) or (before is not None and not _counts_for(pod, before)):
            return False
        constraints = constraints_of(pod, objects)
        if now is None or before is None:
            other = now or before
            return other is not None and any(constraint.matches(other.metadata.labels) for constraint in constraints)
        tolerates_otherwise = now.uid == pod.uid and before.spec.tolerations != now.spec.tolerations
        if tolerates_otherwise and any(constraint.honors_taints for constraint in constraints):
            return True
        old, new = before.metadata.labels, now.metadata.labels
        return old != new and any(constraint.matches(old) != constraint.matches(new) for constraint in constraints)

    def after_node_change(pod: Pod, before: Node | None, now: Node | None, objects: ClusterObjects) -> bool:
        """A node joined or left a domain, or has other taints."""
        constraints = constraints_of(pod, objects)
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

    of_pods = EventAction.ADD | EventAction.UPDATE_POD_LABEL | EventAction.UPDATE_POD_TOLERATION | EventAction.DELETE
    of_nodes = EventAction.ADD | EventAction.DELETE | EventAction.UPDATE_NODE_LABEL | EventAction.UPDATE_NODE_TAINT
    return (
        Registration(Resource.POD, of_pods, after_pod_change),
        Registration(Resource.NODE, of_nodes, after_node_change),
    )


def _counts_for(pod: Pod, other: Pod) -> bool:
    return other.uid == pod.uid or (other.namespace == pod.namespace and is_placed(other))


def _takes_part(node: Node, constraints: tuple[Constraint, ...]) -> bool:
    """Whether it is in a domain of every constraint; it is where there is none."""
    return all(constraint.key in node.metadata.labels for constraint in constraints)
