"""Judges waits for permits, as the binders tell of them: they end.

Messages may be lost, so a wait has ended also where its pod is bound or gone, or its entry has left the ledger.
"""

from collections.abc import Sequence

from shared.messages.binding import BindingOutcome
from testing.auditor.cluster import Cluster
from testing.auditor.events import LedgerRead
from testing.auditor.violations import Invariant, Violation


class PermitAudit:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._waits: dict[tuple[str, int], tuple[float, float]] = {}
        """Until when each wait lasts, and when that was heard."""

    def __len__(self) -> int:
        return len(self._waits)

    def hear(self, outcomes: Sequence[BindingOutcome], now: float) -> None:
        for outcome in outcomes:
            wait = (outcome.uid, outcome.attempt)
            if outcome.wait is None:
                self._waits.pop(wait, None)
            else:
                self._waits[wait] = (now + outcome.wait, now)
                record = self._cluster.pods.get(outcome.uid)
                if record is not None:
                    record.tell(now, f"waits for a permit, attempt {outcome.attempt}")

    def read(self, ledger: LedgerRead) -> None:
        standing = {(entry.uid, entry.attempt) for entry in ledger.entries}
        self._waits = {
            wait: (until, heard)
            for wait, (until, heard) in self._waits.items()
            if wait in standing or heard >= ledger.asked_at
        }

    def expire(self, now: float) -> list[Violation]:
        if not self._waits or not self._cluster.streams.steady(now):
            return []
        latest = now - self._cluster.limits.patience
        return self._end([wait for wait, (until, _) in self._waits.items() if until < latest], now)

    def finish(self, now: float) -> list[Violation]:
        return self._end(list(self._waits), now)

    def _end(self, waits: Sequence[tuple[str, int]], now: float) -> list[Violation]:
        broken = []
        for uid, attempt in waits:
            until, _ = self._waits.pop((uid, attempt))
            record = self._cluster.pods.get(uid)
            if record is not None and not record.node:
                numbers = {"attempt": float(attempt), "until": until, "overdue": now - until}
                what = f"attempt {attempt} still waits for a permit"
                broken.append(self._cluster.violation(Invariant.PERMIT_ENDS, now, what, uid=uid, numbers=numbers))
        return broken
