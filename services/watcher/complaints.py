"""What the owners of a kind's unusable objects have been told; forgotten with the object or its problem.

By problem, not by version: telling the owner makes a version of its own.
"""

MOST_COMPLAINTS = 10_000
"""So many unusable objects of a kind are remembered; the owners of further ones hear of theirs more than once."""


class Complaints:
    def __init__(self) -> None:
        self._told: dict[str, str] = {}
        self._before: dict[str, str] = {}
        """From before the listing that is under way; what it does not name is forgotten."""

    def __len__(self) -> int:
        return len(self._told) + len(self._before)

    def is_new(self, key: str, problem: str) -> bool:
        told = self._told.pop(key, None) or self._before.pop(key, None)
        if len(self._told) >= MOST_COMPLAINTS:
            del self._told[next(iter(self._told))]
        self._told[key] = problem
        return told != problem

    def settle(self, key: str) -> None:
        self._told.pop(key, None)
        self._before.pop(key, None)

    def begin_listing(self) -> None:
        self._before = (self._before | self._told) if len(self) <= MOST_COMPLAINTS else self._told
        self._told = {}

    def end_listing(self) -> None:
        self._before = {}
