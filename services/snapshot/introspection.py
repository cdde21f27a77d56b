"""What the snapshot holds, for whoever asks: its nodes with what is on them, and the ledger.

Looks, and changes nothing.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from services.snapshot.cache_comparer import PlacedPod, View
from services.snapshot.state.ledger import Ledger
from services.snapshot.state.nodes import Nodes
from services.snapshot.state.nominator import Nominations
from services.snapshot.state.placements import Places
from shared.messages.inspection import (
    MOST_ENTRIES,
    MOST_NODES,
    MOST_PODS_OF_NODES,
    AssumedPod,
    CacheCompared,
    CachedNode,
    CachedPod,
    CacheListed,
    LedgerListed,
    ListCache,
    ListLedger,
)
from shared.messages.state import LedgerEntry
from shared.model.objects import Node
from shared.model.resources import PODS, allocatable
from shared.runtime.listings import Listings

MOST_LINES = 1000
SHOWN_RESOURCES = 16
"""Of a node in a line of the log."""


class Cache(NamedTuple):
    """The parts of the snapshot's core."""

    epoch: int
    seq: int
    nodes: Nodes
    pods: Places
    nominations: Nominations
    ledger: Ledger

    @property
    def counts(self) -> dict[str, int]:
        return {
            "nodes": len(self.nodes),
            "pods": len(self.pods),
            "assumed_pods": len(self.ledger),
            "nominated_pods": len(self.nominations),
        }

    def view(self) -> View:
        """For a comparison with what is listed."""
        pods = {uid: PlacedPod(place.key, place.node, place.assumed) for uid, place in self.pods.items()}
        return View(frozenset(node.name for node in self.nodes), pods)


class Dumps:
    """Answers in pages."""

    def __init__(self) -> None:
        self._nodes: Listings[str] = Listings()
        self._ledger: Listings[LedgerEntry] = Listings()

    def nodes(self, asked: ListCache, cache: Cache, now: float) -> CacheListed:
        limit = min(asked.limit, MOST_NODES)
        page = self._nodes.page(asked.listing, asked.after, limit, lambda: _names(cache), now)
        if page is None:
            return CacheListed("", cache.epoch, cache.seq, cache.counts, 0, [])
        described = _within(_described(page.items, cache))
        left = len(page.items) - len(described)
        following = asked.after + len(described) if left else page.next
        return CacheListed(page.listing, cache.epoch, cache.seq, cache.counts, page.total, described, following)

    def ledger(self, asked: ListLedger, cache: Cache, now: float) -> LedgerListed:
        limit = min(asked.limit, MOST_ENTRIES)
        page = self._ledger.page(asked.listing, asked.after, limit, lambda: _by_deadline(cache.ledger), now)
        if page is None:
            return LedgerListed("", 0, [])
        return LedgerListed(
            page.listing, page.total, [_assumed(cache.ledger, entry, now) for entry in page.items], page.next
        )

    def expire(self, now: float) -> None:
        self._nodes.expire(now)
        self._ledger.expire(now)


def lines(cache: Cache, now: float) -> Iterator[str]:
    """For a log: the nodes and the ledger, each up to so many."""
    yield f"the cache of epoch {cache.epoch} at {cache.seq} holds {cache.counts}"
    names = _names(cache)
    for node in _described(names[:MOST_LINES], cache):
        nominated = f", nominated to it {', '.join(pod.key for pod in node.nominated)}" if node.nominated else ""
        gone = "" if node.known else " (not known)"
        closed = f", closed: {node.closed}" if node.closed else ""
        yield f"node {node.name}{gone}: {node.pod_count} pods, {_amounts(node)}{nominated}{closed}"
    if len(names) > MOST_LINES:
        yield f"and {len(names) - MOST_LINES} more nodes: flotilla dump tells of all"
    entries = _by_deadline(cache.ledger)
    for pod in (_assumed(cache.ledger, entry, now) for entry in entries[:MOST_LINES]):
        age = "" if pod.age is None else f" for {pod.age:.1f} s"
        bound = ", told to be bound" if pod.bound else ""
        yield f"assumed{age}: pod {pod.key} ({pod.uid}) on {pod.node}, looked up in {pod.due_in:.1f} s{bound}"
    if len(entries) > MOST_LINES:
        yield f"and {len(entries) - MOST_LINES} more assumed pods: flotilla dump tells of all"


def comparison_lines(compared: CacheCompared) -> Iterator[str]:
    if compared.failure:
        yield f"the cache cannot be compared with the API server: {compared.failure}"
        return
    total = len(compared.differences) + compared.more
    yield f"compared with {compared.nodes} nodes and {compared.pods} pods of the API server: {total} differences"
    for each in compared.differences:
        where = f", listed on {each.listed_on}" if each.listed_on else ""
        where += f", cached on {each.cached_on}" if each.cached_on else ""
        yield f"{each.what}: {each.kind} {each.name}{f' ({each.uid})' if each.uid else ''}{where}"


def _names(cache: Cache) -> list[str]:
    """Of all nodes, and of those that only pods speak of."""
    spoken_of = {place.node for _, place in cache.pods.items()}
    return sorted(spoken_of.union(node.name for node in cache.nodes))


def _described(names: Sequence[str], cache: Cache) -> Iterator[CachedNode]:
    wanted = frozenset(names)
    known = {node.name: node for node in cache.nodes if node.name in wanted}
    nominated: dict[str, list[CachedPod]] = {}
    for uid, nomination in cache.nominations:
        if uid not in cache.pods:
            nominated.setdefault(nomination.node, []).append(CachedPod(uid, nomination.key))
    for name in names:
        yield _node(name, known.get(name), nominated.get(name, []), cache)


def _node(name: str, node: Node | None, nominated: list[CachedPod], cache: Cache) -> CachedNode:
    requested: Counter[str] = Counter()
    pods: list[CachedPod] = []
    for uid in cache.pods.on_node(name):
        place = cache.pods[uid]
        requested.update(place.load.requests)
        pods.append(CachedPod(uid, place.key, place.assumed))
    pods.sort(key=lambda pod: (pod.key, pod.uid))
    has = {} if node is None else allocatable(node)
    return CachedNode(
        name,
        node is not None,
        has,
        dict(requested),
        len(pods),
        pods[:MOST_PODS_OF_NODES],
        nominated[:MOST_PODS_OF_NODES],
        cache.nodes.closed.why(name),
    )


def _within(nodes: Iterator[CachedNode]) -> list[CachedNode]:
    """As many as one answer may name pods of, and at least one."""
    taken: list[CachedNode] = []
    named = 0
    for node in nodes:
        named += len(node.pods) + len(node.nominated)
        if taken and named > MOST_PODS_OF_NODES:
            break
        taken.append(node)
    return taken


def _by_deadline(ledger: Ledger) -> list[LedgerEntry]:
    return sorted(ledger, key=lambda entry: (entry.deadline, entry.uid))


def _assumed(ledger: Ledger, entry: LedgerEntry, now: float) -> AssumedPod:
    return AssumedPod(
        entry.uid,
        entry.key,
        entry.node,
        entry.profile,
        entry.attempt,
        due_in=ledger.due_in(entry.uid, now),
        age=now + ledger.ahead - entry.assumed_at if entry.assumed_at else None,
        bound=entry.bound,
    )


def _amounts(node: CachedNode) -> str:
    """What is requested of what there is: `cpu 500/4000`."""
    names = sorted((node.requested.keys() | node.allocatable.keys()) - {PODS})
    shown = [f"{name} {node.requested.get(name, 0)}/{node.allocatable.get(name, 0)}" for name in names]
    more = f" and {len(shown) - SHOWN_RESOURCES} more" if len(shown) > SHOWN_RESOURCES else ""
    return f"{', '.join(shown[:SHOWN_RESOURCES])}{more}"
