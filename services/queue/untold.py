"""Words to owners that their pods do not show yet: each is said again after a while, without its Event.

Whatever carries them may lose them, a binder that is killed or an API server that is away; and a pod that nothing helps
fails again only after minutes. Words are bounded by the pods that the queue has: one a pod, the last.
"""

from collections import OrderedDict
from itertools import chain

from msgspec.structs import replace

from shared.errors import InvariantBroken
from shared.messages.binding import Notice

PAUSES = (10.0, 20.0, 40.0, 80.0)
"""Seconds until a word is said again; the last one stays."""


class Untold:
    def __init__(self) -> None:
        self._lines: tuple[OrderedDict[str, tuple[Notice, float]], ...] = tuple(OrderedDict() for _ in PAUSES)
        """By pause, each by the uid of the pod, the first to be said again first; and when."""

    def __len__(self) -> int:
        return sum(map(len, self._lines))

    def said(self, notice: Notice, now: float) -> None:
        """In place of what was said of the pod before."""
        self.drop(notice.uid)
        if notice.patch or notice.nominated is not None:
            self._lines[0][notice.uid] = replace(notice, event=False), now + PAUSES[0]

    def drop(self, uid: str) -> None:
        """Nothing that was said of the pod is to be said again."""
        for line in self._lines:
            line.pop(uid, None)

    def due(self, now: float) -> list[tuple[Notice, bool]]:
        """What is to be said again, unless the pod shows it by now; and whether it was said often already."""
        found: list[tuple[Notice, bool]] = []
        last = len(PAUSES) - 1
        for i in range(last, -1, -1):
            line = self._lines[i]
            while line and next(iter(line.values()))[1] <= now:
                uid, (notice, _) = line.popitem(last=False)
                after = min(i + 1, last)
                self._lines[after][uid] = notice, now + PAUSES[after]
                found.append((notice, i == last))
        return found

    def next_deadline(self) -> float | None:
        return min((next(iter(line.values()))[1] for line in self._lines if line), default=None)

    def validate(self) -> None:
        """Raises InvariantBroken."""
        uids = list(chain.from_iterable(self._lines))
        if len(uids) != len(set(uids)):
            raise InvariantBroken("two words of a pod wait to be said again")
