"""How much the watches can be trusted at present."""

import math
from dataclasses import dataclass

from shared.messages.watch import Kind

AUDITED = (Kind.POD, Kind.NODE)
"""What the auditor watches."""


@dataclass(slots=True)
class Stream:
    """Nothing was heard from `lost_at` until `whole_since`: infinite while that lasts, or nothing was listed yet."""

    listed: bool = False
    lost_at: float | None = None
    whole_since: float = math.inf


class Streams:
    def __init__(self, lag: float) -> None:
        self._lag = lag
        self._streams = {kind: Stream() for kind in AUDITED}

    def all_listed(self) -> bool:
        return all(stream.listed for stream in self._streams.values())

    def is_listed(self, kind: Kind) -> bool:
        return self._streams[kind].listed

    def lost_at(self, kind: Kind, now: float) -> float:
        """Since when changes may have been missed, if it is listed anew now."""
        stream = self._streams[kind]
        return now if stream.lost_at is None or stream.whole_since < math.inf else stream.lost_at

    def lose(self, kind: Kind, now: float) -> None:
        """While it comes and goes it is one gap."""
        stream = self._streams[kind]
        if stream.whole_since < math.inf:
            if stream.lost_at is None or now - stream.whole_since >= self._lag:
                stream.lost_at = now
            stream.whole_since = math.inf

    def resume(self, kind: Kind, now: float) -> None:
        stream = self._streams[kind]
        stream.listed = True
        stream.whole_since = min(stream.whole_since, now)

    def whole_since(self) -> float:
        """Since when all of them tell what happens; infinite if one does not."""
        return max(stream.whole_since for stream in self._streams.values())

    def steady(self, at: float) -> bool:
        """Whether what is known can be held against what somebody else said at this time."""
        return at >= self.whole_since() + self._lag

    def reach(self, now: float) -> float:
        """What is told now may have happened as early as this."""
        gaps = [
            stream.lost_at
            for stream in self._streams.values()
            if stream.lost_at is not None and now < stream.whole_since + self._lag
        ]
        return min(gaps, default=now)
