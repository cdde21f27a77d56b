"""Compares the snapshot's cache with what the API server lists, as kube-scheduler's cache comparer does.

Objects on their way from one to the other differ, too. So both are compared twice, a while apart, and only what differs
both times counts.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from services.snapshot.event_handlers import FINISHED_PHASES
from shared.errors import ClusterError
from shared.messages.inspection import MAX_DIFFERENCES, MAX_WAITING, CacheCompared, Difference, WaitingPod

PAGE = 1000
"""Objects in one page of a list."""
MISSING = "missing"
"""Listed, and not cached."""
REDUNDANT = "redundant"
"""Cached, and not listed."""
ELSEWHERE = "elsewhere"
"""A pod that is listed on another node than it is cached on."""

Get = Callable[[str], Awaitable[bytes | None]]
"""The object at a path of the API server."""


class AssignedPod(msgspec.Struct, frozen=True, gc=False):
    """`assumed`: not known to be bound to its node."""

    key: str
    node: str
    assumed: bool = False


class ClusterView(msgspec.Struct, frozen=True):
    """Nodes and unfinished assigned pods by uid, listed or cached.

    `pending`: pods that are listed without a node. `waiting`: those of them that are not being deleted.
    """

    nodes: frozenset[str]
    pods: Mapping[str, AssignedPod]
    pending: frozenset[str] = frozenset()
    waiting: Sequence[WaitingPod] = ()


def differences(listed: ClusterView, cached: ClusterView) -> list[Difference]:
    """In a fixed order. A pod that is listed without a node may be assumed."""
    found = [Difference("node", MISSING, name) for name in listed.nodes - cached.nodes]
    found += [Difference("node", REDUNDANT, name) for name in cached.nodes - listed.nodes]
    for uid, pod in listed.pods.items():
        known = cached.pods.get(uid)
        if known is None:
            found.append(Difference("pod", MISSING, pod.key, uid, listed_on=pod.node))
        elif known.node != pod.node:
            found.append(Difference("pod", ELSEWHERE, pod.key, uid, listed_on=pod.node, cached_on=known.node))
    for uid, pod in cached.pods.items():
        if uid not in listed.pods and not (pod.assumed and uid in listed.pending):
            found.append(Difference("pod", REDUNDANT, pod.key, uid, cached_on=pod.node))
    return sorted(found, key=lambda each: (each.kind, each.what, each.name, each.uid))


def lasting(first: Iterable[Difference], second: Iterable[Difference]) -> list[Difference]:
    """What differed in the same way both times."""
    before = set(first)
    return [each for each in second if each in before]


def compared(listed: ClusterView, found: list[Difference]) -> CacheCompared:
    named, waiting = found[:MAX_DIFFERENCES], list(listed.waiting[:MAX_WAITING])
    return CacheCompared(
        len(listed.nodes),
        len(listed.pods),
        len(listed.pending),
        named,
        len(found) - len(named),
        waiting_pods=waiting,
        waiting_more=len(listed.waiting) - len(waiting),
    )


# What the API server lists


class _Meta(msgspec.Struct, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    deletion_timestamp: str | None = msgspec.field(default=None, name="deletionTimestamp")


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""
    scheduler_name: str = ""


class _Status(msgspec.Struct, frozen=True):
    phase: str = ""


class _Item(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()
    spec: _Spec = _Spec()
    status: _Status = _Status()


class _ListMeta(msgspec.Struct, frozen=True, rename={"next": "continue"}):
    next: str = ""


class _List(msgspec.Struct, frozen=True):
    metadata: _ListMeta = _ListMeta()
    items: list[_Item] | None = None


_DECODE: Callable[[bytes], _List] = msgspec.json.Decoder(_List).decode


async def list_cluster(get: Get) -> ClusterView:
    """Raises ClusterError if the server does not answer with lists."""
    nodes = frozenset([item.metadata.name async for item in _items(get, "/api/v1/nodes")])
    pods: dict[str, AssignedPod] = {}
    pending: set[str] = set()
    waiting: list[WaitingPod] = []
    async for item in _items(get, "/api/v1/pods"):
        meta = item.metadata
        if item.status.phase in FINISHED_PHASES:
            continue
        if item.spec.node_name:
            pods[meta.uid] = AssignedPod(f"{meta.namespace}/{meta.name}", item.spec.node_name)
        else:
            pending.add(meta.uid)
            if meta.deletion_timestamp is None:
                waiting.append(WaitingPod(meta.uid, f"{meta.namespace}/{meta.name}", item.spec.scheduler_name))
    return ClusterView(nodes, pods, frozenset(pending), waiting)


async def _items(get: Get, path: str) -> AsyncIterator[Any]:
    following = ""
    while True:
        query = f"{path}?limit={PAGE}" + (f"&continue={quote(following, safe='')}" if following else "")
        body = await get(query)
        if body is None:
            raise ClusterError(f"GET {path}: there is no such list")
        try:
            listed = _DECODE(body)
        except msgspec.DecodeError as cause:
            raise ClusterError(f"GET {path}: not a list: {cause}") from cause
        for item in listed.items or ():
            yield item
        following = listed.metadata.next
        if not following:
            return
