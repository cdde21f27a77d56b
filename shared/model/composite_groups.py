"""Composite pod groups of `scheduling.k8s.io/v1alpha3`: groups of pod groups, up to four levels with these."""

from msgspec import field

from shared.model.base import ApiStruct, Integer, Namespaced
from shared.model.pod import PodCondition
from shared.model.workloads import (
    DisruptionMode,
    PodGroupStatus,
    SchedulingConstraints,
    TopologyConstraint,
    condition_in,
    is_all,
)

MAX_LEVELS = 4
"""Groups on the way from a root down to its pods."""
COMPOSITE_CONDITION = "CompositePodGroupInitiallyScheduled"


class CompositeGangPolicy(ApiStruct, frozen=True, kw_only=True):
    """`min_group_count` of its groups are placed together, or none."""

    min_group_count: int = 1


class CompositeSchedulingPolicy(ApiStruct, frozen=True, kw_only=True):
    """Without `gang` (`basic`) each group is placed by itself."""

    gang: CompositeGangPolicy | None = None


class CompositePodGroupSpec(ApiStruct, frozen=True, kw_only=True):
    parent_composite_pod_group_name: str | None = None
    scheduling_policy: CompositeSchedulingPolicy = field(default_factory=CompositeSchedulingPolicy)
    scheduling_constraints: SchedulingConstraints | None = None
    disruption_mode: DisruptionMode | None = None
    priority_class_name: str = ""
    priority: Integer | None = None
    preemption_policy: str | None = None


class CompositePodGroup(Namespaced, frozen=True, kw_only=True):
    spec: CompositePodGroupSpec = field(default_factory=CompositePodGroupSpec)
    status: PodGroupStatus | None = None

    @property
    def parent(self) -> str:
        """The key of the group above it; empty for a root."""
        name = self.spec.parent_composite_pod_group_name
        return f"{self.metadata.namespace}/{name}" if name else ""

    @property
    def least(self) -> int:
        """The groups that must be placed for it to count as placed."""
        gang = self.spec.scheduling_policy.gang
        return 1 if gang is None else max(gang.min_group_count, 1)

    @property
    def topology(self) -> tuple[TopologyConstraint, ...]:
        constraints = self.spec.scheduling_constraints
        return () if constraints is None else tuple(constraints.topology)

    @property
    def priority(self) -> int | None:
        """Of a root: of all pods below it, in place of their own; None if each has its own."""
        return self.spec.priority if self.spec.priority or self.spec.priority_class_name else None

    @property
    def never_preempts(self) -> bool:
        return self.spec.preemption_policy == "Never"

    @property
    def is_evicted_whole(self) -> bool:
        """Whether a victim among the pods below it makes victims of all of them. Modes of its groups do not matter."""
        return is_all(self.spec.disruption_mode)

    @property
    def scheduled_condition(self) -> PodCondition | None:
        return condition_in(self.status, (COMPOSITE_CONDITION,))
