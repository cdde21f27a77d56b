"""Between cycle and workers, about the nodes of a shard: summaries, rejections, explanations."""

from typing import Any, Literal

import msgspec

from flotilla.results import Range, Status
from shared.model.base import Count, Integer


class Ties(msgspec.Struct, frozen=True, omit_defaults=True):
    """How to choose among equally good nodes: by a seeded hash, or the alphabetically first name."""

    mode: Literal["random", "name"] = "random"
    seed: Integer = 0


class Rejections(msgspec.Struct, frozen=True):
    """How many nodes were rejected with one status."""

    status: Status
    nodes: Count


class Summary(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a round needs to know about all nodes together: each shard summarises its own, the cycle merges them.

    `plugins`: the plugins' summaries; `late`: their summaries of feasible nodes. `ranges`: by plugin, the lowest
    and highest raw score among feasible nodes; absent without a feasible node.
    """

    nodes: Count = 0
    feasible: Count = 0
    plugins: dict[str, Any] = {}
    ranges: dict[str, Range] = {}
    late: dict[str, Any] = {}

    def agrees_with(self, guess: "Summary | None") -> bool:
        """Whether an evaluation on `guess` gives the same scores."""
        return (
            guess is not None
            and self.plugins == guess.plugins
            and self.late == guess.late
            and self.ranges == guess.ranges
        )
