"""The auditor with a real API server, Redis and NATS, which fail and recover."""

import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import msgspec
import pytest
from redis.asyncio import Redis

from shared.bus import Bus, Envelope
from shared.bus.subjects import QUEUE_INSPECT, SNAPSHOT_BOUND
from shared.config.settings import ApiSettings
from shared.errors import ClusterError
from shared.kube.client import KubeClient
from shared.messages.binding import BindingOutcome, BindingOutcomes
from shared.messages.queue import Inspect, QueueContents
from shared.model.objects import encode_json
from shared.store.schema import encode
from shared.telemetry import Telemetry
from shared.telemetry.metrics import Metrics
from shared.telemetry.tracing import Tracer
from testing.auditor.service import Auditor
from testing.auditor.violations import Invariant, Limits
from testing.builders import NodeBuilder, PodBuilder, pod
from testing.simulator.service import Simulator, SimulatorOptions
from tests.auditor.support import contents, entry, invariants, small
from tests.servers import nats_server, redis_server
from tools.supervisor.servers import NatsServer

pytestmark = pytest.mark.asyncio

QUICK = Limits(lag=0.2, patience=0.4)
SOON = 15.0


def web(name: str, cpu: str = "1") -> PodBuilder:
    return pod(name).container("main", image="web").request(cpu=cpu, memory="1Gi")


class Cluster:
    """What a scheduler and its users would do."""

    def __init__(self, simulator: Simulator, client: KubeClient) -> None:
        self.simulator = simulator
        self.api = ApiSettings(server=simulator.url)
        self._client = client

    async def create(self, *objects: PodBuilder | NodeBuilder) -> None:
        for made in objects:
            path = "/api/v1/nodes" if isinstance(made, NodeBuilder) else "/api/v1/namespaces/default/pods"
            await self._post(path, msgspec.json.decode(encode_json(made.build())))

    async def bind(self, name: str, node: str) -> None:
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        await self._post(f"/api/v1/namespaces/default/pods/{name}/binding", binding)

    async def place(self, made: PodBuilder, node: str) -> None:
        await self.create(made)
        await self.bind(made.metadata.name, node)

    async def _post(self, path: str, body: object) -> None:
        answer = await self._client.call("POST", path, msgspec.json.encode(body))
        assert answer.ok, answer.message


def has_bound(pods: int, auditor: Auditor) -> bool:
    return auditor.counts().bound == pods


@asynccontextmanager
async def cluster(*nodes: NodeBuilder) -> AsyncIterator[Cluster]:
    simulator = Simulator(SimulatorOptions(kubelet=False))
    await simulator.start()
    client = await KubeClient.open(ApiSettings(server=simulator.url))
    try:
        made = Cluster(simulator, client)
        await made.create(*nodes)
        yield made
    finally:
        await client.close()
        await simulator.stop()


@asynccontextmanager
async def a_bus(server: NatsServer) -> AsyncIterator[Bus]:
    telemetry = Telemetry(Metrics(), Tracer("test", "test", ids=random.Random(1)), logging.getLogger("flotilla.test"))
    bus = await Bus.connect(server.url, "flotilla", "test", telemetry)
    try:
        yield bus
    finally:
        await bus.close()


def unreadable(name: str) -> dict[str, object]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "plenty"}}}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"containers": [container]}}


async def test_bindings_are_seen() -> None:
    async with cluster(small("a")) as made, Auditor.watching(made.api, limits=QUICK) as auditor:
        for name in ("p", "q", "r"):
            await made.place(web(name), "a")
        await auditor.wait_until(lambda a: a.counts().bound == 3, SOON)
        assert 0 < auditor.latency(0.5) <= auditor.latency(1.0) < SOON
        assert await auditor.finish() == []
        auditor.validate()


async def test_an_overcommitted_node_and_a_misplaced_pod_are_reported() -> None:
    async with (
        cluster(small("a", cpu="1"), small("b").taint("team", "red")) as made,
        Auditor.watching(made.api, limits=QUICK) as auditor,
    ):
        await made.place(web("p"), "a")
        await made.place(web("q"), "a")
        await made.place(web("r"), "b")
        await auditor.wait_until(lambda a: len(a.violations) == 2, SOON)
        assert [(v.invariant, v.pod) for v in auditor.violations] == [
            (Invariant.CAPACITY, "default/q"),
            (Invariant.CONSTRAINTS, "default/r"),
        ]
        assert auditor.counts().violations == 2


async def test_unbound_pods_are_reported_unless_expected() -> None:
    async with cluster(small("a")) as made, Auditor.watching(made.api, limits=QUICK) as auditor:
        await made.create(web("big", cpu="9"))
        await auditor.wait_until(lambda a: a.counts().waiting == 1, SOON)
        assert await auditor.finish(unbound=1) == []
        assert invariants(await auditor.finish()) == [Invariant.ALL_BOUND]


async def test_a_wait_that_times_out_shows_the_counts() -> None:
    async with cluster(small("a")) as made, Auditor.watching(made.api) as auditor:
        with pytest.raises(ClusterError, match=r"within 0.1 s: Counts\(created=0"):
            await auditor.wait_until(lambda a: a.counts().bound == 1, 0.1)


async def test_ended_watches_and_compacted_history_are_no_violations() -> None:
    async with cluster(small("a")) as made, Auditor.watching(made.api, limits=QUICK) as auditor:
        bound = 0
        for number in range(4):
            await made.place(web(f"before-{number}", cpu="100m"), "a")
            await made.create(web(f"between-{number}", cpu="100m"))
            made.simulator.faults.drop("GET", "watch=1", times=2)
            made.simulator.close_watches()
            await made.bind(f"between-{number}", "a")
            if number % 2:
                made.simulator.compact()
            bound += 2
            await auditor.wait_until(partial(has_bound, bound), SOON)
        assert await auditor.finish() == []
        auditor.validate()


async def test_an_unreadable_object_does_not_stop_the_auditor() -> None:
    async with cluster(small("a")) as made:
        made.simulator.store_raw("pods", unreadable("listed"))
        async with Auditor.watching(made.api, limits=QUICK) as auditor:
            made.simulator.store_raw("pods", unreadable("watched"))
            await made.place(web("p"), "a")
            await auditor.wait_until(lambda a: a.counts().bound == 1, SOON)
            assert await auditor.finish() == []


async def test_the_ledger_is_read_again_after_redis_was_down() -> None:
    async with (
        cluster(small("a")) as made,
        redis_server() as redis,
        Auditor.watching(made.api, redis_url=redis.url, limits=QUICK) as auditor,
    ):
        await redis.stop()
        assert Invariant.LEDGER_ENDS in invariants(await auditor.finish()), "it cannot be known to be empty"
        auditor.violations.clear()
        await redis.start()
        client: Redis = Redis.from_url(redis.url)
        ghost = entry(web("ghost"), "a")
        await client.hset("flotilla:ledger", "default/ghost", encode(ghost))
        await auditor.wait_until(lambda a: bool(a.violations), SOON)
        (violation,) = auditor.violations
        assert (violation.invariant, violation.uid) == (Invariant.LEDGER_ENDS, "default/ghost")
        assert violation.what == "the pod does not exist, but the entry is still there"
        auditor.violations.clear()
        await client.delete("flotilla:ledger")
        assert await auditor.finish() == []
        await client.aclose()


async def test_queue_and_binders_are_followed_again_after_nats_was_down() -> None:
    held = contents()

    def answer(_: Inspect, envelope: Envelope) -> None:
        envelope.respond(held)

    async with (
        cluster(small("a")) as made,
        nats_server() as nats,
        a_bus(nats) as bus,
        Auditor.watching(made.api, bus=bus, limits=QUICK) as auditor,
    ):
        assert Invariant.ALL_BOUND in invariants(await auditor.finish()), "no queue answers yet"
        auditor.violations.clear()
        await bus.subscribe(QUEUE_INSPECT, Inspect, answer)
        await nats.stop()
        await nats.start()
        held = contents(active=[web("ghost")])
        await auditor.wait_until(lambda a: bool(a.violations), SOON)
        assert invariants(auditor.violations) == [Invariant.ACCOUNTED_FOR]
        auditor.violations.clear()

        await made.create(web("p").uid("of-the-server"))
        await auditor.wait_until(lambda a: a.counts().waiting == 1, SOON)
        uid = made.simulator.stored("pods", "p", "default")["metadata"]["uid"]
        held = QueueContents([], [], [], [], [], [uid])
        waits = BindingOutcome(uid, 1, wait=0.0)
        await bus.publish(SNAPSHOT_BOUND, BindingOutcomes("binder", 1, 1, [waits]))
        await auditor.wait_until(lambda a: bool(a.violations), SOON)
        assert invariants(auditor.violations) == [Invariant.PERMIT_ENDS]
        auditor.violations.clear()

        await made.bind("p", "a")
        held = contents()
        assert await auditor.finish() == []


async def test_an_exception_of_the_caller_is_not_wrapped() -> None:
    async with cluster(small("a")) as made:
        with pytest.raises(LookupError):
            async with Auditor.watching(made.api):
                raise LookupError


async def test_the_auditor_waits_for_a_server_that_is_not_up_yet() -> None:
    async with cluster(small("a")) as made:
        made.simulator.faults.drop("GET", "/api/v1/pods", times=5)
        async with Auditor.watching(made.api, limits=QUICK) as auditor:
            assert auditor.counts().nodes == 1
