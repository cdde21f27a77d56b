"""The snapshot's cache against what the API server lists, as kube-scheduler's cache comparer holds them together.

What is on its way from the one to the other differs, too. So it is looked at twice, a while apart, and only what
differs both times counts.
"""

from collections.abc import Iterable, Mapping

import msgspec

from shared.messages.inspection import MOST_DIFFERENCES, CacheCompared, Difference

MISSING = "missing"
"""Listed, and not cached."""
REDUNDANT = "redundant"
"""Cached, and not listed."""
ELSEWHERE = "elsewhere"
"""A pod that is listed on another node than it is cached on."""


class PlacedPod(msgspec.Struct, frozen=True, gc=False):
    """`assumed`: on that node by our decision, and not known to be bound there."""

    key: str
    node: str
    assumed: bool = False


class View(msgspec.Struct, frozen=True):
    """Nodes, and the unfinished pods that are on one, by uid; listed or cached. `waiting`: those listed on none."""

    nodes: frozenset[str]
    pods: Mapping[str, PlacedPod]
    waiting: frozenset[str] = frozenset()


def differences(listed: View, cached: View) -> list[Difference]:
    """In a fixed order. A pod that is listed on no node may be assumed to be on one."""
    found = [Difference("node", MISSING, name) for name in listed.nodes - cached.nodes]
    found += [Difference("node", REDUNDANT, name) for name in cached.nodes - listed.nodes]
    for uid, pod in listed.pods.items():
        known = cached.pods.get(uid)
        if known is None:
            found.append(Difference("pod", MISSING, pod.key, uid, listed_on=pod.node))
        elif known.node != pod.node:
            found.append(Difference("pod", ELSEWHERE, pod.key, uid, listed_on=pod.node, cached_on=known.node))
    for uid, pod in cached.pods.items():
        if uid not in listed.pods and not (pod.assumed and uid in listed.waiting):
            found.append(Difference("pod", REDUNDANT, pod.key, uid, cached_on=pod.node))
    return sorted(found, key=lambda each: (each.kind, each.what, each.name, each.uid))


def lasting(first: Iterable[Difference], second: Iterable[Difference]) -> list[Difference]:
    """What differed in the same way both times."""
    before = {_identity(each) for each in first}
    return [each for each in second if _identity(each) in before]


def compared(listed: View, found: list[Difference]) -> CacheCompared:
    """As it is answered: bounded."""
    named = found[:MOST_DIFFERENCES]
    return CacheCompared(len(listed.nodes), len(listed.pods), len(listed.waiting), named, len(found) - len(named))


def _identity(each: Difference) -> tuple[str, str, str, str, str]:
    return each.kind, each.what, each.uid or each.name, each.listed_on, each.cached_on
