"""The containers of pods, one a state, and the policy by which pods back off."""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import floor
from typing import Any, Protocol

from services.queue.scheduling.queued_pod_info import QueuedPodInfo
from shared.errors import InvariantBroken

MAX_STALE_ITEMS = 64
"""A heap with more stale items than this, and more than it has pods, is rebuilt."""
NO_BACKOFF = -1
_MAX_DOUBLINGS = 64


class PodContainer(Protocol):
    """The pods of one state, iterated in the order in which they leave it.

    What a container sorts or groups a pod by must not change while the pod is in it.
    """

    def add(self, info: QueuedPodInfo) -> None: ...
    def discard(self, info: QueuedPodInfo) -> None: ...
    def first(self) -> QueuedPodInfo | None: ...
    def validate(self) -> None: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[QueuedPodInfo]: ...


class PodHeap:
    """Pods by key, smallest first, equal keys in order of arrival. O(log n).

    A pod that leaves from the middle leaves a stale item, which is dropped when it comes to the top.
    """

    def __init__(self, key: Callable[[QueuedPodInfo], Any]) -> None:
        self._key = key
        self._items: list[tuple[Any, int, QueuedPodInfo]] = []
        self._pushes = 0
        self._live = 0

    def add(self, info: QueuedPodInfo) -> None:
        self._push(info)
        self._live += 1

    def discard(self, info: QueuedPodInfo) -> None:
        info.heap_item = None
        self._live -= 1
        self._compact()

    def update(self, info: QueuedPodInfo) -> None:
        """Moves the pod to where its new key belongs."""
        self._push(info)
        self._compact()

    def first(self) -> QueuedPodInfo | None:
        items = self._items
        while items:
            item = items[0]
            info = item[2]
            if info.heap_item is item:
                return info
            heappop(items)
        return None

    def __len__(self) -> int:
        return self._live

    def __iter__(self) -> Iterator[QueuedPodInfo]:
        return (item[2] for item in sorted(item for item in self._items if item[2].heap_item is item))

    def validate(self) -> None:
        live = [item for item in self._items if item[2].heap_item is item]
        if len(live) != self._live:
            raise InvariantBroken(f"a heap of {self._live} pods holds {len(live)}")
        for key, _, info in live:
            if key != self._key(info):
                raise InvariantBroken(f"pod {info.pod.key} is in the heap by an old key: {info.history()}")

    def _push(self, info: QueuedPodInfo) -> None:
        self._pushes += 1
        info.heap_item = item = (self._key(info), self._pushes, info)
        heappush(self._items, item)

    def _compact(self) -> None:
        if len(self._items) > 2 * self._live + MAX_STALE_ITEMS:
            self._items = [item for item in self._items if item[2].heap_item is item]
            heapify(self._items)


class PodList:
    """Pods in order of arrival. O(1)."""

    def __init__(self) -> None:
        self._pods: OrderedDict[str, QueuedPodInfo] = OrderedDict()

    def add(self, info: QueuedPodInfo) -> None:
        self._pods[info.uid] = info

    def discard(self, info: QueuedPodInfo) -> None:
        del self._pods[info.uid]

    def first(self) -> QueuedPodInfo | None:
        return next(iter(self._pods.values()), None)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class BackoffPolicy:
    """Seconds of the first back-off and of the longest; with `maximum` 0 no pod backs off.

    Each failed attempt doubles the back-off. It lasts through a whole second, so that all pods of one second leave
    together and in queue order.
    """

    initial: float = 1.0
    maximum: float = 10.0

    def until(self, info: QueuedPodInfo) -> int:
        """The last second of the back-off: by consecutive errors if there are any, else by rejections."""
        if not self.maximum:
            return NO_BACKOFF
        count = info.errors or info.rejections
        doubled = self.maximum if count > _MAX_DOUBLINGS else min(self.initial * 2 ** (count - 1), self.maximum)
        return floor(info.queued_at + doubled)

    def restored(self, until: int, now: float) -> int:
        """A back-off from before a restart, never longer than one that begins now."""
        return min(until, floor(now + self.maximum))
