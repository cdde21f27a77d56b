"""Shows what the snapshot holds, and whether the API server lists the same: in answers, and on a signal in the log."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence

from services.snapshot.cache_comparer import (
    AssignedPod,
    ClusterView,
    Get,
    compared,
    differences,
    lasting,
    list_cluster,
)
from services.snapshot.state.cluster_state import ClusterState
from services.snapshot.state.ledger import Ledger
from shared.bounded import Listings
from shared.bus import Envelope
from shared.errors import FlotillaError
from shared.messages.inspection import (
    MOST_ENTRIES,
    MOST_NODES,
    MOST_PODS_OF_NODES,
    AssumedPod,
    CacheCompared,
    CachedNode,
    CachedPod,
    CacheListed,
    CompareCache,
    Difference,
    LedgerListed,
    ListCache,
    ListLedger,
)
from shared.messages.state import LedgerEntry
from shared.model.objects import Node
from shared.model.resources import PODS, allocatable
from shared.telemetry.fault import Fault

PAUSE = 2.0
"""Seconds from a listing to its comparison, in which the watch shows what was listed; and between two comparisons."""
COMPARE_TIMEOUT = 120.0
"""Seconds for the two listings of a comparison."""
MAX_LINES = 1000
"""Nodes, and assumed pods, in one log of the cache."""
MAX_RESOURCES = 16
"""Of a node in a line of the log."""


class Introspection:
    def __init__(
        self,
        cluster: ClusterState,
        get: Get,
        clock: Callable[[], float],
        log: logging.Logger,
        fault: Fault,
        pause: float = PAUSE,
    ) -> None:
        self._cluster = cluster
        self._get = get
        self._clock = clock
        self._log = log
        self._fault = fault
        self._pause = pause
        self._pages = CachePages()
        self._comparison: asyncio.Task[CacheCompared] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def answer(self, asked: ListCache | ListLedger | CompareCache, envelope: Envelope) -> None:
        match asked:
            case ListCache():
                envelope.respond(self._pages.nodes(asked, self._cluster, self._clock()))
            case ListLedger():
                envelope.respond(self._pages.ledger(asked, self._cluster, self._clock()))
            case CompareCache():
                self._spawn(self._answer_compared(envelope))

    def dump(self) -> None:
        """Logs the cache, and after a while how it compares."""
        for line in lines(self._cluster, self._clock()):
            self._log.info("dump: %s", line)
        self._spawn(self._log_compared())

    def expire(self) -> None:
        self._pages.expire(self._clock())

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._comparison is not None:
            self._comparison.cancel()

    async def _answer_compared(self, envelope: Envelope) -> None:
        envelope.respond(await self._compared())

    async def _log_compared(self) -> None:
        for line in comparison_lines(await self._compared()):
            self._log.info("dump: %s", line)

    async def _compared(self) -> CacheCompared:
        """Runs one comparison at a time, which answers all who ask meanwhile."""
        if self._comparison is None or self._comparison.done():
            self._comparison = asyncio.create_task(self._compare())
        return await asyncio.shield(self._comparison)

    async def _compare(self) -> CacheCompared:
        try:
            async with asyncio.timeout(COMPARE_TIMEOUT):
                listed, found = await self._differences()
                if found:
                    listed, again = await self._differences()
                    found = lasting(found, again)
        except TimeoutError:
            return CacheCompared(failure=f"listing takes longer than {COMPARE_TIMEOUT:g} s")
        except FlotillaError as cause:
            return CacheCompared(failure=str(cause))
        return compared(listed, found)

    async def _differences(self) -> tuple[ClusterView, list[Difference]]:
        listed = await list_cluster(self._get)
        await asyncio.sleep(self._pause)
        return listed, differences(listed, view(self._cluster))

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._fault.watch(task)


class CachePages:
    def __init__(self) -> None:
        self._nodes: Listings[str] = Listings()
        self._ledger: Listings[LedgerEntry] = Listings()

    def nodes(self, asked: ListCache, cluster: ClusterState, now: float) -> CacheListed:
        limit = min(asked.limit, MOST_NODES)
        page = self._nodes.page(asked.listing, asked.after, limit, lambda: _names(cluster), now)
        if page is None:
            return CacheListed("", cluster.epoch, cluster.seq, _counts(cluster), 0, [])
        nodes = _up_to_limit(_cached_nodes(page.items, cluster))
        left = len(page.items) - len(nodes)
        following = asked.after + len(nodes) if left else page.next
        return CacheListed(page.listing, cluster.epoch, cluster.seq, _counts(cluster), page.total, nodes, following)

    def ledger(self, asked: ListLedger, cluster: ClusterState, now: float) -> LedgerListed:
        limit, ledger = min(asked.limit, MOST_ENTRIES), cluster.ledger
        page = self._ledger.page(asked.listing, asked.after, limit, lambda: _by_deadline(ledger), now)
        if page is None:
            return LedgerListed("", 0, [])
        pods = [_assumed_pod(ledger, entry, now) for entry in page.items]
        return LedgerListed(page.listing, page.total, pods, page.next)

    def expire(self, now: float) -> None:
        self._nodes.expire(now)
        self._ledger.expire(now)


def view(cluster: ClusterState) -> ClusterView:
    """For a comparison with what is listed."""
    pods = {uid: AssignedPod(each.key, each.node, each.assumed) for uid, each in cluster.pods.items()}
    return ClusterView(frozenset(node.name for node in cluster.nodes), pods)


def lines(cluster: ClusterState, now: float) -> Iterator[str]:
    """Lines for the log: nodes and assumed pods, up to MAX_LINES each."""
    yield f"the cache of epoch {cluster.epoch} at {cluster.seq} holds {_counts(cluster)}"
    names = _names(cluster)
    for node in _cached_nodes(names[:MAX_LINES], cluster):
        nominated = f", nominated to it {', '.join(pod.key for pod in node.nominated)}" if node.nominated else ""
        unknown = "" if node.known else " (not known)"
        closed = f", closed: {node.closed}" if node.closed else ""
        yield f"node {node.name}{unknown}: {node.pod_count} pods, {_amounts(node)}{nominated}{closed}"
    if len(names) > MAX_LINES:
        yield f"and {len(names) - MAX_LINES} more nodes: flotilla dump lists all"
    entries = _by_deadline(cluster.ledger)
    for pod in (_assumed_pod(cluster.ledger, entry, now) for entry in entries[:MAX_LINES]):
        age = "" if pod.age is None else f" for {pod.age:.1f} s"
        bound = ", reported bound" if pod.bound else ""
        yield f"assumed{age}: pod {pod.key} ({pod.uid}) on {pod.node}, looked up in {pod.due_in:.1f} s{bound}"
    if len(entries) > MAX_LINES:
        yield f"and {len(entries) - MAX_LINES} more assumed pods: flotilla dump lists all"


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


def _counts(cluster: ClusterState) -> dict[str, int]:
    counts = cluster.counts()
    del counts["objects"]
    return counts


def _names(cluster: ClusterState) -> list[str]:
    """Of all nodes, and of unknown ones that pods name."""
    named = {placement.node for _, placement in cluster.pods.items()}
    return sorted(named.union(node.name for node in cluster.nodes))


def _cached_nodes(names: Sequence[str], cluster: ClusterState) -> Iterator[CachedNode]:
    wanted = frozenset(names)
    known = {node.name: node for node in cluster.nodes if node.name in wanted}
    nominated: dict[str, list[CachedPod]] = {}
    for uid, nomination in cluster.nominator:
        if uid not in cluster.pods:
            nominated.setdefault(nomination.node, []).append(CachedPod(uid, nomination.key))
    for name in names:
        yield _cached_node(name, known.get(name), nominated.get(name, []), cluster)


def _cached_node(name: str, node: Node | None, nominated: list[CachedPod], cluster: ClusterState) -> CachedNode:
    requested: Counter[str] = Counter()
    pods: list[CachedPod] = []
    for uid in cluster.pods.on_node(name):
        placement = cluster.pods[uid]
        requested.update(placement.load.requests)
        pods.append(CachedPod(uid, placement.key, placement.assumed))
    pods.sort(key=lambda pod: (pod.key, pod.uid))
    has = {} if node is None else allocatable(node)
    closed, limit = cluster.nodes.closed.why(name), MOST_PODS_OF_NODES
    return CachedNode(name, node is not None, has, dict(requested), len(pods), pods[:limit], nominated[:limit], closed)


def _up_to_limit(nodes: Iterator[CachedNode]) -> list[CachedNode]:
    """As many nodes as one answer may name pods of, and at least one."""
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


def _assumed_pod(ledger: Ledger, entry: LedgerEntry, now: float) -> AssumedPod:
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
    """Requested of allocatable: `cpu 500/4000`."""
    names = sorted((node.requested.keys() | node.allocatable.keys()) - {PODS})
    shown = [f"{name} {node.requested.get(name, 0)}/{node.allocatable.get(name, 0)}" for name in names]
    more = f" and {len(shown) - MAX_RESOURCES} more" if len(shown) > MAX_RESOURCES else ""
    return f"{', '.join(shown[:MAX_RESOURCES])}{more}"
