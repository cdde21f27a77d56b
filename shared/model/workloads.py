"""Objects that pods depend on: namespaces, controllers, disruption budgets, pod groups."""

from collections.abc import Collection
from enum import StrEnum
from typing import NamedTuple

from msgspec import field

from shared.model.affinity import LabelSelector
from shared.model.base import ApiStruct, ClusterWide, Integer, Namespaced
from shared.model.pod import Pod, PodCondition, PodResourceClaim


class Namespace(ClusterWide, frozen=True, kw_only=True):
    @property
    def labels(self) -> dict[str, str]:
        return self.metadata.labels


class MapSelectorSpec(ApiStruct, frozen=True, kw_only=True):
    """Labels that a pod must all have; without any, no pod matches."""

    selector: dict[str, str] = field(default_factory=dict)


class LabelSelectorSpec(ApiStruct, frozen=True, kw_only=True):
    selector: LabelSelector | None = None


class Service(Namespaced, frozen=True, kw_only=True):
    spec: MapSelectorSpec = field(default_factory=MapSelectorSpec)


class ReplicationController(Namespaced, frozen=True, kw_only=True):
    spec: MapSelectorSpec = field(default_factory=MapSelectorSpec)


class ReplicaSet(Namespaced, frozen=True, kw_only=True):
    spec: LabelSelectorSpec = field(default_factory=LabelSelectorSpec)


class StatefulSet(Namespaced, frozen=True, kw_only=True):
    spec: LabelSelectorSpec = field(default_factory=LabelSelectorSpec)


class PodDisruptionBudgetSpec(ApiStruct, frozen=True, kw_only=True):
    selector: LabelSelector | None = None


class PodDisruptionBudgetStatus(ApiStruct, frozen=True, kw_only=True):
    """The rest of the budget; `disrupted_pods`: by name, when their disruption was counted."""

    disruptions_allowed: int = 0
    disrupted_pods: dict[str, str] = field(default_factory=dict)


class PodDisruptionBudget(Namespaced, frozen=True, kw_only=True):
    spec: PodDisruptionBudgetSpec = field(default_factory=PodDisruptionBudgetSpec)
    status: PodDisruptionBudgetStatus = field(default_factory=PodDisruptionBudgetStatus)


# Groups of pods that are placed together or not at all, as two APIs have them:
# - `scheduling.k8s.io`: the pod says spec.schedulingGroup.podGroupName, the group spec.schedulingPolicy.gang. Its
#   versions differ in disruptionMode, a word in v1alpha2 and an object with one key since v1alpha3.
# - `scheduling.x-k8s.io/v1alpha1`, of the coscheduling plugin: the pod has a label, the group says spec.minMember.
# One PodGroup reads all of them. Groups of equal names but of different APIs are different groups.

GROUP_VERSIONS = ("v1beta1", "v1alpha3", "v1alpha2")
"""Of pod groups in scheduling.k8s.io, the newest first: v1.37 has the first two, v1.36 the last one alone."""
GROUP_LABEL = "scheduling.x-k8s.io/pod-group"
"""The pod label of the coscheduling API that names its group; empty counts as missing."""
REQUIRED_TOPOLOGY = "flotilla.io/required-topology"
"""A group's annotation: node labels, separated by commas, widest domain first. All its pods go to one domain each."""
PREFERRED_TOPOLOGY = "flotilla.io/preferred-topology"
"""As REQUIRED_TOPOLOGY, for domains that the group's pods should share if they can."""
MAX_TOPOLOGY_LEVELS = 8
"""Topology constraints of one group, required and preferred ones together."""


class GroupApi(StrEnum):
    """`SCHEDULING` stands for all versions of its API group: its value is part of messages of earlier releases."""

    SCHEDULING = "scheduling.k8s.io/v1alpha2"
    COSCHEDULING = "scheduling.x-k8s.io/v1alpha1"

    __hash__ = str.__hash__  # a part of every group's key, and Enum's own hash is slow


class GroupRef(NamedTuple):
    """Names a group. `key`: `namespace/name`."""

    api: GroupApi
    key: str

    @property
    def name(self) -> str:
        return self.key.partition("/")[2]

    def __str__(self) -> str:
        return f"{self.api.partition('/')[0]}/{self.key}"


class GangPolicy(ApiStruct, frozen=True, kw_only=True):
    """All of `min_count` pods are placed, or none."""

    min_count: int = 1


class SchedulingPolicy(ApiStruct, frozen=True, kw_only=True):
    """Without `gang` (`basic`) each pod of the group is scheduled by itself."""

    gang: GangPolicy | None = None


class TopologyConstraint(ApiStruct, frozen=True, kw_only=True):
    """The group's pods share one value of the node label `key`; if `preferred`, only where they can."""

    key: str
    preferred: bool = False


class SchedulingConstraints(ApiStruct, frozen=True, kw_only=True):
    topology: list[TopologyConstraint] = field(default_factory=list)


class Chosen(ApiStruct, frozen=True, kw_only=True):
    """A choice without parameters."""


class DisruptionMode(ApiStruct, frozen=True, kw_only=True):
    """How the pods of a group may be evicted: `all` of them together, or each by itself."""

    all: Chosen | None = None


class PodGroupSpec(ApiStruct, frozen=True, kw_only=True):
    """`min_member` and `schedule_timeout_seconds` are of `scheduling.x-k8s.io`, all others of `scheduling.k8s.io`."""

    parent_composite_pod_group_name: str | None = None
    scheduling_policy: SchedulingPolicy | None = None
    min_member: int | None = None
    schedule_timeout_seconds: int | None = None
    scheduling_constraints: SchedulingConstraints | None = None
    resource_claims: list[PodResourceClaim] = field(default_factory=list)
    disruption_mode: str | DisruptionMode | None = None
    priority_class_name: str = ""
    priority: Integer | None = None
    preemption_policy: str | None = None


SCHEDULED_CONDITIONS = frozenset({"PodGroupScheduled", "PodGroupInitiallyScheduled"})
"""The condition that tells whether a group was placed: of v1alpha2, and of later versions."""


class PodGroupStatus(ApiStruct, frozen=True, kw_only=True):
    conditions: list[PodCondition] = field(default_factory=list)


def condition_in(status: PodGroupStatus | None, types: Collection[str]) -> PodCondition | None:
    """The condition of one of these types."""
    conditions = () if status is None else status.conditions
    return next((each for each in conditions if each.type in types), None)


class InTree(ApiStruct, frozen=True, kw_only=True):
    """What the composite groups above a PodGroup mean for victims among its pods. The snapshot adds it to the group.

    `root`: the key of the highest one. `evicted_with`: the highest one whose pods are evicted all together, if there is
    one. `priority`: the root's, as of a PodGroup; its own if the root is not there.
    """

    root: str
    evicted_with: str = ""
    priority: Integer | None = None


class PodGroup(Namespaced, frozen=True, kw_only=True):
    """A group of either API. Decoding sets `api_version`; an unknown one counts as `scheduling.k8s.io`."""

    api_version: str = ""
    spec: PodGroupSpec = field(default_factory=PodGroupSpec)
    status: PodGroupStatus | None = None
    tree: InTree | None = None

    @property
    def api(self) -> GroupApi:
        coscheduling = GroupApi.COSCHEDULING
        return coscheduling if self.api_version == coscheduling else GroupApi.SCHEDULING

    @property
    def ref(self) -> GroupRef:
        return GroupRef(self.api, self.key)

    @property
    def parent(self) -> str:
        """The key of the composite group that it is one of; empty if it is in none."""
        name = self.spec.parent_composite_pod_group_name
        return f"{self.metadata.namespace}/{name}" if name and self.api is GroupApi.SCHEDULING else ""

    @property
    def least(self) -> int:
        """The pods that must find a node for any to be placed; 0 if each is scheduled by itself."""
        if self.api is GroupApi.COSCHEDULING:
            return max(self.spec.min_member or 0, 0)
        policy = self.spec.scheduling_policy
        return 0 if policy is None or policy.gang is None else max(policy.gang.min_count, 0)

    @property
    def timeout(self) -> float | None:
        """Seconds after which owners of an incomplete group get an Event; None if not set."""
        seconds = self.spec.schedule_timeout_seconds
        if self.api is not GroupApi.COSCHEDULING or seconds is None or seconds <= 0:
            return None
        return float(seconds)

    @property
    def topology(self) -> tuple[TopologyConstraint, ...]:
        """The constraints on its domains: required ones of specification and annotation, then the preferred ones."""
        constraints, annotations = self.spec.scheduling_constraints, self.metadata.annotations
        if constraints is None and not annotations:
            return ()
        of_spec = [] if constraints is None else [constraint.key for constraint in constraints.topology]
        required = dict.fromkeys((*of_spec, *_listed(annotations.get(REQUIRED_TOPOLOGY, ""))), False)
        preferred = dict.fromkeys(_listed(annotations.get(PREFERRED_TOPOLOGY, "")), True)
        levels = required | {key: True for key in preferred if key not in required}
        return tuple(TopologyConstraint(key=key, preferred=is_preferred) for key, is_preferred in levels.items())

    @property
    def priority(self) -> int | None:
        """Of all its pods, in place of their own; None if each has its own.

        The API server gives a group without a class priority 0, which says nothing of its pods.
        """
        return self.spec.priority if self.spec.priority or self.spec.priority_class_name else None

    @property
    def scheduled_condition(self) -> PodCondition | None:
        return condition_in(self.status, SCHEDULED_CONDITIONS)

    @property
    def never_preempts(self) -> bool:
        return self.spec.preemption_policy == "Never"

    @property
    def is_evicted_whole(self) -> bool:
        """Whether a victim among its pods makes victims of all of them."""
        return is_all(self.spec.disruption_mode)

    @property
    def evicted_with(self) -> str:
        """Names the group all of whose pods a victim among its pods makes victims; empty if each goes by itself."""
        above = "" if self.tree is None else self.tree.evicted_with
        return f"compositepodgroup/{above}" if above else self.key if self.is_evicted_whole else ""

    @property
    def priority_of_tree(self) -> int | None:
        """Of all its pods, in a tree as well; None if each has its own."""
        return self.priority if self.tree is None else self.tree.priority


def is_all(mode: str | DisruptionMode | None) -> bool:
    """Whether this disruption mode evicts all of a group together."""
    return mode.all is not None if isinstance(mode, DisruptionMode) else mode == "PodGroup"


def _listed(text: str) -> list[str]:
    return [name for part in text.split(",") if (name := part.strip())]


def group_of(pod: Pod) -> GroupRef | None:
    """The group of a pod; the field takes precedence over the label."""
    group = pod.spec.scheduling_group
    if group is not None and group.pod_group_name:
        return GroupRef(GroupApi.SCHEDULING, f"{pod.namespace}/{group.pod_group_name}")
    name = pod.metadata.labels.get(GROUP_LABEL)
    return GroupRef(GroupApi.COSCHEDULING, f"{pod.namespace}/{name}") if name else None
