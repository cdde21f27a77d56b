"""The pods that are assumed and not yet seen on their nodes, and until when each may be left alone."""

import heapq
from collections.abc import Iterator, Mapping

from shared.cluster.load import PodLoad
from shared.errors import InvariantBroken
from shared.messages.state import BindingOrder, Commit, Decision, LedgerEntry

BINDING_DEADLINE = 30.0
"""Seconds after which nobody begins to bind an assumed pod any more."""
LOOK_UP_GRACE = 5.0
"""Seconds after a deadline until the pod is looked up: a last call may still land, and clocks differ a little."""


class Ledger:
    def __init__(self) -> None:
        self._entries: dict[str, LedgerEntry] = {}
        self._due: list[tuple[float, str, int]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[LedgerEntry]:
        return iter(self._entries.values())

    def entries(self) -> Mapping[str, LedgerEntry]:
        """By uid."""
        return self._entries

    def enter(self, entry: LedgerEntry) -> None:
        """Also in the place of an earlier one."""
        before = self._entries.get(entry.uid)
        self._entries[entry.uid] = entry
        if before is None or (before.attempt, before.deadline) != (entry.attempt, entry.deadline):
            heapq.heappush(self._due, (entry.deadline + LOOK_UP_GRACE, entry.uid, entry.attempt))

    def take(self, uid: str) -> LedgerEntry | None:
        return self._entries.pop(uid, None)

    def find(self, uid: str, attempt: int) -> LedgerEntry | None:
        """What stands here for this attempt; None once its outcome is known, or another has begun."""
        entry = self._entries.get(uid)
        return None if entry is None or entry.attempt != attempt else entry

    def next_due(self) -> float | None:
        while self._due and not self._is_due(self._due[0]):
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else None

    def due(self, now: float) -> Iterator[LedgerEntry]:
        """Those whose time has passed; each is to be entered anew."""
        while (at := self.next_due()) is not None and at <= now:
            yield self._entries[heapq.heappop(self._due)[1]]

    def _is_due(self, due: tuple[float, str, int]) -> bool:
        """Or has this become of no interest: settled, or put off?"""
        at, uid, attempt = due
        entry = self._entries.get(uid)
        return entry is not None and entry.attempt == attempt and entry.deadline + LOOK_UP_GRACE == at

    def validate(self) -> None:
        if {due[1] for due in self._due if self._is_due(due)} != set(self._entries):
            raise InvariantBroken("an entry of the ledger has no deadline")


def entry_of(decision: Decision, load: PodLoad, commit: Commit, attempt: int, now: float) -> LedgerEntry:
    return LedgerEntry(
        uid=decision.uid,
        attempt=attempt,
        namespace=decision.namespace,
        name=decision.name,
        profile=decision.profile,
        node=decision.node,
        load=load,
        epoch=commit.epoch,
        round=commit.round,
        deadline=now + BINDING_DEADLINE,
        assumed_at=now,
        pod=decision.pod,
        volumes=decision.volumes,
    )


def order_of(entry: LedgerEntry, epoch: int) -> BindingOrder:
    """`epoch`: that of the snapshot."""
    return BindingOrder(
        epoch=epoch,
        attempt=entry.attempt,
        uid=entry.uid,
        namespace=entry.namespace,
        name=entry.name,
        profile=entry.profile,
        node=entry.node,
        deadline=entry.deadline,
        pod=entry.pod,
        volumes=entry.volumes,
    )
