"""The late summary: what is known once it is known which nodes are feasible.

`nodes`: the feasible nodes that have the labels of all soft constraints, where one of these is of hosts. `domains`:
those that they are in, for each soft constraint; None for one of hosts. `reliable`: for each hard constraint, whether
all feasible nodes take part in it.
"""

from typing import Any

import numpy as np

from flotilla.plugin import ABSENT, LabelValue, Mask
from shared.cluster.changes import Rows
from shared.plugins.podtopologyspread.census import NO_LABEL, Census

Late = dict[str, Any]


def late_summary(hard: Census | None, soft: Census | None, feasible: Mask) -> Late:
    """This shard's part."""
    domains = [] if soft is None else _domains(soft, np.flatnonzero(feasible & soft.has_keys))
    return {
        "nodes": 0 if soft is None or None not in domains else int(np.count_nonzero(feasible & soft.has_keys)),
        "domains": domains,
        "reliable": [] if hard is None else _reliable(hard, feasible),
    }


def merge_late(one: Late, other: Late) -> Late:
    return {
        "nodes": one["nodes"] + other["nodes"],
        "domains": [
            None if a is None or b is None else sorted({*a, *b})
            for a, b in zip(one["domains"], other["domains"], strict=True)
        ],
        "reliable": [a and b for a, b in zip(one["reliable"], other["reliable"], strict=True)],
    }


def _domains(census: Census, chosen: Rows) -> list[list[str] | None]:
    domains: list[list[str] | None] = []
    for constraint in census.rules.constraints:
        if constraint.is_of_hosts:
            domains.append(None)
            continue
        values = census.table.columns.of_nodes(LabelValue(constraint.key))[chosen]
        names = census.table.label_values(constraint.key).items
        domains.append(sorted({NO_LABEL if n == ABSENT else names[n] for n in np.unique(values).tolist()}))
    return domains


def _reliable(census: Census, feasible: Mask) -> list[bool]:
    labelled = feasible & census.has_keys
    return [tally is None or not bool((labelled & ~tally.taking_part).any()) for tally in census.tallies]
