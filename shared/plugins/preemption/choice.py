"""Which candidate costs least."""

import math
from collections.abc import Callable, Sequence

from shared.messages.preemption import Candidate, Victim

LOWEST_PRIORITY = -(1 << 31)


def best_of(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Those that are equally good and better than all others; by node."""
    left = list(candidates)
    for cost in _COSTS:
        if len(left) < 2:
            break
        costs = [cost(candidate.victims) for candidate in left]
        lowest = min(costs)
        left = [candidate for candidate, of_it in zip(left, costs, strict=True) if of_it == lowest]
    return sorted(left, key=lambda candidate: candidate.node)


def _violations(victims: Sequence[Victim]) -> float:
    return sum(victim.violates for victim in victims)


def _highest_priority(victims: Sequence[Victim]) -> float:
    return max(victim.priority for victim in victims)


def _sum_of_priorities(victims: Sequence[Victim]) -> float:
    """Counted from the lowest there can be: so no victim, however unimportant, makes a candidate cheaper."""
    return sum(victim.priority - LOWEST_PRIORITY for victim in victims)


def _how_long_they_run(victims: Sequence[Victim]) -> float:
    """Since when the first of the most important ones runs: the later, the better."""
    highest = max(victim.priority for victim in victims)
    return -min(
        math.inf if victim.started is None else victim.started for victim in victims if victim.priority == highest
    )


_COSTS: tuple[Callable[[Sequence[Victim]], float], ...] = (
    _violations,
    _highest_priority,
    _sum_of_priorities,
    len,
    _how_long_they_run,
)
