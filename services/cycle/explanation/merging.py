"""The findings of all shards about one pod as one."""

from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from typing import TypeVar

from msgspec.structs import replace

from shared.messages.explaining import (
    BEST_NODES,
    MAX_EXAMPLES,
    MAX_GROUPS,
    MAX_NAMED,
    MAX_OFFERED,
    Blocked,
    Cause,
    NamedPod,
    NodeFindings,
    NodeModel,
    Rejected,
)
from shared.plugins.preemption import best_of

E = TypeVar("E", str, NamedPod)
T = TypeVar("T", Rejected, Blocked, Cause, NodeModel)


def merge_findings(parts: Sequence[NodeFindings]) -> NodeFindings:
    """Independent of how nodes are divided among shards, but for which nodes are named as examples."""
    first = parts[0]
    failure = next((part.failure for part in parts if part.failure is not None), None)
    pre_filter = next((part.pre_filter for part in parts if part.pre_filter is not None), None)
    best = sorted((each for part in parts for each in part.best), key=lambda each: (-each.total, each.node))
    shortages = sorted((each for part in parts for each in part.shortages), key=lambda each: (each.missing, each.node))
    one_of_a_kind = {frozenset(each.free): each for each in reversed(shortages)}
    candidates = best_of([each for part in parts for each in part.candidates])[:1]
    return NodeFindings(
        nodes=sum(part.nodes for part in parts),
        feasible=sum(part.feasible for part in parts),
        failure=failure,
        pre_filter=pre_filter,
        restricted_by=first.restricted_by,
        rejected=_merged((each for part in parts for each in part.rejected), lambda each: each.status, _rejected),
        blocked=_by_plugins(_merged((each for p in parts for each in p.blocked), lambda each: each.plugins, _blocked)),
        causes=_merged(
            (each for part in parts for each in part.causes), lambda each: (each.plugin, each.what, each.name), _cause
        ),
        shortages=tuple(sorted(one_of_a_kind.values(), key=lambda each: (each.missing, each.node))[:MAX_EXAMPLES]),
        best=tuple(best[:BEST_NODES]),
        skipped_scores=first.skipped_scores,
        verdicts=tuple(sorted((each for part in parts for each in part.verdicts), key=lambda each: each.node)),
        models=_merged(
            (each for part in parts for each in part.models),
            lambda each: tuple(sorted(each.allocatable.items())),
            _model,
        ),
        ineligible=next((part.ineligible for part in parts if part.ineligible), ""),
        candidates=tuple(candidates),
        offers=tuple(each for part in parts for each in part.offers)[: MAX_OFFERED + 1],
    )


def _merged(
    parts: Iterable[T], key: Callable[[T], object], together: Callable[[T, T], T], most: int = MAX_GROUPS
) -> tuple[T, ...]:
    """One of each key, those of most nodes first."""
    found: dict[object, T] = {}
    for part in parts:
        known = found.get(key(part))
        found[key(part)] = part if known is None else together(known, part)
    return tuple(sorted(found.values(), key=lambda each: (-each.nodes, str(key(each))))[:most])


def _by_plugins(blocked: tuple[Blocked, ...]) -> tuple[Blocked, ...]:
    """Nodes that fewest plugins keep out first."""
    return tuple(sorted(blocked, key=lambda each: (len(each.plugins), -each.nodes, each.plugins)))


def _examples(one: Rejected | Blocked | Cause, other: Rejected | Blocked | Cause) -> tuple[str, ...]:
    return tuple(sorted((*one.examples, *other.examples))[:MAX_EXAMPLES])


def _in_turn(one: Sequence[E], other: Sequence[E]) -> list[E]:
    """The first of each, then the second of each."""
    return [each for pair in zip_longest(one, other) for each in pair if each is not None]


def _rejected(one: Rejected, other: Rejected) -> Rejected:
    names = (*one.names, *other.names)[:MAX_NAMED]
    return Rejected(one.status, one.nodes + other.nodes, _examples(one, other), names)


def _blocked(one: Blocked, other: Blocked) -> Blocked:
    return Blocked(one.plugins, one.nodes + other.nodes, _examples(one, other))


def _cause(one: Cause, other: Cause) -> Cause:
    """The first examples of each shard are the most telling ones."""
    ahead, behind = (other, one) if other.free > one.free else (one, other)
    examples = (*ahead.examples, *behind.examples) if one.what == "resource" else _in_turn(one.examples, other.examples)
    return replace(
        ahead,
        nodes=one.nodes + other.nodes,
        first=one.first + other.first,
        examples=tuple(examples[:MAX_EXAMPLES]),
        whole=max(one.whole, other.whole),
        pods=tuple(_in_turn(one.pods, other.pods)[:MAX_EXAMPLES]),
    )


def _model(one: NodeModel, other: NodeModel) -> NodeModel:
    node = min(one.node, other.node)
    return NodeModel(node, one.nodes + other.nodes, one.allocatable, one.instance_type or other.instance_type)
