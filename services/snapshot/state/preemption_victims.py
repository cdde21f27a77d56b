"""Pods that are being told to make way: they count as going before the API server shows it.

    doomed --shown to go, or gone--> of no more interest
       +--not told after all, or not shown for too long--> as they were

Else a pod for which others are about to leave would, tried again too early, have still others leave for it.
"""

from collections.abc import Iterator

import msgspec

from shared.errors import InvariantBroken
from shared.model.load import PodLoad

PATIENCE = 25.0
"""Seconds; less than the queue waits until it has the pod tried again for which they were to go."""


class _Doom(msgspec.Struct, gc=False):
    """`load`: what the pod counts for, if it were not to go."""

    whose: str
    load: PodLoad
    until: float


class Doomed:
    def __init__(self) -> None:
        self._dooms: dict[str, _Doom] = {}
        """In the order in which their time is over."""

    def __contains__(self, uid: str) -> bool:
        return uid in self._dooms

    def doom(self, uid: str, whose: str, load: PodLoad, now: float) -> PodLoad:
        """It is to go for the sake of the pod of that uid. What it counts for meanwhile."""
        before = self._dooms.pop(uid, None)
        real = load if before is None else before.load
        self._dooms[uid] = _Doom(whose, real, now + PATIENCE)
        return _going(real)

    def seen(self, uid: str, load: PodLoad) -> PodLoad:
        """The watch shows this of a pod. What it counts for."""
        doom = self._dooms.get(uid)
        if doom is None:
            return load
        if load.preempted:
            del self._dooms[uid]
            return load
        doom.load = load
        return _going(load)

    def forget(self, uid: str) -> None:
        """It has left its place."""
        self._dooms.pop(uid, None)

    def spare(self, whose: str) -> list[tuple[str, PodLoad]]:
        """Not all could be told to go for this pod: those that do not show it count for what they did before."""
        spared = [uid for uid, doom in self._dooms.items() if doom.whose == whose]
        return [(uid, self._dooms.pop(uid).load) for uid in spared]

    def expire(self, now: float) -> Iterator[tuple[str, PodLoad]]:
        while (due := self.next_due) is not None and due <= now:
            uid = next(iter(self._dooms))
            yield uid, self._dooms.pop(uid).load

    @property
    def next_due(self) -> float | None:
        return next((doom.until for doom in self._dooms.values()), None)

    def validate(self) -> None:
        times = [doom.until for doom in self._dooms.values()]
        if times != sorted(times):
            raise InvariantBroken("doomed pods are not in the order in which their time is over")


def _going(load: PodLoad) -> PodLoad:
    return msgspec.structs.replace(load, preempted=True)
