"""Compares the queue's contents with the pods that exist, over several polls."""

from shared.messages.queue import QueueContents
from testing.auditor.cluster import Cluster
from testing.auditor.events import QueueRead
from testing.auditor.pods import PodRecord
from testing.auditor.violations import Debouncer, Invariant, Violation


class QueueChecks:
    def __init__(self, cluster: Cluster) -> None:
        patience = cluster.limits.patience
        self._cluster = cluster
        self._contents: QueueContents | None = None
        self._unavailable = False
        self._bound: Debouncer[str] = Debouncer(patience)
        self._missing: Debouncer[str] = Debouncer(patience)
        self._ghosts: Debouncer[str] = Debouncer(patience)

    def read(self, look: QueueRead, now: float) -> list[Violation]:
        self._contents, self._unavailable = look.contents, False
        if not self._cluster.streams.steady(look.asked_at):
            self._forget()
            return []
        pods, at = self._cluster.pods, look.asked_at
        to_decide = _to_decide(look.contents)
        binding = set(look.contents.binding)
        bound = [uid for uid in to_decide if _was_bound(pods.get(uid), at)]
        missing = self._cluster.waiting - to_decide - binding
        ghosts = (to_decide | binding) - pods.keys() - self._cluster.unreadable
        broken: list[Violation] = []
        for uid, since in self._bound.look(bound, at):
            what = f"bound, but in the queue for {at - since:.1f} s as {_place(look.contents, uid)}"
            broken.append(self._violation(Invariant.QUEUED_AND_BOUND, uid, what, now, at - since))
        for uid, since in self._missing.look(missing, at):
            what = f"not bound, but missing from the queue for {at - since:.1f} s"
            broken.append(self._violation(Invariant.ACCOUNTED_FOR, uid, what, now, at - since))
        for uid, since in self._ghosts.look(ghosts, at):
            what = f"does not exist, but in the queue for {at - since:.1f} s as {_place(look.contents, uid)}"
            broken.append(self._violation(Invariant.ACCOUNTED_FOR, uid, what, now, at - since))
        return broken

    def unavailable(self) -> None:
        """The queue is unavailable: the next one to answer may have started empty."""
        self._contents, self._unavailable = None, True
        self._forget()

    @property
    def at_rest(self) -> bool:
        """Whether the last poll showed no pod to be decided or bound."""
        return not self._unavailable and not self._busy()

    def finish(self, now: float) -> list[Violation]:
        """Only unschedulable and gated pods may be left."""
        if self._unavailable:
            return [self._cluster.violation(Invariant.ALL_BOUND, now, "the queue does not answer")]
        return [
            self._cluster.violation(Invariant.ALL_BOUND, now, f"still {place} in the queue at the end", uid=uid)
            for uid, place in self._busy()
        ]

    def _busy(self) -> list[tuple[str, str]]:
        contents = self._contents
        if contents is None:
            return []
        busy = [*contents.active, *contents.backoff, *contents.in_flight, *contents.binding]
        return [(uid, _place(contents, uid)) for uid in busy]

    def _forget(self) -> None:
        for suspicions in (self._bound, self._missing, self._ghosts):
            suspicions.clear()

    def _violation(self, invariant: Invariant, uid: str, what: str, now: float, seconds: float) -> Violation:
        return self._cluster.violation(invariant, now, what, uid=uid, numbers={"seconds": seconds})


def _was_bound(record: PodRecord | None, at: float) -> bool:
    return record is not None and record.bound_at is not None and bool(record.node) and record.bound_at < at


def _to_decide(contents: QueueContents) -> set[str]:
    return {
        *contents.active,
        *contents.backoff,
        *contents.unschedulable,
        *contents.gated,
        *contents.in_flight,
    }


def _place(contents: QueueContents, uid: str) -> str:
    places = [name for name in contents.__struct_fields__ if uid in getattr(contents, name)]
    return " and ".join(places)
