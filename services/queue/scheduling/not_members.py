"""Pods that name a group and do not count in it, and groups that cannot be read: only for what is said of groups.

A pod does not count while it names a scheduler that no profile has, or once it has finished: its node is free then,
and kube-scheduler does not count it either. The watch shows neither when a finished pod is deleted, nor pods that had
finished before this queue began, so what is known of them is history.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from services.queue.scheduling.group_info import GroupInfo
from shared.bounded import BoundedDict
from shared.model.objects import GroupRef, Pod, group_of

MAX_PODS = 10_000
"""Pods of other schedulers, and as many that have finished."""
MAX_GROUPS = 10_000
"""Groups that cannot be read."""


class NotMembers:
    def __init__(self) -> None:
        self._foreign: BoundedDict[str, tuple[str, str, GroupRef | None]] = BoundedDict(MAX_PODS)
        """By uid: namespace and name, schedulerName, and group of a pending pod that no profile here schedules."""
        self._finished: BoundedDict[tuple[GroupRef, str], str] = BoundedDict(MAX_PODS)
        """Uids by group and name."""
        self._unreadable: BoundedDict[GroupRef, str] = BoundedDict(MAX_GROUPS)
        """Why a group cannot be read."""

    def add_foreign(self, pod: Pod) -> None:
        self._foreign[pod.uid] = (pod.key, pod.spec.scheduler_name, group_of(pod))

    def forget(self, uid: str) -> None:
        """The pod has left, or a profile schedules it."""
        self._foreign.pop(uid, None)

    def foreign_scheduler(self, key: str) -> str:
        """The schedulerName of the pending pod of this namespace and name, if no profile here has it."""
        return next((scheduler for name, scheduler, _ in self._foreign.values() if name == key), "")

    def add_finished(self, group: GroupInfo, uid: str) -> None:
        info, on_node = group.pods.get(uid), group.on_nodes.get(uid)
        name = info.pod.name if info is not None else "" if on_node is None else on_node.name
        if name:
            self._finished[group.ref, name] = uid

    def set_unreadable(self, ref: GroupRef, problem: str) -> None:
        """Without a problem: the group can be read now, or is deleted."""
        self._unreadable.pop(ref, None)
        if problem:
            self._unreadable[ref] = problem

    def problem_of(self, ref: GroupRef) -> str:
        return self._unreadable.get(ref, "")

    def by_group(self) -> Mapping[GroupRef, "OfGroup"]:
        found: defaultdict[GroupRef, OfGroup] = defaultdict(lambda: OfGroup({}, []))
        for key, scheduler, group in self._foreign.values():
            if group is not None:
                found[group].foreign[key.partition("/")[2]] = scheduler
        for group, name in self._finished:
            found[group].finished.append(name)
        return found


class OfGroup(NamedTuple):
    """`foreign`: schedulerNames by the pods' names. `finished`: names of pods, which others may have now."""

    foreign: dict[str, str]
    finished: list[str]


NOBODY = OfGroup({}, [])
