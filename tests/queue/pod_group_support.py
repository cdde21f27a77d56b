"""Members of gangs in a queue that the test drives."""

from typing import Any

from flotilla.results import Status
from services.queue.scheduling.gang_plugins import GANG_PLUGINS
from services.queue.scheduling.nominator import Nominator
from services.queue.scheduling.pod_groups import PodGroups
from services.queue.scheduling.queued_pod_info import PodState, QueuedPodInfo
from shared.framework.loading import load_frameworks
from shared.model.objects import GROUP_LABEL, GroupApi, GroupRef, ObjectKind, PodGroup, object_from, pod_from

FRAMEWORK = load_frameworks(None)["default-scheduler"]
OURS, THEIRS = GroupRef(GroupApi.SCHEDULING, "default/g"), GroupRef(GroupApi.COSCHEDULING, "default/g")
SHUT = "SchedulingGates"
READY = frozenset({PodState.ACTIVE, PodState.BACKOFF, PodState.ERROR_BACKOFF, PodState.UNSCHEDULABLE})


def a_group(least: int | None, timeout: int | None = None, ref: GroupRef = OURS) -> PodGroup:
    """`least` None: no minimum."""
    spec: dict[str, Any] = {"minMember": least, "scheduleTimeoutSeconds": timeout}
    kind = ObjectKind.COSCHEDULING_POD_GROUP
    if ref.api is GroupApi.SCHEDULING:
        spec = {"schedulingPolicy": {"basic": {}} if least is None else {"gang": {"minCount": least}}}
        kind = ObjectKind.POD_GROUP
    group = object_from(kind, {"metadata": {"name": ref.name}, "spec": spec})
    assert isinstance(group, PodGroup)
    return group


def a_pod_info(name: str, ref: GroupRef | None = OURS, priority: int = 0, seen_at: float = 0.0) -> QueuedPodInfo:
    labels = {GROUP_LABEL: ref.name} if ref is not None and ref.api is GroupApi.COSCHEDULING else {}
    group = {"podGroupName": ref.name} if ref is not None and ref.api is GroupApi.SCHEDULING else None
    spec = {"schedulingGroup": group, "priority": priority}
    pod = pod_from({"metadata": {"name": name, "uid": name, "labels": labels}, "spec": spec})
    return QueuedPodInfo(name, pod, FRAMEWORK, seen_at)


class GroupQueue:
    """Uses PodGroups as the scheduling queue does; pods are popped in the order in which they became active."""

    def __init__(self) -> None:
        self.groups = PodGroups()
        self.nominator = Nominator()
        self.pods: dict[str, QueuedPodInfo] = {}
        self.active: list[QueuedPodInfo] = []
        self.now = 0.0

    def add(self, *names: str, ref: GroupRef | None = OURS, shut: bool = False, priority: int = 0) -> None:
        for name in names:
            info = self.pods[name] = a_pod_info(name, ref, priority, self.now)
            if shut:
                self.put(info, PodState.GATED, SHUT)
            else:
                self.queue(info)

    def queue(self, info: QueuedPodInfo, state: PodState = PodState.ACTIVE) -> None:
        status = self.groups.pre_enqueue(info)
        self.put(info, state if status.ok else PodState.GATED, status.plugin)

    def put(self, info: QueuedPodInfo, state: PodState, gate: str = "") -> None:
        self._put(info, state, gate)
        self.settle()

    def _put(self, info: QueuedPodInfo, state: PodState, gate: str = "") -> None:
        """Ready members of a gang go along."""
        gang = self.groups.gang_of(info) if state in READY else None
        if gang is None:
            self._set(info, state, gate)
            return
        gang.state = gang.sooner(state)
        for each in (info, *(each for each in gang.pods.values() if each is not info)):
            self._set(each, gang.state, gate)

    def _set(self, info: QueuedPodInfo, state: PodState, gate: str) -> None:
        if (info in self.active) is not (state is PodState.ACTIVE):
            self.active.append(info) if state is PodState.ACTIVE else self.active.remove(info)
        info.state, info.gating_plugin = state, gate if state is PodState.GATED else None
        self.groups.moved(info, self.now)

    def settle(self) -> None:
        while (misplaced := self.groups.misplaced()) or (released := self.groups.released()):
            for info in misplaced:
                self._put(info, info.state)
            for info in [] if misplaced else released:
                self.queue(info)
        self.groups.validate()

    def see(self, least: int | None, timeout: int | None = None, ref: GroupRef = OURS) -> None:
        self.groups.set_group(a_group(least, timeout, ref))
        self.settle()

    def take(self) -> tuple[list[str], int]:
        """The names of the pods popped together next, and how many must be placed; 0 if there is no gang."""
        while self.active:
            first = self.active[0]
            together = self.groups.pop_with(first)
            if isinstance(together, Status):
                self.put(first, PodState.GATED, together.plugin)
                continue
            assert first in together.pods
            for info in together.pods:
                self.put(info, PodState.IN_FLIGHT)
            return [info.uid for info in together.pods], together.gang.least if together.gang else 0
        return [], 0

    def all_taken(self) -> list[tuple[list[str], int]]:
        taken = []
        while (one := self.take())[0]:
            taken.append(one)
        return taken

    def decide(self, *names: str) -> None:
        for name in names:
            self.put(self.pods[name], PodState.BINDING)

    def reject(self, *names: str, state: PodState = PodState.UNSCHEDULABLE) -> None:
        for name in names:
            info = self.pods[name]
            if state in (PodState.UNSCHEDULABLE, PodState.GATED):
                self.put(info, state)
            else:
                self.queue(info, state)

    def wake(self, name: str) -> None:
        self.queue(self.pods[name])

    def bound(self, *names: str) -> None:
        for name in names:
            self.groups.assigned(name, OURS)
            self.put(self.pods.pop(name), PodState.DONE)

    def delete(self, *names: str) -> None:
        for name in names:
            self.groups.remove(name)
            if name in self.pods:
                self.put(self.pods.pop(name), PodState.DONE)
        self.settle()

    def held(self) -> list[str]:
        return [info.uid for info in self.pods.values() if info.gating_plugin in GANG_PLUGINS]
