"""What there is to be seen of a pipeline when it should be at rest: over NATS, in Redis, and in the cluster itself."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from shared.bus.subjects import SNAPSHOT_LIST
from shared.errors import ClusterError, FlotillaError
from shared.messages.inspection import (
    CacheCompared,
    CachedPod,
    CacheListed,
    CompareCache,
    DescribedPod,
    ListCache,
    ListQueue,
    QueueListed,
)
from shared.messages.state import LedgerEntry
from shared.model.objects import Pod
from shared.store.link import RedisLink, connect
from shared.store.schema import Keys, decode_entry
from shared.telemetry.logs import logger
from testing.auditor.usage import demand_of
from tools.cli.asking import ANSWER_PATIENCE, Asker
from tools.cli.dump import COMPARISON_PATIENCE
from tools.cli.faults.load import FILLER, FILLER_MISFIT, MISFITS, TIGHT, kind_of
from tools.cli.faults.stage import Stage
from tools.cli.queue import listed

AT_REST = frozenset({"unschedulable", "gated"})
CONDITION, UNSCHEDULABLE = "PodScheduled", "Unschedulable"
LOOK_EVERY = 0.3
LOOKS = 3
"""So often in a row all has to be quiet."""


class Looking:
    """`slowest`: what came to rest last, when that was last waited for."""

    def __init__(self, stage: Stage, redis: RedisLink, nodes: int) -> None:
        self.slowest = ""
        self._nodes = nodes
        self._stage = stage
        self._redis = redis
        self._settings = stage.pipeline.options.settings
        self._asker = Asker(stage.bus, self._settings)

    async def until_quiet(self, patience: float) -> str:
        """What is still going on after that; empty as soon as nothing is."""
        deadline, looks = time.monotonic() + patience, 0
        self.slowest = ""
        while True:
            unrest = await self.unrest()
            self.slowest = unrest or self.slowest
            looks = 0 if unrest else looks + 1
            if looks == LOOKS or (unrest and time.monotonic() > deadline):
                return unrest
            await asyncio.sleep(LOOK_EVERY)

    async def unrest(self) -> str:
        """What is going on at present; empty if nothing is."""
        fitting = [pod for pod in self.waiting() if self.misfit(pod) is None]
        if fitting:
            return f"{len(fitting)} pods that fit are not bound: {await self.standing(fitting[0])}"
        if terminating := self._stage.witness.terminating():
            return f"{terminating} pods are being deleted"
        if unready := await self._stage.pipeline.unready():
            return f"not ready: {unready}"
        try:
            busy = {place: count for place, count in (await self.counts()).items() if count and place not in AT_REST}
            assumed = await self.assumed()
        except FlotillaError as cause:
            return str(cause)
        if busy:
            return f"in the queue: {busy}"
        if assumed:
            return f"{len(assumed)} pods are in the ledger: {assumed[0]}"
        untold = [pod for pod in self.waiting() if self.untold(pod)]
        return f"{len(untold)} pods do not say why they wait, {untold[0].name} is one of them" if untold else ""

    def waiting(self) -> list[Pod]:
        """The pods that are on no node and are not being deleted."""
        return [pod for pod in self._stage.witness.waiting() if pod.metadata.deletion_timestamp is None]

    def misfit(self, pod: Pod) -> str | None:
        """What its condition is to say about why it fits nowhere now; none if it fits."""
        kind = kind_of(pod.name)
        if kind == FILLER:
            return None if self._stage.witness.has_room(demand_of(pod), TIGHT) else FILLER_MISFIT
        return MISFITS.get(kind)

    def untold(self, pod: Pod) -> str:
        """What is wrong with the condition of a pod that fits nowhere; empty if it says why."""
        why = self.misfit(pod)
        subject = f"pod {pod.name} ({pod.uid}) fits nowhere, and"
        condition = next((each for each in pod.status.conditions if each.type == CONDITION), None)
        if condition is None:
            return f"{subject} has no condition {CONDITION}"
        said = (condition.status, condition.reason) == ("False", UNSCHEDULABLE)
        if said and f"0/{self._nodes} nodes are available" in condition.message and (why or "") in condition.message:
            return ""
        return f"{subject} its condition is {condition.status}, {condition.reason}: {condition.message!r}"

    async def counts(self) -> dict[str, int]:
        """The queue's pods by place."""
        async for page in listed(self._asker, ListQueue(), limit=1):
            return page.counts
        return {}

    async def queue(self, name: str = "", namespace: str = "") -> list[tuple[DescribedPod, QueueListed]]:
        """Its pods; those of this name with their stories."""
        asked = ListQueue(namespace=namespace, name=name)
        return [(pod, page) async for page in listed(self._asker, asked) for pod in page.pods]

    async def standing(self, pod: Pod) -> str:
        """Where a pod is, in a few words."""
        try:
            found = await self.queue(pod.name, pod.metadata.namespace)
        except FlotillaError as cause:
            return f"{pod.name} ({cause})"
        if not found:
            return f"{pod.name} is not in the queue"
        told, page = found[0]
        return f"{pod.name} is {told.place} for {page.now - told.since:.1f} s ({told.gate or told.why})"

    async def assumed(self) -> list[str]:
        """What the ledger in Redis holds: pods, and what is so of them."""
        values = await self._redis.call("HVALS", Keys(self._settings.prefix).ledger)
        return [self._described(entry) for entry in map(decode_entry, values)]

    def _described(self, entry: LedgerEntry) -> str:
        seen = self._stage.witness.pods.get(entry.uid)
        standing = "is gone" if seen is None else f"is on {seen.node}" if seen.node else "is on no node"
        left = entry.deadline - time.monotonic()
        return f"{entry.key} ({entry.uid}), assumed on {entry.node}, {standing}, {left:.1f} s left"

    async def compared(self) -> CacheCompared:
        return await self._asker.ask("snapshot", SNAPSHOT_LIST, CompareCache(), CacheCompared, COMPARISON_PATIENCE)

    async def nominated(self) -> list[tuple[str, CachedPod]]:
        """Those for whom the snapshot keeps room, and on which node."""
        asked, found = ListCache(), list[tuple[str, CachedPod]]()
        while True:
            page = await self._asker.ask("snapshot", SNAPSHOT_LIST, asked, CacheListed, ANSWER_PATIENCE)
            if not page.listing:
                raise ClusterError("the snapshot has begun anew while it was listed")
            found += [(node.name, pod) for node in page.nodes for pod in node.nominated]
            if not page.next:
                return found
            asked = msgspec.structs.replace(asked, listing=page.listing, after=page.next)


@asynccontextmanager
async def looking(stage: Stage, nodes: int) -> AsyncIterator[Looking]:
    """`nodes`: how many there are."""
    redis = await connect(stage.redis.url, logger("faults"))
    try:
        yield Looking(stage, redis, nodes)
    finally:
        await redis.close()
