"""A cluster that a whole pipeline schedules, as its users see it: over the API."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec
from prometheus_client.parser import text_string_to_metric_families

from shared.bus import Bus
from shared.model.objects import encode_json
from shared.telemetry import Telemetry
from shared.telemetry.logs import logger
from shared.telemetry.metrics import Metrics
from shared.telemetry.tracing import Tracer
from testing.auditor.service import Auditor
from testing.auditor.violations import Limits
from testing.builders import NodeBuilder, PodBuilder, pod
from tools.api_objects import ObjectWriter
from tools.supervisor.pipeline import Pipeline

Object = dict[str, Any]
Condition = Callable[[], Awaitable[bool]]

SOON = 30.0
"""Seconds for what takes a moment on an idle machine."""
POLL = 0.03
CACHE_SIZE = "scheduler_cache_size"
CACHED = ("nodes", "pods", "assumed_pods", "nominated_pods")
LIMITS = Limits(patience=20.0)
"""Longer than any service takes to be itself again after it was killed."""


class Cluster:
    """Objects come from builders; pods need a container with an image, as `web` has it."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self._url = url
        self._session = session
        self._creator = ObjectWriter(url)

    async def create(self, *made: PodBuilder | NodeBuilder, **spec: object) -> None:
        """One after the other, so that they are of different age. `spec`: what no builder has."""
        for each in made:
            created = plain(each)
            created["spec"] |= spec
            await self._call("POST", _folder_of(each), created)

    async def create_many(self, path: str, objects: Iterable[Object]) -> None:
        await self._creator.create(path, objects)

    async def create_namespace(self, name: str) -> None:
        await self._call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})

    async def create_priorities(self, **values: int) -> None:
        for name, value in values.items():
            await self.create_at("/apis/scheduling.k8s.io/v1/priorityclasses", name, value=value)

    async def create_at(self, folder: str, name: str, **fields: object) -> None:
        """An object that no builder makes."""
        await self._call("POST", folder, {"metadata": {"name": name}, **fields})

    async def delete_at(self, folder: str, name: str) -> None:
        await self._call("DELETE", f"{folder}/{name}")

    async def get(self, path: str) -> Object:
        return await self._call("GET", path)

    async def pod(self, namespace: str, name: str) -> Object:
        return await self.get(f"/api/v1/namespaces/{namespace}/pods/{name}")

    async def node_of(self, namespace: str, name: str) -> str:
        """Empty while it is on none."""
        return str((await self.pod(namespace, name))["spec"].get("nodeName", ""))

    async def change_pod(self, namespace: str, name: str, patch: Object) -> None:
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        await self._call("PATCH", path, patch, "application/merge-patch+json")

    async def delete_pod(self, namespace: str, name: str) -> None:
        await self._call("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}?gracePeriodSeconds=0")

    async def exists(self, path: str) -> bool:
        async with self._session.get(self._url + path) as answer:
            return answer.status == 200

    async def watch(self, path: str) -> AsyncIterator[tuple[str, Object]]:
        """What happens, and the object after that; first all that there is."""
        url = f"{self._url}{path}?watch=true"
        async with self._session.get(url, timeout=aiohttp.ClientTimeout()) as answer:
            async for line in answer.content:
                event: Object = msgspec.json.decode(line)
                yield event["type"], event["object"]

    async def change_node(self, name: str, patch: Object, subresource: str = "") -> None:
        await self._call(
            "PATCH", f"/api/v1/nodes/{name}/{subresource}".rstrip("/"), patch, "application/merge-patch+json"
        )

    async def delete_all(self, namespace: str) -> None:
        """All pods of a namespace, at once, and all nodes."""
        await self._call("DELETE", f"/api/v1/namespaces/{namespace}/pods?gracePeriodSeconds=0")
        await self._call("DELETE", "/api/v1/nodes")

    async def delete_node(self, name: str) -> None:
        await self._call("DELETE", f"/api/v1/nodes/{name}")

    async def events_of(self, namespace: str, name: str, reason: str) -> list[str]:
        """What was said about the pod, under this reason."""
        listed = await self.get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")
        return [
            event["note"]
            for event in listed["items"]
            if event["regarding"]["name"] == name and event["reason"] == reason
        ]

    async def _call(
        self, method: str, path: str, body: Object | None = None, media: str = "application/json"
    ) -> Object:
        data = None if body is None else msgspec.json.encode(body)
        async with self._session.request(
            method, self._url + path, data=data, headers={"Content-Type": media}
        ) as answer:
            found: Object = msgspec.json.decode(await answer.read())
        assert answer.status < 300, f"{method} {path}: {found}"
        return found


@asynccontextmanager
async def a_cluster(pipeline: Pipeline) -> AsyncIterator[Cluster]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=SOON)) as session:
        yield Cluster(pipeline.api_url or "", session)


@asynccontextmanager
async def an_auditor(pipeline: Pipeline, limits: Limits = LIMITS) -> AsyncIterator[Auditor]:
    telemetry = Telemetry(Metrics(), Tracer("test", "test", ids=random.Random()), logger("test"))
    prefix = pipeline.options.settings.prefix
    bus = await Bus.connect(pipeline.nats_url, prefix, "auditor", telemetry)
    try:
        async with Auditor.watching(
            pipeline.api, redis_url=pipeline.redis_url, bus=bus, prefix=prefix, limits=limits
        ) as auditor:
            yield auditor
    finally:
        await bus.close()


async def until(condition: Condition, otherwise: str, patience: float = SOON) -> None:
    """If it does not come true in time that is an AssertionError, which says what is so otherwise."""
    deadline = asyncio.get_running_loop().time() + patience
    while not await condition():
        assert asyncio.get_running_loop().time() < deadline, f"after {patience:g} s: {otherwise}"
        await asyncio.sleep(POLL)


async def all_ready(pipeline: Pipeline) -> bool:
    return not await pipeline.unready()


async def cached(pipeline: Pipeline, kind: str, count: int) -> bool:
    """The snapshot has this number of them; `what` is one of CACHED."""
    answer = await pipeline.ask("snapshot", "/metrics")
    return answer is not None and value_of(answer.body, CACHE_SIZE, type=kind) == count


async def cache_is_empty(pipeline: Pipeline) -> bool:
    return all([await cached(pipeline, kind, 0) for kind in CACHED])


def web(name: str, namespace: str) -> PodBuilder:
    return pod(name, namespace).container("main", image="app:1")


def numbered(made: PodBuilder | NodeBuilder, count: int, **spec: object) -> Iterator[Object]:
    """Copies with numbered names. `spec`: fields that no builder sets."""
    sample = plain(made)
    sample["spec"] |= spec
    for i in range(count):
        yield sample | {"metadata": sample["metadata"] | {"name": f"{made.metadata.name}-{i:04}"}}


def plain(made: PodBuilder | NodeBuilder) -> Object:
    """As it is created."""
    created: Object = msgspec.json.decode(encode_json(made.build()))
    created["metadata"].pop("uid", None)
    return created


def _folder_of(made: PodBuilder | NodeBuilder) -> str:
    return "/api/v1/nodes" if isinstance(made, NodeBuilder) else f"/api/v1/namespaces/{made.metadata.namespace}/pods"


def value_of(exposition: str, name: str, **labels: str) -> float:
    """The value of one series of a metric; 0 without it."""
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            if sample.name == name and sample.labels == labels:
                return float(sample.value)
    return 0.0
