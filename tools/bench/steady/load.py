"""Creates pods at a steady rate, and watches when each is bound."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import chain
from math import ceil

import msgspec

from shared.config.settings import ApiSettings
from shared.errors import ClusterError
from shared.kube.client import KubeClient
from shared.kube.listwatch import ListDone, ListPage, ListWatch, ListWatchEvent, ObjectEvents
from testing.inprocess.workloads import NAMESPACE, WORKLOADS, Object, node
from tools.bench.pipeline.cases import objects_of

CONFLICT = 409
CREATING_TIMEOUT = 30.0
LISTED_TIMEOUT = 30.0
AT_ONCE = 64
"""Nodes that are created at the same time."""


class _Meta(msgspec.Struct):
    name: str


class _Spec(msgspec.Struct):
    node_name: str = msgspec.field(default="", name="nodeName")


class _SeenPod(msgspec.Struct):
    metadata: _Meta
    spec: _Spec


_POD = msgspec.json.Decoder(_SeenPod)


class Load:
    """Use `watching` while pods are created. Latencies are from the API server's answer to the creation, at the latest,
    to the watch event that shows the pod bound.
    """

    def __init__(self, client: KubeClient, workload: str, classes: int) -> None:
        self._client = client
        self._workload = WORKLOADS[workload]
        self._classes = classes
        self._made = 0
        self._begun: dict[str, float] = {}
        self._bound_at: dict[str, float] = {}
        self._listed = asyncio.Event()
        self._more_bound = asyncio.Event()

    @classmethod
    @asynccontextmanager
    async def of(cls, api: ApiSettings, workload: str, classes: int) -> "AsyncIterator[Load]":
        client = await KubeClient.open(api, agent="flotilla-bench")
        try:
            yield cls(client, workload, classes)
        finally:
            await client.close()

    async def add_nodes(self, count: int) -> None:
        """And the objects that the pods need."""
        await self._create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        nodes = (("/api/v1/nodes", node(i)) for i in range(count))
        waiting = chain(nodes, objects_of(self._workload, count, 0, self._classes))

        async def some() -> None:
            for path, obj in waiting:
                await self._create(path, obj)

        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(some())

    async def watch(self) -> None:
        """Until cancelled."""
        path = f"/api/v1/namespaces/{NAMESPACE}/pods"
        await ListWatch(self._client, path, self._on_event, random.Random()).run()

    async def listed(self) -> None:
        async with asyncio.timeout(LISTED_TIMEOUT):
            await self._listed.wait()

    async def create(self, count: int, rate: float) -> None:
        """Start one creation every 1/`rate` s, whether or not earlier ones were answered."""
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for i in range(count):
                await asyncio.sleep(max(0.0, began + i / rate - time.monotonic()))
                pod = self._workload.pod(self._made, self._classes)
                self._made += 1
                self._begun[pod["metadata"]["name"]] = time.monotonic()
                group.create_task(self._create(f"/api/v1/namespaces/{NAMESPACE}/pods", pod))

    async def all_bound(self, patience: float) -> None:
        """ClusterError if some pods are not bound in time."""
        try:
            async with asyncio.timeout(patience):
                while len(self._bound_at) < len(self._begun):
                    self._more_bound.clear()
                    await self._more_bound.wait()
        except TimeoutError:
            left = len(self._begun) - len(self._bound_at)
            raise ClusterError(f"{left} of {len(self._begun)} pods were not bound within {patience:g} s") from None

    def take_latencies(self) -> list[float]:
        """Seconds from created to bound of the pods since the last call, sorted."""
        taken = sorted(bound - created for created, bound in self.times())
        self._begun.clear()
        self._bound_at.clear()
        return taken

    def times(self) -> list[tuple[float, float]]:
        """When each pod that is bound was created, and when it was seen bound, by the monotonic clock."""
        return [(self._begun[name], bound) for name, bound in self._bound_at.items()]

    async def _create(self, path: str, obj: Object) -> None:
        answer = await self._client.call("POST", path, msgspec.json.encode(obj), timeout=CREATING_TIMEOUT)
        if not answer.ok and answer.status != CONFLICT:
            raise ClusterError(f"POST {path}: status {answer.status} from the API server: {answer.message}")

    async def _on_event(self, event: ListWatchEvent) -> None:
        objects: Sequence[msgspec.Raw] = ()
        match event:
            case ListDone():
                self._listed.set()
            case ListPage(objects=listed):
                objects = listed
            case ObjectEvents(events=changes):
                objects = [change.object for change in changes]
        now = time.monotonic()
        for raw in objects:
            pod = _POD.decode(raw)
            name = pod.metadata.name
            if pod.spec.node_name and name in self._begun and name not in self._bound_at:
                self._bound_at[name] = now
        self._more_bound.set()


def percentile(ordered: Sequence[float], share: float) -> float:
    """Of sorted values: the smallest one that at least this share of them does not exceed."""
    return ordered[max(0, ceil(len(ordered) * share) - 1)] if ordered else 0.0
