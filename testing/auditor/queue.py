"""Judges the queue's contents against the pods that there are, over several looks."""

from shared.messages.queue import QueueContents
from testing.auditor.cluster import Cluster
from testing.auditor.events import QueueRead
from testing.auditor.pods import PodRecord
from testing.auditor.suspicions import Suspicions
from testing.auditor.violations import Invariant, Violation


class QueueAudit:
    def __init__(self, cluster: Cluster) -> None:
        patience = cluster.limits.patience
        self._cluster = cluster
        self._contents: QueueContents | None = None
        self._silent = False
        self._bound: Suspicions[str] = Suspicions(patience)
        self._missing: Suspicions[str] = Suspicions(patience)
        self._ghosts: Suspicions[str] = Suspicions(patience)

    def read(self, look: QueueRead, now: float) -> list[Violation]:
        self._contents, self._silent = look.contents, False
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
            what = f"it is bound, and for {at - since:.1f} s the queue has had it as {_place(look.contents, uid)}"
            broken.append(self._violation(Invariant.QUEUED_AND_BOUND, uid, what, now, at - since))
        for uid, since in self._missing.look(missing, at):
            what = f"it is not bound, and for {at - since:.1f} s it has not been in the queue"
            broken.append(self._violation(Invariant.ACCOUNTED_FOR, uid, what, now, at - since))
        for uid, since in self._ghosts.look(ghosts, at):
            what = f"it does not exist, and for {at - since:.1f} s the queue has had it as {_place(look.contents, uid)}"
            broken.append(self._violation(Invariant.ACCOUNTED_FOR, uid, what, now, at - since))
        return broken

    def silent(self) -> None:
        """Between two looks it may have been another one, that began with nothing."""
        self._contents, self._silent = None, True
        self._forget()

    @property
    def at_rest(self) -> bool:
        """Nothing is on its way, as far as anybody has asked."""
        return not self._silent and not self._busy()

    def finish(self, now: float) -> list[Violation]:
        """Only what cannot be scheduled is left."""
        if self._silent:
            return [self._cluster.violation(Invariant.ALL_BOUND, now, "the queue does not answer")]
        return [
            self._cluster.violation(Invariant.ALL_BOUND, now, f"in the end the queue has it as {place}", uid=uid)
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
