"""Events held back: for pods that cycle or a binder has, and until the snapshot has applied the change."""

from collections import OrderedDict, deque
from collections.abc import Iterator
from itertools import islice

from services.queue.scheduling.cluster_event import ClusterChange, anything, uses_of
from services.queue.scheduling.gang_plugins import is_of_gang
from services.queue.scheduling.queued_pod_info import QueuedPodInfo
from services.queue.scheduling.queueing_hints import QueueingHints, QueueStrategy
from shared.errors import InvariantBroken
from shared.model.objects import group_of

Position = tuple[int, int]
"""In the watcher's stream: the watcher's epoch, and the number of a message."""
MAX_EVENTS = 1 << 12
"""In-flight events; a pod that left before the oldest one counts as helped."""
MAX_HINTS = 1 << 9
"""Events judged in vain for one pod; beyond them another attempt is cheaper than more hints."""
MAX_DEFERRED = 1 << 12
"""Deferred events; further ones become one event that helps every pod, at the latest position."""


class InFlightEvents:
    """The events since each in-flight pod was popped: one log for all, and for each pod where in the log it left."""

    def __init__(self, hints: QueueingHints) -> None:
        self._hints = hints
        self._log: deque[ClusterChange] = deque()
        self._begin = 0
        self._starts: OrderedDict[str, int] = OrderedDict()
        self._strategies: dict[tuple[object, ...], QueueStrategy] = {}
        self._gangs_helped: dict[tuple[object, ...], bool] = {}
        self._relevant: dict[tuple[object, ...], list[ClusterChange]] = {}

    def __len__(self) -> int:
        """In-flight pods."""
        return len(self._starts)

    def __iter__(self) -> Iterator[ClusterChange]:
        return iter(self._log)

    def start(self, uid: str) -> None:
        self._starts[uid] = self._begin + len(self._log)

    def end(self, uid: str) -> None:
        """Drops the pod, and events that no other pod needs."""
        del self._starts[uid]
        oldest = next(iter(self._starts.values()), None)
        if oldest is None:
            self._begin += len(self._log)
            self._log.clear()
            return
        while self._log and self._begin < oldest:
            self._log.popleft()
            self._begin += 1

    def add(self, change: ClusterChange) -> None:
        if self._starts:
            self._log.append(change)
            if len(self._log) > MAX_EVENTS:
                self._log.popleft()
                self._begin += 1

    def clear_cache(self) -> None:
        """Called when the cluster may have changed."""
        if self._strategies or self._gangs_helped or self._relevant:
            self._strategies, self._gangs_helped, self._relevant = {}, {}, {}

    def strategy(self, info: QueuedPodInfo) -> QueueStrategy:
        """What to do with a rejected pod, by the events since it was popped."""
        if info.has_own_event:
            return self._judge(info)
        span = (self._starts[info.uid], self._begin + len(self._log))
        plugins = (info.unschedulable_plugins, info.pending_plugins)
        key = (info.framework.name, info.equivalence, *plugins, span)
        known = self._strategies.get(key)
        if known is None:
            known = self._strategies[key] = self._judge(info)
        return known

    def _judge(self, info: QueuedPodInfo) -> QueueStrategy:
        best = QueueStrategy.IMMEDIATELY if info.pending_plugins else QueueStrategy.AFTER_BACKOFF
        found = QueueStrategy.AFTER_BACKOFF if self._gang_is_helped(info) else QueueStrategy.SKIP
        if found >= best:
            return found
        judged = 0
        uses = uses_of(info.pod)
        for change in self._relevant_to(info):
            if not change.claim or change.claim in uses or self._hints.helps_others(info, change):
                judged += 1
                found = max(found, self._hints.strategy(info, change))
            if found >= best:
                break
            if judged >= MAX_HINTS:
                return max(found, QueueStrategy.AFTER_BACKOFF)
        return found

    def _gang_is_helped(self, info: QueuedPodInfo) -> bool:
        """Its members that were popped together share the answer, unless changes of the pod itself came meanwhile."""
        if not is_of_gang(info):
            return False
        gangs, start, ref = self._hints.gangs, self._starts[info.uid], group_of(info.pod)
        key = (ref, start, self._begin + len(self._log))
        known = self._gangs_helped.get(key)
        if known is None:
            helped = any(gangs.helps_members_of(ref, change) for change in self._since(start))
            known = self._gangs_helped[key] = helped
        if known or not info.has_own_event:
            return known
        return any(change.changed_uid == info.uid and gangs.helps(info, change) for change in self._since(start))

    def _relevant_to(self, info: QueuedPodInfo) -> list[ClusterChange]:
        """The changes that may help a plugin that rejected the pod; found once for all that these plugins rejected."""
        start = self._starts[info.uid]
        plugins = (info.unschedulable_plugins, info.pending_plugins)
        key = (info.framework.name, *plugins, start, self._begin + len(self._log))
        known = self._relevant.get(key)
        if known is None:
            changes = list(self._since(start))
            events = {change.event for change in changes}
            relevant = {event for event in events if self._hints.may_help_pod(info, event)}
            known = self._relevant[key] = [change for change in changes if change.event in relevant]
        return known

    def _since(self, start: int) -> Iterator[ClusterChange]:
        if start < self._begin:
            yield anything()
        yield from islice(self._log, max(0, start - self._begin), None)

    def validate(self, in_flight: set[str]) -> None:
        if set(self._starts) != in_flight:
            raise InvariantBroken(f"in flight, or collecting events: {sorted(set(self._starts) ^ in_flight)}")
        starts = list(self._starts.values())
        if starts != sorted(starts) or (self._log and starts[0] > self._begin) or (self._log and not starts):
            raise InvariantBroken(f"{len(self._log)} events from {self._begin}, but pods start at {starts[:9]}")


class DeferredEvents:
    """Events that the snapshot has not applied yet.

    The queue hears of a change as soon as the snapshot does. A pod requeued at once would be judged by workers that do
    not know of the change, be rejected again, and wait for another event.
    """

    def __init__(self) -> None:
        self._absorbed: Position = (0, 0)
        self._waiting: deque[tuple[Position, ClusterChange]] = deque()

    def add(self, change: ClusterChange, at: Position) -> bool:
        """False if the snapshot has applied it already."""
        if at <= self._absorbed:
            return False
        if len(self._waiting) >= MAX_DEFERRED:
            self._waiting.pop()
            change = anything()
        self._waiting.append((at, change))
        return True

    def absorb(self, position: Position) -> Iterator[ClusterChange]:
        """Yields what waited for this position, in order.

        If a watcher of an earlier term leads again, what later ones told is never applied: then anything may have
        changed.
        """
        falls_back, self._absorbed = position[0] < self._absorbed[0], position
        if falls_back and self._waiting:
            self._waiting.clear()
            yield anything()
        while self._waiting and self._waiting[0][0] <= position:
            yield self._waiting.popleft()[1]
