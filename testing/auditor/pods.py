"""What is known of each pod, and its story."""

from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime

from testing.auditor.demand import Demand

MOST_TOLD = 16
"""So many lines a pod's story has: the first and the last ones."""
MOST_GONE = 4096
"""Of so many pods that are gone the story is kept."""


@dataclass(slots=True)
class Assumed:
    """What the ledger says of a pod, since when."""

    attempt: int
    node: str
    since: float


@dataclass(slots=True, eq=False)
class PodRecord:
    """`ours`: it is for our schedulers. `decided`: it was seen to be bound, and not made so by its creator."""

    uid: str
    key: str
    ours: bool
    waits_since: float
    demand: Demand
    resource_version: int = 0
    node: str = ""
    bound_at: float | None = None
    decided: bool = False
    finished: bool = False
    terminating: bool = False
    gated: bool = False
    assumed: Assumed | None = None
    told: list[tuple[float, str]] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether it takes room on a node."""
        return bool(self.node) and not self.finished

    @property
    def waits(self) -> bool:
        """Whether it is the scheduler's task to place it."""
        return self.ours and not self.node and not self.finished and not self.terminating

    def tell(self, now: float, what: str) -> None:
        if len(self.told) == MOST_TOLD:
            del self.told[1]
        self.told.append((now, what))

    def story(self) -> tuple[str, ...]:
        return tuple(f"{clock(at)} {what}" for at, what in self.told)


class Pods(dict[str, PodRecord]):
    """All pods there are, by uid; and the keys and stories of the last ones that are gone."""

    def __init__(self) -> None:
        super().__init__()
        self._gone: dict[str, PodRecord] = {}
        self._order: deque[str] = deque()

    def lose(self, uid: str, now: float) -> PodRecord | None:
        record = self.pop(uid, None)
        if record is not None:
            record.tell(now, "gone")
            self._gone[uid] = record
            self._order.append(uid)
            if len(self._order) > MOST_GONE:
                self._gone.pop(self._order.popleft(), None)
        return record

    def remembered(self, uid: str) -> PodRecord | None:
        """Also one that is gone."""
        return self.get(uid) or self._gone.get(uid)


def clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S.%f")[:-3]
