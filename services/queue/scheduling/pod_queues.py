"""The containers of pods, one a state, and the policy by which pods back off.

Each holds the pods of one state, iterated in the order in which they leave it. What a container sorts or groups a pod
by must not change while the pod is in it.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import pairwise
from math import floor
from typing import Any, NamedTuple, TypeVar

from services.queue.scheduling.cluster_event import ClusterChange, Use, uses_of
from services.queue.scheduling.gang_plugins import GANG_PLUGINS, is_of_gang
from services.queue.scheduling.nominator import PREEMPTION
from services.queue.scheduling.queued_gang import QueuedGang
from services.queue.scheduling.queued_pod_info import QueuedPodInfo
from services.queue.scheduling.queueing_hints import QueueingHints, QueueStrategy, hinting_plugins
from shared.errors import InvariantBroken
from shared.framework.clusterevents import EVERYTHING
from shared.model.objects import GroupRef, group_of

MAX_STALE_ITEMS = 64
"""A heap with more stale items than this, and more than it has pods, is rebuilt."""
NO_BACKOFF = -1
_MAX_DOUBLINGS = 64
T = TypeVar("T")
_Item = tuple[Any, int, QueuedPodInfo | QueuedGang]
"""The key, the number of the item, and whose it is. Numbers differ, so that entries are never compared."""


class PodHeap:
    """Pods by key, smallest first, equal keys in order of arrival. O(1) for pods that come in that order, as most do.

    Those wait in a line. A pod that must go before the last one of the line goes into a heap, O(log n). A gang is one
    item, by its first pod's key. A pod that leaves from the middle leaves a stale item, which is dropped when it comes
    to the top. If a gang's first pod leaves, its item is put where it belongs when it comes to the top.
    """

    def __init__(self, key: Callable[[QueuedPodInfo], Any], numbers: Iterator[int]) -> None:
        """`numbers`: increasing, above zero; shared with the other heaps, where stale items of a pod may remain."""
        self._key = key
        self._line: deque[_Item] = deque()
        self._heap: list[_Item] = []
        self._numbers = numbers
        self._pods = 0

    def add(self, info: QueuedPodInfo) -> None:
        self._pods += 1
        gang = info.gang
        if gang is None:
            self._push(info, info)
            return
        if gang.heap is not self:  # its other pods follow
            gang.heap, gang.pods_in_heap = self, 0
            self._push(gang, info)
        elif self._key(info) < gang.heap_key:
            self._push(gang, info)
        gang.entered_heap(info)

    def discard(self, info: QueuedPodInfo) -> None:
        self._pods -= 1
        gang = info.gang
        if gang is None:
            info.heap_number = 0
        elif gang.heap is self:
            gang.left_heap(info)
            if not gang.pods_in_heap:
                gang.heap, gang.heap_number = None, 0
        if len(self._line) + len(self._heap) > 2 * self._pods + MAX_STALE_ITEMS:
            self._line = deque(filter(_is_live, self._line))
            self._heap = list(filter(_is_live, self._heap))
            heapify(self._heap)

    def first(self) -> QueuedPodInfo | None:
        while self._line or self._heap:
            key, number, entry = item = self._top()
            if entry.heap_number != number:
                self._drop_top(item)
            elif isinstance(entry, QueuedPodInfo):
                return entry
            elif key != self._key(first := entry.first()):
                self._push(entry, first)
            else:
                return first
        return None

    def __len__(self) -> int:
        return self._pods

    def __iter__(self) -> Iterator[QueuedPodInfo]:
        for _, _, entry in sorted((self._key(_first(entry)), number, entry) for _, number, entry in self._live()):
            yield from (entry,) if isinstance(entry, QueuedPodInfo) else entry.in_order()

    def validate(self) -> None:
        live = self._live()
        pods = sum(1 if isinstance(entry, QueuedPodInfo) else len(entry.pods) for _, _, entry in live)
        if pods != self._pods:
            raise InvariantBroken(f"a heap of {self._pods} pods holds {pods}")
        for key, _, entry in live:
            info = _first(entry)
            if key != self._key(info) and (entry is info or key > self._key(info)):
                raise InvariantBroken(f"pod {info.pod.key} is in the heap by an old key: {info.history()}")
        if any(before > after for before, after in pairwise(self._line)):
            raise InvariantBroken("the line of pods that came in order is not in order")

    def _push(self, entry: QueuedPodInfo | QueuedGang, first: QueuedPodInfo) -> None:
        key, entry.heap_number = self._key(first), next(self._numbers)
        if isinstance(entry, QueuedGang):
            entry.heap_key = key
        item = (key, entry.heap_number, entry)
        if self._line and item < self._line[-1]:
            heappush(self._heap, item)
        else:
            self._line.append(item)

    def _top(self) -> _Item:
        if not self._heap:
            return self._line[0]
        return min(self._heap[0], self._line[0]) if self._line else self._heap[0]

    def _drop_top(self, item: _Item) -> None:
        if self._line and item is self._line[0]:
            self._line.popleft()
        else:
            heappop(self._heap)

    def _live(self) -> list[_Item]:
        return [item for item in (*self._line, *self._heap) if _is_live(item)]


def _first(entry: QueuedPodInfo | QueuedGang) -> QueuedPodInfo:
    return entry if isinstance(entry, QueuedPodInfo) else entry.first()


def _is_live(item: _Item) -> bool:
    return item[2].heap_number == item[1]


class PodList:
    """Pods in order of arrival. O(1)."""

    def __init__(self) -> None:
        self._pods: OrderedDict[str, QueuedPodInfo] = OrderedDict()

    def add(self, info: QueuedPodInfo) -> None:
        self._pods[info.uid] = info

    def discard(self, info: QueuedPodInfo) -> None:
        del self._pods[info.uid]

    def first(self) -> QueuedPodInfo | None:
        for info in self._pods.values():
            return info
        return None

    def __len__(self) -> int:
        return len(self._pods)

    def __iter__(self) -> Iterator[QueuedPodInfo]:
        return iter(self._pods.values())


class DeadlineQueue(PodList):
    """Pods that cycle or a binder has for `timeout` seconds, in order of their deadlines."""

    def __init__(self, timeout: float) -> None:
        super().__init__()
        self._timeout = timeout
        self._latest = 0.0

    def start(self, info: QueuedPodInfo, now: float) -> None:
        """Sets the deadline of a pod about to be added; it never precedes an earlier one, even if the clock does."""
        self._latest = info.deadline = max(now + self._timeout, self._latest)

    def validate(self) -> None:
        deadlines = [info.deadline for info in self]
        if deadlines != sorted(deadlines):
            raise InvariantBroken("in-flight pods are not in the order of their deadlines")


class _Key(NamedTuple):
    """Pods that agree in it are moved by the same events."""

    profile: str
    equivalence: bytes
    unschedulable_plugins: tuple[str, ...]
    pending_plugins: tuple[str, ...]
    gating_plugin: str | None


class _EqualPods:
    def __init__(self, key: _Key, first: QueuedPodInfo) -> None:
        self.key = key
        self.framework = first.framework
        self.plugins = _awaited_plugins(first)
        self.uses = uses_of(first.pod)
        self.group = group_of(first.pod) if key.gating_plugin is None and is_of_gang(first) else None
        """The pod group whose changes they wait for, if they were rejected as members of a gang."""
        self.pods: dict[str, QueuedPodInfo] = {}


class UnschedulablePods(PodList):
    """An event's cost grows with the groups of equal pods that it may help; a claim event's, with the claim's users."""

    def __init__(self) -> None:
        super().__init__()
        self._groups: dict[_Key, _EqualPods] = {}
        self._by_plugin: dict[tuple[str, str], dict[_Key, _EqualPods]] = {}
        self._by_use: dict[Use, dict[_Key, _EqualPods]] = {}
        self._by_group: dict[GroupRef, dict[_Key, _EqualPods]] = {}

    def add(self, info: QueuedPodInfo) -> None:
        super().add(info)
        key = _key(info)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _EqualPods(key, info)
            for plugin in group.plugins:
                self._by_plugin.setdefault((key.profile, plugin), {})[key] = group
            for use in group.uses:
                self._by_use.setdefault(use, {})[key] = group
            if group.group is not None:
                self._by_group.setdefault(group.group, {})[key] = group
        info.equals = group
        group.pods[info.uid] = info

    def discard(self, info: QueuedPodInfo) -> None:
        super().discard(info)
        group: _EqualPods = info.equals
        info.equals = None
        del group.pods[info.uid]
        if group.pods:
            return
        del self._groups[group.key]
        for plugin in group.plugins:
            _delete(self._by_plugin, (group.key.profile, plugin), group.key)
        for use in group.uses:
            _delete(self._by_use, use, group.key)
        if group.group is not None:
            _delete(self._by_group, group.group, group.key)

    def helped_by(self, change: ClusterChange, hints: QueueingHints) -> list[tuple[QueuedPodInfo, QueueStrategy]]:
        """The pods to requeue. Hints are called for one pod of each group, and for the changed pod itself."""
        found: list[tuple[QueuedPodInfo, QueueStrategy]] = []
        for group in self._awaiting(change, hints):
            pods = group.pods
            if change.max_priority is not None:
                first = next(iter(pods.values())).pod
                if hints.gangs.groups.priority_of(first) > change.max_priority:
                    continue
            changed = pods.get(change.changed_uid)
            if changed is not None:
                pods = {uid: info for uid, info in pods.items() if info is not changed}
                if changed.uid != change.except_uid and (strategy := hints.strategy(changed, change)):
                    found.append((changed, strategy))
            any_pod = next(iter(pods.values()), None)
            if any_pod is not None and (strategy := hints.strategy(any_pod, change)):
                found += [(info, strategy) for uid, info in pods.items() if uid != change.except_uid]
        return found

    def _awaiting(self, change: ClusterChange, hints: QueueingHints) -> Iterator[_EqualPods]:
        if change.event == EVERYTHING:
            return iter(list(self._groups.values()))
        found: dict[_Key, _EqualPods] = {}
        users = None if change.claim is None else self._by_use.get(change.claim, {})
        for (profile, plugin), groups in self._by_plugin.items():
            framework = next(iter(groups.values())).framework
            if not hints.may_help(framework, plugin, change.event):
                continue
            if users is None or not hints.helps_users_only(framework, plugin, change):
                found |= groups
            else:
                found |= {key: each for key, each in users.items() if key.profile == profile and plugin in each.plugins}
        for of_group in self._of_gangs(change, hints):
            found |= of_group
        return iter(found.values())

    def _of_gangs(self, change: ClusterChange, hints: QueueingHints) -> Iterator[dict[_Key, _EqualPods]]:
        """Members of the gangs that the change is about, or may be about."""
        if not self._by_group:
            return
        if hints.gangs.may_help_all(change):
            yield from (of for ref, of in self._by_group.items() if hints.gangs.helps_members_of(ref, change))
            return
        for ref in hints.gangs.groups_of(change):
            if (known := self._by_group.get(ref)) is not None:
                yield known

    def validate(self) -> None:
        for info in self:
            group: _EqualPods = info.equals
            if group.key != _key(info) or group.pods.get(info.uid) is not info:
                raise InvariantBroken(
                    f"pod {info.pod.key} is grouped with other pods than its equals: {info.history()}"
                )
            if self._groups.get(group.key) is not group:
                raise InvariantBroken(f"pod {info.pod.key} is in a group that is not indexed: {info.history()}")
        if sum(len(group.pods) for group in self._groups.values()) != len(self):
            raise InvariantBroken("groups of unschedulable pods hold pods that are not unschedulable")
        indexed = {(plugin, key) for plugin, groups in self._by_plugin.items() for key in groups}
        due = {((key.profile, plugin), key) for key, group in self._groups.items() for plugin in group.plugins}
        if indexed != due:
            raise InvariantBroken(f"index of plugins is wrong: {[plugin for plugin, _ in indexed ^ due]}")
        using = {(use, key) for use, groups in self._by_use.items() for key in groups}
        if using != {(use, key) for key, group in self._groups.items() for use in group.uses}:
            raise InvariantBroken("index of the claims that unschedulable pods use is wrong")
        of_gangs = {(ref, key) for ref, groups in self._by_group.items() for key in groups}
        if of_gangs != {(group.group, key) for key, group in self._groups.items() if group.group is not None}:
            raise InvariantBroken("index of the gangs that unschedulable pods are members of is wrong")


def _delete(index: dict[T, dict[_Key, _EqualPods]], at: T, key: _Key) -> None:
    del index[at][key]
    if not index[at]:
        del index[at]


def _awaited_plugins(info: QueuedPodInfo) -> tuple[str, ...]:
    """The plugins whose events may move the pod, but gangs'; none if its pod group or its preemption gates it."""
    if info.gating_plugin is None:
        return tuple(plugin for plugin in hinting_plugins(info) if plugin not in GANG_PLUGINS)
    return () if info.gating_plugin in GANG_PLUGINS or info.gating_plugin == PREEMPTION else (info.gating_plugin,)


def _key(info: QueuedPodInfo) -> _Key:
    plugins = info.unschedulable_plugins, info.pending_plugins, info.gating_plugin
    return _Key(info.framework.name, info.equivalence, *plugins)


PodContainer = PodHeap | DeadlineQueue | UnschedulablePods


@dataclass(frozen=True, slots=True, kw_only=True)
class BackoffPolicy:
    """Seconds of the first back-off and of the longest; with `maximum` 0 no pod backs off.

    Each failed attempt doubles the back-off. It lasts through a whole second, so that all pods of one second leave
    together and in queue order. `early`: the part of it after which a pod may be popped if no pod is active.
    """

    initial: float = 1.0
    maximum: float = 10.0
    early: float = 0.0

    def until(self, info: QueuedPodInfo) -> int:
        """The last second of the back-off: by consecutive errors if there are any, else by rejections."""
        if not self.maximum:
            return NO_BACKOFF
        count = info.errors or info.rejections
        doubled = self.maximum if count > _MAX_DOUBLINGS else min(self.initial * 2 ** (count - 1), self.maximum)
        return floor(info.queued_at + doubled)

    def early_at(self, info: QueuedPodInfo) -> float:
        """When a pod that backs off may be popped at the earliest."""
        return info.queued_at + self.early * (info.backoff_ends - info.queued_at)

    def restored(self, until: int, now: float) -> int:
        """A back-off from before a restart, never longer than one that begins now."""
        return min(until, floor(now + self.maximum))
