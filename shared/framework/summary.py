"""What a round needs to know of all nodes together: computed by each shard over its own (map), merged (reduce)."""

from collections.abc import Iterable
from typing import Any

from flotilla.results import Range
from shared.framework.profile import Framework
from shared.messages.evaluation import Summary


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
