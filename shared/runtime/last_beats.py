"""LastBeats: the last heartbeat of each process that a standby hears, so that it knows them when it leads."""

from typing import Generic, TypeVar

from shared.bounded import BoundedDict
from shared.runtime.names import MAX_NAMES

T = TypeVar("T")


class LastBeats(Generic[T]):
    def __init__(self) -> None:
        self._beats: BoundedDict[str, tuple[T, float]] = BoundedDict(MAX_NAMES)

    def heard(self, name: str, beat: T, now: float) -> None:
        self._beats[name] = beat, now

    def since(self, at: float) -> list[tuple[T, float]]:
        """Those that came at this time or later, and when, in that order."""
        return [(beat, heard_at) for beat, heard_at in self._beats.values() if heard_at >= at]
