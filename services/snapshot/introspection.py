"""Shows what the snapshot holds, and whether the API server lists the same: in answers, and on a signal in the log."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from services.snapshot.cache_comparer import AssignedPod, ClusterView, Get, compared, differences, lasting, list_cluster
from services.snapshot.node_pods import pods_on
from services.snapshot.state.cluster_state import ClusterState
from services.snapshot.state.ledger import Ledger
from shared.bounded import Listings
from shared.bus import Envelope
from shared.errors import FlotillaError
from shared.messages.inspection import (
    MAX_ENTRIES,
    MAX_NODES,
    MAX_PODS_OF_NODES,
    AssumedPod,
    CacheCompared,
    CachedNode,
    CachedPod,
    CacheListed,
    CompareCache,
    Difference,
    FindPod,
    LedgerListed,
    ListCache,
    ListLedger,
    ListPodsOn,
    MeasureNodes,
    NodesMeasured,
    PodFound,
    PodsOn,
)
from shared.messages.state import LedgerEntry
from shared.model.resources import PODS, allocatable
from shared.telemetry.fault import Fault

PAUSE = 2.0
"""Seconds from a listing to its comparison, in which the watch shows what was listed; and between two comparisons."""
COMPARE_TIMEOUT = 120.0
"""Seconds for the two listings of a comparison."""
MAX_LINES = 1000
"""Nodes, and assumed pods, in one log of the cache."""
BUSY = "the snapshot is listing another node's pods"
MAX_RESOURCES = 16
"""Of a node in a line of the log."""
MAX_MEASURED = 64
"""Resources in one answer about the sizes of nodes."""

Asked = ListCache | ListLedger | ListPodsOn | FindPod | MeasureNodes | CompareCache


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
        self._comparison: asyncio.Task[None] | None = None
        self._listing: asyncio.Task[None] | None = None
        self._asked: list[Callable[[CacheCompared], None]] = []
        """Get the result of the comparison that is under way."""

    def answer(self, asked: Asked, envelope: Envelope) -> None:
        match asked:
            case ListCache():
                envelope.respond(self._pages.nodes(asked, self._cluster, self._clock()))
            case ListLedger():
                envelope.respond(self._pages.ledger(asked, self._cluster, self._clock()))
            case FindPod():
                envelope.respond(find_pod(asked, self._cluster))
            case MeasureNodes():
                envelope.respond(measure_nodes(self._cluster))
            case ListPodsOn():
                self._list_pods_on(asked, envelope)
            case CompareCache():
                self._compare_for(envelope.respond)

    def dump(self) -> None:
        """Logs the cache, and after a while how it compares."""
        for line in lines(self._cluster, self._clock()):
            self._log.info("dump: %s", line)
        self._compare_for(self._log_compared)

    def expire(self) -> None:
        self._pages.expire(self._clock())

    def close(self) -> None:
        for task in (self._comparison, self._listing):
            if task is not None:
                task.cancel()

    def _list_pods_on(self, asked: ListPodsOn, envelope: Envelope) -> None:
        """One list at a time, so that askers cost the API server little."""
        if self._listing is not None and not self._listing.done():
            envelope.respond(PodsOn(problem=BUSY))
            return

        async def answer() -> None:
            envelope.respond(await pods_on(self._get, asked.node, asked.after))

        self._listing = asyncio.create_task(answer())
        self._fault.watch(self._listing)

    def _log_compared(self, compared: CacheCompared) -> None:
        for line in comparison_lines(compared):
            self._log.info("dump: %s", line)

    def _compare_for(self, tell: Callable[[CacheCompared], None]) -> None:
        """Runs one comparison at a time, which answers all who ask meanwhile."""
        self._asked.append(tell)
        if self._comparison is None or self._comparison.done():
            self._comparison = asyncio.create_task(self._compare())
            self._fault.watch(self._comparison)

    async def _compare(self) -> None:
        try:
            async with asyncio.timeout(COMPARE_TIMEOUT):
                listed, found = await self._differences()
                if found:
                    listed, again = await self._differences()
                    found = lasting(found, again)
            result = compared(listed, found)
        except TimeoutError:
            result = CacheCompared(failure=f"listing takes longer than {COMPARE_TIMEOUT:g} s")
        except FlotillaError as cause:
            result = CacheCompared(failure=str(cause))
        asked, self._asked = self._asked, []
        for tell in asked:
            tell(result)

    async def _differences(self) -> tuple[ClusterView, list[Difference]]:
        listed = await list_cluster(self._get)
        await asyncio.sleep(self._pause)
        return listed, differences(listed, view(self._cluster))


class CachePages:
    def __init__(self) -> None:
        self._nodes: Listings[str] = Listings()
        self._ledger: Listings[LedgerEntry] = Listings()

    def nodes(self, asked: ListCache, cluster: ClusterState, now: float) -> CacheListed:
        limit = min(asked.limit, MAX_NODES)
        page = self._nodes.page(asked.listing, asked.after, limit, lambda: _names(cluster), now)
        if page is None:
            return CacheListed("", cluster.epoch, cluster.seq, _counts(cluster), 0, [])
        nodes = _up_to_limit(_cached_nodes(page.items, cluster))
        left = len(page.items) - len(nodes)
        following = asked.after + len(nodes) if left else page.next
        return CacheListed(page.listing, cluster.epoch, cluster.seq, _counts(cluster), page.total, nodes, following)

    def ledger(self, asked: ListLedger, cluster: ClusterState, now: float) -> LedgerListed:
        limit, ledger = min(asked.limit, MAX_ENTRIES), cluster.ledger
        page = self._ledger.page(asked.listing, asked.after, limit, lambda: _by_deadline(ledger), now)
        if page is None:
            return LedgerListed("", 0, [])
        pods = [_assumed_pod(ledger, entry, now) for entry in page.items]
        return LedgerListed(page.listing, page.total, pods, page.next)

    def expire(self, now: float) -> None:
        self._nodes.expire(now)
        self._ledger.expire(now)


def find_pod(asked: FindPod, cluster: ClusterState) -> PodFound:
    """Of two pods of one name, the one that was placed last: the other one terminates."""
    key = f"{asked.namespace}/{asked.name}"
    found = [(uid, placement) for uid, placement in cluster.pods.items() if placement.key == key]
    if not found:
        return PodFound()
    uid, placement = found[-1]
    return PodFound(uid, placement.node, placement.assumed)


def measure_nodes(cluster: ClusterState) -> NodesMeasured:
    """Closed nodes count as what workers see of them: they have room for no pod."""
    largest: dict[str, int] = {}
    freest: dict[str, int] = {}
    for node in cluster.nodes:
        requested = cluster.pods.use_of(node.name).requests
        for name, amount in cluster.nodes.allocatable(node.name).items():
            free = amount - requested.get(name, 0)
            if amount > largest.get(name, 0):
                largest[name] = amount
            if free > freest.get(name, 0):
                freest[name] = free
    kept = sorted(largest)[:MAX_MEASURED]
    return NodesMeasured(
        len(cluster.nodes), {name: largest[name] for name in kept}, {name: freest.get(name, 0) for name in kept}
    )


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
        placements = [(uid, cluster.pods[uid]) for uid in cluster.pods.on_node(name)]
        pods = [CachedPod(uid, placement.key, placement.assumed) for uid, placement in placements]
        pods.sort(key=lambda pod: (pod.key, pod.uid))
        requested: Counter[str] = Counter()
        for _, placement in placements:
            requested.update(placement.load.requests)
        yield CachedNode(
            name,
            name in known,
            allocatable(known[name]) if name in known else {},
            dict(requested),
            len(pods),
            pods[:MAX_PODS_OF_NODES],
            nominated.get(name, [])[:MAX_PODS_OF_NODES],
            cluster.nodes.closed.why(name),
        )


def _up_to_limit(nodes: Iterator[CachedNode]) -> list[CachedNode]:
    """As many nodes as one answer may name pods of, and at least one."""
    taken: list[CachedNode] = []
    named = 0
    for node in nodes:
        named += len(node.pods) + len(node.nominated)
        if taken and named > MAX_PODS_OF_NODES:
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
