"""The order in which a search for placements visits its states: depth first, and none twice."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

Put = TypeVar("Put")
"""A placement of a member."""
Kind = TypeVar("Kind", bound=Hashable)
"""Members that are alike."""


@dataclass(slots=True)
class Branch(Generic[Put, Kind]):
    """The choices that are left where `depth` members are placed, the next one last.

    `drop`: those that may stay out from here on. `dropped`: those that stay out already.
    """

    depth: int
    left: list[Put]
    drop: Kind | None
    dropped: frozenset[Kind]


class Backtracking(ABC, Generic[Put, Kind]):
    def __init__(self, max_steps: int) -> None:
        self.placed: list[Put] = []
        self.steps = 0
        self.is_cut = False
        """Whether choices were left out: too many nodes, or too many steps."""
        self.outcome: Literal["", "found", "none"] = ""
        self._max_steps = max_steps
        self._dropped: frozenset[Kind] = frozenset()
        self._branches: list[Branch[Put, Kind]] = []
        self._seen: set[Hashable] = {self._state}

    @property
    @abstractmethod
    def open(self) -> Sequence[Kind]:
        """Those with members that may still be placed."""

    @abstractmethod
    def _is_found(self) -> bool:
        """Whether enough is placed."""

    @abstractmethod
    def _where(self, put: Put) -> Hashable:
        """What a state knows of a placement: members that are alike on the same node are the same."""

    def _branch(self, left: list[Put], drop: Kind | None) -> None:
        """`left`: the choices in the present state, the best first."""
        self._branches.append(Branch(len(self.placed), left[::-1], drop, self._dropped))

    def _go_on(self) -> None:
        """Takes the next choice that leads to a new state; goes back as far as there is none."""
        while self._branches:
            branch = self._branches[-1]
            del self.placed[branch.depth :]
            self._dropped = branch.dropped
            if branch.left:
                self.placed.append(branch.left.pop())
            elif branch.drop is not None:
                self._dropped, branch.drop = self._dropped | {branch.drop}, None
            else:
                self._branches.pop()
                continue
            if self._is_found():
                self.outcome = "found"
                return
            if self._state in self._seen or not self.open:
                continue
            self._seen.add(self._state)
            if self.steps >= self._max_steps:
                self.is_cut = True
                break
            return
        self.outcome = "none"

    @property
    def _state(self) -> Hashable:
        return frozenset(Counter(map(self._where, self.placed)).items()), self._dropped
