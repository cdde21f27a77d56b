"""Which workers are still believed. One that is at fault too often has to start again, and each time waits longer.

    believed --MOST_FAULTS within FORGIVEN--> distrusted --another process, and its time is over--> believed

A fault is a defect or a lie. A worker with a defect loads its state anew when it starts again, which may mend it. One
that lies says that it has started again whenever that helps it, so time has to stop it.
"""

from collections import OrderedDict
from dataclasses import dataclass

MOST_FAULTS = 3
FORGIVEN = 600.0
"""Seconds without a fault after which earlier ones count no more."""
FIRST_PAUSE = 30.0
"""Seconds that a worker waits which is distrusted for the second time; each further time twice as long."""
LONGEST_PAUSE = 3600.0
RELAPSE = 86_400.0
"""Seconds after which a worker that was distrusted begins with a clean slate."""
MOST_NAMES = 1 << 10


@dataclass(slots=True)
class _Record:
    faults: int = 0
    last: float = 0.0
    distrusted: str = ""
    times: int = 0
    until: float = 0.0
    why: str = ""


class Trust:
    def __init__(self) -> None:
        self._records: OrderedDict[str, _Record] = OrderedDict()

    def fault(self, worker: str, incarnation: str, why: str, now: float) -> bool:
        """True if that was one too many."""
        record = self._records.setdefault(worker, _Record())
        self._records.move_to_end(worker)
        if len(self._records) > MOST_NAMES:
            self._records.popitem(last=False)
        if now - record.last > FORGIVEN:
            record.faults = 0
        if now - record.last > RELAPSE:
            record.times = 0
        record.faults += 1
        record.last = now
        if record.faults < MOST_FAULTS:
            return False
        pause = 0.0 if not record.times else min(FIRST_PAUSE * 2.0 ** (record.times - 1), LONGEST_PAUSE)
        record.faults, record.times = 0, record.times + 1
        record.distrusted, record.until, record.why = incarnation, now + pause, why
        return True

    def is_distrusted(self, worker: str, incarnation: str) -> bool:
        """Whether this very process has had too many faults; another one of that name may only have to wait."""
        record = self._records.get(worker)
        return record is not None and record.times > 0 and record.distrusted == incarnation

    def refusal(self, worker: str, incarnation: str, now: float) -> str:
        """Why this process gets no shards; empty if it may have some."""
        record = self._records.get(worker)
        if record is None or not record.times:
            return ""
        if self.is_distrusted(worker, incarnation):
            return f"{MOST_FAULTS} faults, the last of them: {record.why}"
        if now < record.until:
            return f"it was distrusted {record.times} times, and waits {record.until - now:.0f} s more: {record.why}"
        return ""

    def distrusted(self, now: float) -> list[str]:
        """The workers that have to start again, or to wait."""
        return [name for name, of in self._records.items() if of.times and self.refusal(name, of.distrusted, now)]
