"""Progress: how far a follower has read the watcher's stream, as it reports to the watcher."""

from collections.abc import Sequence

from shared.messages.watch import (
    AlikePods,
    NodeChange,
    ObjectChange,
    PodChange,
    WatchBeat,
    WatchChange,
    Watched,
    WatchSeen,
)
from shared.watch import WatchReader

REPORT_BYTES = 1 << 20
"""Between two reports, with groups counted as separate pods: an eighth of what the watcher sends ahead. Heartbeats are
answered as well.
"""
CHANGE_BYTES = 200
"""Approximate size of a change without its body."""
POD_BYTES = 100
"""Approximate size of one of pods that are alike."""


def ungrouped_size(message: Watched) -> int:
    """Approximate bytes of the message if each pod were sent separately: a follower has as much work for each."""
    saved = sum((len(c.pods) - 1) * len(c.body) for c in message.changes if isinstance(c, AlikePods))
    return size_of_all(message.changes) + saved


def size_of_all(changes: Sequence[WatchChange]) -> int:
    """Approximate bytes of a message with these changes."""
    size = CHANGE_BYTES * len(changes)
    for change in changes:
        match change:
            case PodChange(body=body) | NodeChange(body=body) | ObjectChange(body=body):
                size += len(body)
            case AlikePods(body=body, pods=pods):
                size += len(body) + POD_BYTES * len(pods)
    return size


class Progress:
    def __init__(self, asker: str, *, alike: bool = False) -> None:
        """`alike`: the follower reads AlikePods."""
        self._asker = asker
        self._alike = alike
        self._epoch = 0
        """The watcher's, of the last report."""
        self._unreported = 0
        """Bytes since the last report."""

    def due(self, reader: WatchReader, message: Watched | WatchBeat) -> WatchSeen | None:
        """The report to send after the reader has taken this message, if one is due."""
        epoch, seq = reader.position
        is_first = epoch != self._epoch
        if isinstance(message, Watched):
            self._unreported += ungrouped_size(message)
            if not is_first and self._unreported < REPORT_BYTES:
                return None
        self._epoch, self._unreported = epoch, 0
        return WatchSeen(self._asker, epoch, seq, reader.versions if is_first else {}, self._alike)
