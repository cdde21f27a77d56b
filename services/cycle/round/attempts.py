"""Which domains a gang tries, and how, one attempt after the other.

    count ----------> fill each domain ----none fits----> count --> fill, hardest class first --> search --> over
    (with topology)   (the whole cluster, without)        (unless done)

To *fill* a domain is to place members as any pods, in queue order. That finds a placement whenever there is one if all
members are alike and matter to each other only by the resources that they take. For others it may fail although there
is one; then the hardest class goes first, and at last placements are searched for.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from services.cycle.round.domains import CLUSTER, Domain, Level, domains, holding, why_none
from services.cycle.round.placement_search import MAX_SEARCHED, MAX_STEPS
from services.cycle.round.scopes import Counted

MAX_DOMAINS_TRIED = 32
"""Domains that one gang tries, the best ones: each costs a step or more."""

Kind = Literal["count", "fill", "search"]


@dataclass(frozen=True, slots=True)
class Attempt:
    """`hardest_first`: the order of the classes, instead of the queue's."""

    kind: Kind
    domain: Domain = CLUSTER
    hardest_first: bool = False


class Attempts:
    def __init__(self, levels: Sequence[Level], wanted: Mapping[str, int], least: int) -> None:
        """`wanted`: the members to place, by class."""
        self.levels = levels
        self.now: Attempt | None = Attempt("count" if levels else "fill")
        """The present attempt; None: there is nothing else to try."""
        self.counted: Counted | None = None
        self.domains: list[Domain] = [] if levels else [CLUSTER]
        """All that the gang may lie in, the best first."""
        self.search_steps = MAX_STEPS
        """Steps that are left for searches."""
        self.is_cut = False
        """Whether something was not tried that might have been a placement."""
        self._wanted = wanted
        self._least = least
        self._next: deque[Attempt] = deque()
        self._is_filled = False

    @property
    def candidates(self) -> list[Domain]:
        """The domains that may have room for enough members."""
        return holding(self.domains, self._least)

    def take_counts(self, found: Counted) -> None:
        self.counted = found
        self.domains = domains(self.levels, found.rooms, self._wanted, found.placed)
        self._next.clear()
        if not self._is_filled:
            # Of the best domain, which is too small, the filters tell why.
            self._next.extend(Attempt("fill", domain) for domain in self._tried() or self.domains[:1])
        elif self.candidates:
            self._plan_search()
        self._advance()

    def fail(self, *, is_exact: bool, may_search: bool) -> None:
        """The present attempt has not placed enough members. `is_exact`: a placement would have been found."""
        if self._next:
            self._advance()
            return
        was_filled, self._is_filled = self._is_filled, True
        if not was_filled and not is_exact and may_search:
            if self.counted is None:
                self._next.append(Attempt("count"))
            elif self.candidates:
                self._plan_search()
        elif not is_exact and not may_search:
            self.is_cut = True
        self._advance()

    def end_with_this(self) -> None:
        """Nothing is tried after the present attempt: in a replay that does not know all members."""
        self._is_filled = True
        self._next.clear()

    def found(self) -> None:
        """Enough members are placed: the others are placed in the same domain as they fit."""
        if self.now is not None:
            self.now = Attempt("fill", self.now.domain)

    def why(self, total: int) -> str:
        """One sentence: why no domain holds the gang. Empty if the reasons of its members say it all."""
        if self.counted is None or not self.levels:
            return ""
        if not self.candidates:
            return why_none(self.levels, self.domains, self._least, total, self.counted.placed)
        names = [domain.name for domain in self.candidates]
        some = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} others"
        return f"{some} would have room for each of its {total} members alone, but not for all of them together"

    def _tried(self) -> list[Domain]:
        found = self.candidates
        self.is_cut |= len(found) > MAX_DOMAINS_TRIED
        return found[:MAX_DOMAINS_TRIED]

    def _plan_search(self) -> None:
        tried = self._tried()
        if len(self._wanted) > 1:
            self._next.extend(Attempt("fill", domain, hardest_first=True) for domain in tried)
        if sum(self._wanted.values()) <= MAX_SEARCHED:
            self._next.extend(Attempt("search", domain) for domain in tried)
        else:
            self.is_cut = True

    def _advance(self) -> None:
        self.now = self._next.popleft() if self._next else None
        if self.now is not None and self.now.kind == "search" and not self.search_steps:
            self.is_cut, self.now = True, None


def in_order(classes: Iterable[str], domain: Domain) -> list[str]:
    """The hardest class first: the one with the fewest places beyond its members."""
    return sorted(classes, key=lambda class_id: domain.slack.get(class_id, 0))
