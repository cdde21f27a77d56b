"""Inspects a pipeline that should be idle: over NATS, in Redis and in the cluster."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from shared.bus.subjects import SNAPSHOT_LIST
from shared.errors import FlotillaError
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
from tools.cli.queue import queue_pages
from tools.cli.service_client import COMPARISON_TIMEOUT, ServiceClient
from tools.faults.environment import Environment
from tools.faults.workload import FILLER, FILLER_MISFIT, MISFITS, TIGHT, kind_of

IDLE = frozenset({"unschedulable", "gated"})
CONDITION, UNSCHEDULABLE = "PodScheduled", "Unschedulable"
POLL_INTERVAL = 0.3
IDLE_POLLS = 3
"""Consecutive idle polls required."""


class Inspector:
    """`last_activity`: what became idle last."""

    def __init__(self, environment: Environment, redis: RedisLink, nodes: int) -> None:
        self.last_activity = ""
        self._nodes = nodes
        self._environment = environment
        self._redis = redis
        self._settings = environment.pipeline.options.settings
        self._client = ServiceClient(environment.bus, self._settings)

    async def wait_until_idle(self, timeout: float) -> str:
        """Returns an empty string once idle, or the activity that is left after the time-out."""
        deadline, polls = time.monotonic() + timeout, 0
        self.last_activity = ""
        while True:
            activity = await self.activity()
            self.last_activity = activity or self.last_activity
            polls = 0 if activity else polls + 1
            if polls == IDLE_POLLS or (activity and time.monotonic() > deadline):
                return activity
            await asyncio.sleep(POLL_INTERVAL)

    async def activity(self) -> str:
        """What is going on now; empty if the pipeline is idle."""
        fitting = [pod for pod in self.waiting() if self.misfit(pod) is None]
        if fitting:
            return f"{len(fitting)} pods that fit are not bound: {await self.describe(fitting[0])}"
        if terminating := self._environment.witness.terminating():
            return f"{terminating} pods are being deleted"
        if unready := await self._environment.pipeline.unready():
            return f"not ready: {unready}"
        try:
            busy = {place: count for place, count in (await self.counts()).items() if count and place not in IDLE}
            assumed = await self.assumed()
        except FlotillaError as cause:
            return str(cause)
        if busy:
            return f"in the queue: {busy}"
        if assumed:
            return f"{len(assumed)} pods are in the ledger: {assumed[0]}"
        wrong = [pod for pod in self.waiting() if self.wrong_condition(pod)]
        return f"{len(wrong)} pods have no condition that says why, such as {wrong[0].name}" if wrong else ""

    def waiting(self) -> list[Pod]:
        """The pending pods that are not being deleted."""
        return [pod for pod in self._environment.witness.waiting() if pod.metadata.deletion_timestamp is None]

    def misfit(self, pod: Pod) -> str | None:
        """What the condition of a pod that fits nowhere must contain; None if the pod fits."""
        kind = kind_of(pod.name)
        if kind == FILLER:
            return None if self._environment.witness.has_room(demand_of(pod), TIGHT) else FILLER_MISFIT
        return MISFITS.get(kind)

    def wrong_condition(self, pod: Pod) -> str:
        """What is wrong with the condition of a pod that fits nowhere; empty if it is right."""
        why = self.misfit(pod)
        subject = f"pod {pod.name} ({pod.uid}) fits nowhere, but"
        condition = next((each for each in pod.status.conditions if each.type == CONDITION), None)
        if condition is None:
            return f"{subject} has no condition {CONDITION}"
        said = (condition.status, condition.reason) == ("False", UNSCHEDULABLE)
        if said and f"0/{self._nodes} nodes are available" in condition.message and (why or "") in condition.message:
            return ""
        return f"{subject} its condition is {condition.status}, {condition.reason}: {condition.message!r}"

    async def counts(self) -> dict[str, int]:
        """The number of queued pods by place."""
        async for page in queue_pages(self._client, ListQueue(), limit=1):
            return page.counts
        return {}

    async def queue(self, name: str = "", namespace: str = "") -> list[tuple[DescribedPod, QueueListed]]:
        """The queued pods, or those of this name with their histories."""
        request = ListQueue(namespace=namespace, name=name)
        return [(pod, page) async for page in queue_pages(self._client, request) for pod in page.pods]

    async def describe(self, pod: Pod) -> str:
        """Where a pod is, in a few words."""
        try:
            found = await self.queue(pod.name, pod.metadata.namespace)
        except FlotillaError as cause:
            return f"{pod.name} ({cause})"
        if not found:
            return f"{pod.name} is not in the queue"
        queued, page = found[0]
        return f"{pod.name} is {queued.place} for {page.now - queued.since:.1f} s ({queued.gate or queued.why})"

    async def assumed(self) -> list[str]:
        """Descriptions of the entries of the ledger in Redis."""
        values = await self._redis.call("HVALS", Keys(self._settings.prefix).ledger)
        return [self._described(entry) for entry in map(decode_entry, values)]

    def _described(self, entry: LedgerEntry) -> str:
        seen = self._environment.witness.pods.get(entry.uid)
        standing = "is gone" if seen is None else f"is on {seen.node}" if seen.node else "is on no node"
        left = entry.deadline - time.monotonic()
        return f"{entry.key} ({entry.uid}), assumed on {entry.node}, {standing}, {left:.1f} s left"

    async def compared(self) -> CacheCompared:
        return await self._client.request("snapshot", SNAPSHOT_LIST, CompareCache(), CacheCompared, COMPARISON_TIMEOUT)

    async def nominated(self) -> list[tuple[str, CachedPod]]:
        """The pods for which the snapshot reserves a node, with its name."""
        pages = self._client.pages("snapshot", SNAPSHOT_LIST, ListCache(), CacheListed)
        return [(node.name, pod) async for page in pages for node in page.nodes for pod in node.nominated]


@asynccontextmanager
async def inspecting(environment: Environment, nodes: int) -> AsyncIterator[Inspector]:
    """`nodes`: the number of nodes."""
    redis = await connect(environment.redis.url, logger("faults"))
    try:
        yield Inspector(environment, redis, nodes)
    finally:
        await redis.close()
