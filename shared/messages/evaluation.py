"""What workers and cycle tell each other about the nodes of a shard: summaries, rejections, explanations."""

from typing import Any, Literal

import msgspec

from flotilla.results import Range, Status


class Ties(msgspec.Struct, frozen=True, omit_defaults=True):
    """How one of several equally good nodes is chosen: seeded at random, or the alphabetically first name."""

    mode: Literal["random", "name"] = "random"
    seed: int = 0


class Rejections(msgspec.Struct, frozen=True):
    """How many nodes were rejected with one status."""

    status: Status
    nodes: int


class Summary(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a round needs to know of all nodes together: computed by each shard over its own, merged by the cycle.

    `plugins`: the plugins' own summaries; `late`: their summaries of feasible nodes. `ranges`: the lowest and the
    highest raw score of the feasible nodes, by plugin; plugins without a feasible node have no entry.
    """

    nodes: int = 0
    feasible: int = 0
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


class Explanation(msgspec.Struct, frozen=True, omit_defaults=True):
    """For every node: the status that rejected it, or the weighted score of each plugin."""

    rejected: dict[str, Status] = {}
    scores: dict[str, dict[str, int]] = {}
    skipped_scores: list[str] = []
