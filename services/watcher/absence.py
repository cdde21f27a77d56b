"""Which kinds of objects the server does not show us.

One that was never listed is missing at once: the pipeline begins without it. One that was listed before is missing only
once the server has refused it for a while, for a server that has just started may not know yet what it has.
"""

PATIENCE = 60.0
"""Seconds that a kind that was listed before may be refused, until there counts as none of it."""


class Absence:
    def __init__(self) -> None:
        self.listed = False
        self.missing = False
        self._refused_since: float | None = None

    def refused(self, now: float) -> bool:
        """Whether the kind is missing from now on, and was not before."""
        if self._refused_since is None:
            self._refused_since = now
        if self.missing or (self.listed and now < self._refused_since + PATIENCE):
            return False
        self.missing = True
        return True

    def shown(self) -> bool:
        """The server shows objects. Whether the kind was missing until now."""
        self._refused_since = None
        was_missing, self.missing = self.missing, False
        return was_missing
