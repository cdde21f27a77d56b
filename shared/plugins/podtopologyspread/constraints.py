"""The constraints in force for a pod: its own, or else the default ones for the pods that belong with it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from shared.config.args import PodTopologySpreadArgs
from shared.model.objects import LabelSelector, LabelSelectorRequirement, Pod, TopologySpreadConstraint
from shared.model.selectors import label_selector_matches
from shared.model.wellknown import HOSTNAME, ZONE

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
