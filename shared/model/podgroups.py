"""Groups of pods that are placed together or not at all, as two APIs have them, and which group a pod belongs to.

`scheduling.k8s.io/v1alpha2`: the pod says spec.schedulingGroup.podGroupName, the group spec.schedulingPolicy.gang.
`scheduling.x-k8s.io/v1alpha1`, of the coscheduling plugin: the pod has a label, the group says spec.minMember.

One PodGroup reads both. Groups of equal names but of different APIs are different groups.
"""

from enum import StrEnum
from typing import NamedTuple

from msgspec import field

from shared.model.base import ApiStruct, Namespaced
from shared.model.pod import Pod

GROUP_LABEL = "scheduling.x-k8s.io/pod-group"
"""On pods: the name of their group of the coscheduling API. Empty is as good as none."""


class GroupApi(StrEnum):
    SCHEDULING = "scheduling.k8s.io/v1alpha2"
    COSCHEDULING = "scheduling.x-k8s.io/v1alpha1"

    __hash__ = str.__hash__  # a part of every group's name, and an Enum's own is slow


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
    """Without a gang (`basic`) every pod of the group is placed by itself."""

    gang: GangPolicy | None = None


class PodGroupSpec(ApiStruct, frozen=True, kw_only=True):
    """The first field is of `scheduling.k8s.io`, the others are of `scheduling.x-k8s.io`."""

    scheduling_policy: SchedulingPolicy | None = None
    min_member: int | None = None
    schedule_timeout_seconds: int | None = None


class PodGroup(Namespaced, frozen=True, kw_only=True):
    """A group of either API. Reading one fills `api_version`; an unknown one counts as `scheduling.k8s.io`."""

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
        """So many pods must find a place for any to be placed; 0 where each is placed by itself."""
        if self.api is GroupApi.COSCHEDULING:
            return max(self.spec.min_member or 0, 0)
        policy = self.spec.scheduling_policy
        return 0 if policy is None or policy.gang is None else max(policy.gang.min_count, 0)

    @property
    def timeout(self) -> float | None:
        """Seconds after which the owners of an incomplete group want to know; None where it does not say."""
        seconds = self.spec.schedule_timeout_seconds
        if self.api is not GroupApi.COSCHEDULING or seconds is None or seconds <= 0:
            return None
        return float(seconds)


def group_of(pod: Pod) -> GroupRef | None:
    """The group that the pod belongs to. The field counts before the label."""
    group = pod.spec.scheduling_group
    if group is not None and group.pod_group_name:
        return GroupRef(GroupApi.SCHEDULING, f"{pod.namespace}/{group.pod_group_name}")
    name = pod.metadata.labels.get(GROUP_LABEL)
    return GroupRef(GroupApi.COSCHEDULING, f"{pod.namespace}/{name}") if name else None
