"""What happens while pods are away, with cycle or at a binder: they come back to judge by it whether to try again."""

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from itertools import islice

from services.queue.happenings import Happening, anything
from services.queue.scheduling.queued_pod_info import Entry
from services.queue.scheduling.queueing_hints import Hints, Worth
from shared.errors import InvariantBroken
from shared.framework.clusterevents import ClusterEvent

MOST = 1 << 12
"""So much is remembered; who has been away for longer than that is taken to be helped."""
MOST_ASKED = 1 << 9
"""After so many in vain for one pod, the next attempt costs less than to go on asking."""


class Away:
    """One log for all, in which each has a mark: where it ended when the pod left. What no mark needs is not kept."""

    def __init__(self, hints: Hints, most: int = MOST) -> None:
        self._hints = hints
        self._most = most
        self._log: deque[Happening] = deque()
        self._begin = 0
        self._marks: OrderedDict[str, int] = OrderedDict()
        self._judged: dict[tuple[object, ...], Worth] = {}

    def __len__(self) -> int:
        return len(self._marks)

    def __contains__(self, uid: str) -> bool:
        return uid in self._marks

    def log(self) -> Iterable[Happening]:
        return self._log

    def start(self, uid: str) -> None:
        self._marks[uid] = self._begin + len(self._log)

    def end(self, uid: str) -> None:
        del self._marks[uid]
        self._trim()

    def note(self, happening: Happening) -> None:
        if self._marks:
            self._log.append(happening)
            if len(self._log) > self._most:
                self._log.popleft()
                self._begin += 1

    def forget(self) -> None:
        """What was judged was judged by a cluster that may have changed."""
        if self._judged:
            self._judged = {}

    def worth(self, entry: Entry) -> Worth:
        """Of another attempt at a pod that comes back, by what has happened since it left."""
        if entry.touched:
            return self._judge(entry)
        span = (self._marks[entry.uid], self._begin + len(self._log))
        key = (entry.framework.name, entry.likeness, entry.plugins, entry.pending, span)
        known = self._judged.get(key)
        if known is None:
            known = self._judged[key] = self._judge(entry)
        return known

    def _judge(self, entry: Entry) -> Worth:
        best = Worth.AT_ONCE if entry.pending else Worth.AFTER_REST
        worth = Worth.NOTHING
        asked = 0
        concerned: dict[ClusterEvent, bool] = {}
        for happening in self._since(self._marks[entry.uid]):
            event = happening.event
            if event not in concerned:
                concerned[event] = self._hints.concerns(entry, event)
            if concerned[event]:
                asked += 1
                worth = max(worth, self._hints.worth(entry, happening))
            if worth >= best:
                break
            if asked >= MOST_ASKED:
                return max(worth, Worth.AFTER_REST)
        return worth

    def _since(self, mark: int) -> Iterator[Happening]:
        if mark < self._begin:
            yield anything()
        yield from islice(self._log, max(0, mark - self._begin), None)

    def _trim(self) -> None:
        oldest = next(iter(self._marks.values()), None)
        if oldest is None:
            self._begin += len(self._log)
            self._log.clear()
            return
        while self._log and self._begin < oldest:
            self._log.popleft()
            self._begin += 1

    def validate(self, away: set[str]) -> None:
        if set(self._marks) != away:
            raise InvariantBroken(f"marked as away, or are: {sorted(set(self._marks) ^ away)}")
        marks = list(self._marks.values())
        if marks != sorted(marks) or (self._log and marks[0] > self._begin) or (self._log and not marks):
            raise InvariantBroken(f"the log of {len(self._log)} from {self._begin} has the marks {marks[:9]}")
