"""Which values of the hostname label several nodes have. Normally none: then a hostname is a node."""

from collections import Counter


class Hostnames:
    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._shared: set[str] = set()

    @property
    def shared(self) -> list[str]:
        return sorted(self._shared)

    def replace(self, before: str | None, now: str | None) -> bool:
        """A node has another value than before, if any. Tells whether that changes which values are shared."""
        if before == now:
            return False
        changed = False
        if before is not None:
            self._counts[before] -= 1
            if self._counts[before] == 1:
                self._shared.discard(before)
                changed = True
            elif not self._counts[before]:
                del self._counts[before]
        if now is not None:
            self._counts[now] += 1
            if self._counts[now] == 2:
                self._shared.add(now)
                changed = True
        return changed
