"""The kinds of nodes in the cluster: groups of nodes of which more could be added, for a question what if."""

from collections.abc import Iterable
from itertools import chain, count

import msgspec

from shared.model.resources import CPU
from tools.console.cluster import NodeEntry
from tools.whatif.capacity import GROUP_LABELS
from tools.whatif.groups import MAX_GROUPS


class NodeKind(msgspec.Struct, frozen=True):
    """`like`: one of its `nodes` nodes. `cpu`: allocatable cores of each, the price that the page proposes."""

    name: str
    like: str
    nodes: int
    cpu: float


def node_kinds(nodes: Iterable[NodeEntry]) -> list[NodeKind]:
    """Nodes of the same pool and size are of one kind; the most frequent kinds, as many as a question may have."""
    there = [node for node in nodes if node.allocatable]
    label = next((each for each in GROUP_LABELS if any(each in node.labels for node in there)), "")
    kinds: dict[tuple[object, ...], list[NodeEntry]] = {}
    for node in there:
        key = node.labels.get(label, ""), *sorted(node.allocatable.items())
        kinds.setdefault(key, []).append(node)
    found: list[NodeKind] = []
    names: set[str] = set()
    for members in sorted(kinds.values(), key=len, reverse=True)[:MAX_GROUPS]:
        like = min(members, key=lambda node: (node.unschedulable, node.name))
        name = like.labels.get(label) or like.name
        others = (f"{name}-{number}" for number in count(2))
        unique = next(each for each in chain([name], others) if each not in names)
        names.add(unique)
        found.append(NodeKind(unique, like.name, len(members), like.allocatable.get(CPU, 0) / 1000))
    return found
