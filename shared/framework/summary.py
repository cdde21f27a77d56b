"""What a round needs to know of all nodes together: computed by each shard over its own (map), merged (reduce)."""

from collections.abc import Iterable
from typing import Any

import msgspec

from shared.framework.normalize import Range
from shared.framework.profile import Framework


class Summary(msgspec.Struct, frozen=True, omit_defaults=True):
    """`plugins`: the plugins' own summaries; `late`: those that they have of feasible nodes only.
    `ranges`: lowest and highest raw score over the feasible nodes.

    A plugin without a feasible node to range over has no entry.
    """

    nodes: int = 0
    feasible: int = 0
    plugins: dict[str, Any] = {}
    ranges: dict[str, Range] = {}
    late: dict[str, Any] = {}

    def agrees_with(self, guess: "Summary | None") -> bool:
        """Would an evaluation on `guess` have come to the same scores?"""
        return (
            guess is not None
            and self.plugins == guess.plugins
            and self.late == guess.late
            and self.ranges == guess.ranges
        )


def merge(framework: Framework, parts: Iterable[Summary]) -> Summary:
    nodes = feasible = 0
    plugins: dict[str, Any] = {}
    late: dict[str, Any] = {}
    ranges: dict[str, Range] = {}
    for part in parts:
        nodes += part.nodes
        feasible += part.feasible
        for name, value in part.plugins.items():
            plugins[name] = framework.summaries[name].merge(plugins[name], value) if name in plugins else value
        for name, value in part.late.items():
            late[name] = framework.summaries[name].merge_feasible(late[name], value) if name in late else value
        for name, (low, high) in part.ranges.items():
            known = ranges.get(name)
            ranges[name] = (low, high) if known is None else (min(known[0], low), max(known[1], high))
    return Summary(nodes=nodes, feasible=feasible, plugins=plugins, ranges=ranges, late=late)
