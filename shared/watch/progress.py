"""How far a follower of the stream has come: the watcher hears of it, and says no more than is taken."""

from shared.messages.watch import WatchSeen

EVERY = 8
"""Messages between two words on it; each beat of the watcher is answered as well."""


class Progress:
    def __init__(self, asker: str) -> None:
        self._asker = asker
        self._told = (0, 0)

    def due(self, position: tuple[int, int], *, beat: bool) -> WatchSeen | None:
        """To be sent, once the message at this position (epoch and number) has been dealt with."""
        epoch, seq = position
        if not (beat or epoch != self._told[0] or seq - self._told[1] >= EVERY):
            return None
        self._told = position
        return WatchSeen(self._asker, epoch, seq)
