"""Objects that pods depend on: namespaces, controllers, disruption budgets, pod groups."""

from enum import StrEnum
from typing import NamedTuple

from msgspec import field

from shared.model.affinity import LabelSelector
from shared.model.base import ApiStruct, ClusterWide, Namespaced
from shared.model.pod import Pod


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
# - `scheduling.k8s.io/v1alpha2`: the pod says spec.schedulingGroup.podGroupName, the group spec.schedulingPolicy.gang.
# - `scheduling.x-k8s.io/v1alpha1`, of the coscheduling plugin: the pod has a label, the group says spec.minMember.
# One PodGroup reads both. Groups of equal names but of different APIs are different groups.

GROUP_LABEL = "scheduling.x-k8s.io/pod-group"
"""The pod label of the coscheduling API that names its group; empty counts as missing."""


class GroupApi(StrEnum):
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


class PodGroupSpec(ApiStruct, frozen=True, kw_only=True):
    """`scheduling_policy` is of `scheduling.k8s.io`, the other fields are of `scheduling.x-k8s.io`."""

    scheduling_policy: SchedulingPolicy | None = None
    min_member: int | None = None
    schedule_timeout_seconds: int | None = None


class PodGroup(Namespaced, frozen=True, kw_only=True):
    """A group of either API. Decoding sets `api_version`; an unknown one counts as `scheduling.k8s.io`."""

    api_version: str = ""
    spec: PodGroupSpec = field(default_factory=PodGroupSpec)

    @property
    def api(self) -> GroupApi:
        coscheduling = GroupApi.COSCHEDULING
        return coscheduling if self.api_version == coscheduling else GroupApi.SCHEDULING

    @property
    def ref(self) -> GroupRef:
        return GroupRef(self.api, self.key)

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


def group_of(pod: Pod) -> GroupRef | None:
    """The group of a pod; the field takes precedence over the label."""
    group = pod.spec.scheduling_group
    if group is not None and group.pod_group_name:
        return GroupRef(GroupApi.SCHEDULING, f"{pod.namespace}/{group.pod_group_name}")
    name = pod.metadata.labels.get(GROUP_LABEL)
    return GroupRef(GroupApi.COSCHEDULING, f"{pod.namespace}/{name}") if name else None
