"""A worker's, and a permitter's, credentials, used to forge messages to a real pipeline."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from shared.bus import Bus, NatsAccess
from shared.messages.binding import Withdraw
from shared.messages.evaluation import Summary
from shared.messages.rounds import ClassAnswer, Ladder, Proposals, Propose
from shared.messages.workers import Assign, WorkerBeat
from shared.tls import TlsFiles
from testing.builders import node
from tests.bus.support import a_telemetry
from tests.bus.test_real_servers import lands
from tests.deploy.test_credentials import make
from tests.deploy.test_least_privilege import own, servers
from tests.pipeline.support import Cluster, a_cluster, until, web
from tools.supervisor.options import PipelineOptions
from tools.supervisor.pipeline import Pipeline

pytestmark = pytest.mark.asyncio

PREFIX = "flotilla"
FAR = 1 << 62


@dataclass
class Place:
    pipeline: Pipeline
    cluster: Cluster
    folder: Path
    nats: str

    @asynccontextmanager
    async def intruder(self, user: str) -> AsyncIterator[Bus]:
        """With a service's own credentials."""
        url = (self.folder / f"{user}-nats-url").read_text().replace("nats:4222", self.nats)
        access = NatsAccess(url=url, files=TlsFiles(str(self.folder / "ca.crt"), None, None))
        bus = await Bus.connect(access, PREFIX, f"intruder-{user}", a_telemetry(), role=user)
        try:
            yield bus
        finally:
            await bus.close()

    async def told(self, name: str, metric: str) -> bool:
        """Whether a metric line that begins so is above zero."""
        answer = await self.pipeline.ask(name, "/metrics")
        assert answer is not None
        lines = [line for line in answer.body.splitlines() if line.startswith(metric)]
        return any(float(line.rpartition(" ")[2]) > 0 for line in lines)


@asynccontextmanager
async def a_place(tmp_path: Path) -> AsyncIterator[Place]:
    """Node `full` has no room left, node `free` has."""
    folder = tmp_path / "secrets"
    make(folder)
    async with servers(folder) as (nats, redis, _, _):
        names = PipelineOptions(workers=1).services()
        variables: Mapping[str, Mapping[str, str]] = {
            name: own(folder, kind, nats, redis) for name, kind in names.items()
        }
        options = PipelineOptions(
            workers=1, nats_url=f"tls://{nats}", redis_url=f"rediss://{redis}", variables=variables
        )
        async with Pipeline.running(options) as pipeline, a_cluster(pipeline) as cluster:
            await cluster.create_namespace("a")
            await cluster.create(node("full").capacity(cpu=1, memory="8Gi"))
            await cluster.create(web("holder", "a").request(cpu=1))
            await lands(cluster, "holder")
            await cluster.create(node("free").capacity(cpu=8, memory="8Gi"))
            yield Place(pipeline, cluster, folder, nats)


class Liar:
    """A worker that holds shards as any other, and says of every pod that it fits best where no room is."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._held = WorkerBeat("liar", "x", shard_count=64)
        self._seq = 1
        self.proposals = 0

    async def live(self) -> None:
        await self._bus.subscribe("worker.liar", (Assign, Propose), self._hear)
        while True:
            self._bus.post("worker.beats", msgspec.structs.replace(self._held, seq=self._seq, at=time.time()))
            await asyncio.sleep(0.2)

    def _hear(self, message: Assign | Propose, _: object) -> None:
        if isinstance(message, Assign):
            self._held = msgspec.structs.replace(
                self._held, epoch=message.epoch, assignment=message.number, shards=message.shards
            )
            return
        self._seq = max(self._seq, message.min_seq)
        guess = [ask.guess or Summary() for ask in message.classes]
        answers = [
            ClassAnswer(
                ask.class_id,
                summary=msgspec.structs.replace(known, nodes=2, feasible=1),
                ladder=Ladder(["full"], [1 << 30], [1 << 30]),
            )
            for ask, known in zip(message.classes, guess, strict=True)
        ]
        self.proposals += len(answers)
        for seq in (self._seq, FAR):
            self._bus.post(
                "cycle.answers",
                Proposals("liar", message.epoch, message.round, message.ask, seq, self._held.shards, answers),
            )


async def test_a_compromised_worker_puts_no_pod_where_there_is_no_room(tmp_path: Path) -> None:
    """It can keep pods waiting while it is there; once it is gone they go where they fit."""
    async with a_place(tmp_path) as place:
        async with place.intruder("worker") as bus:
            liar = Liar(bus)
            living = asyncio.create_task(liar.live())

            async def is_found_out() -> bool:
                found = 'flotilla_worker_faults_total{reason="capacity",worker="liar"}'
                return await place.told("snapshot", found)

            number = 0
            while not liar.proposals:  # shards move some seconds after its first beat
                await place.cluster.create(web(f"bait-{number}", "a").request(cpu="10m"))
                number += 1
                await asyncio.sleep(0.2)
            await place.cluster.create(web("p", "a").request(cpu=2))
            await until(is_found_out, "the liar is not found out", 30.0)
            assert await place.cluster.node_of("a", "p") != "full"
            living.cancel()
            await asyncio.gather(living, return_exceptions=True)
        await lands(place.cluster, "p", 30.0)
        assert await place.cluster.node_of("a", "p") == "free"
        for each in range(number):
            await lands(place.cluster, f"bait-{each}", 30.0)
            assert await place.cluster.node_of("a", f"bait-{each}") == "free"


async def test_absurd_numbers_stop_nothing(tmp_path: Path) -> None:
    """Impossible epochs, rounds and sequence numbers, from worker and binder."""
    async with a_place(tmp_path) as place:

        async def arrives(name: str, subject: str) -> None:
            received = f'flotilla_bus_messages_total{{direction="in",subject="{subject}"}}'
            await until(lambda: place.told(name, received), f"{name} has received nothing on {subject}")

        async with place.intruder("worker") as worker:
            for _ in range(10):
                worker.post("worker.beats", WorkerBeat("worker-0", "x", FAR, FAR, [0, 1], 64, FAR))
                worker.post("cycle.answers", Proposals("worker-0", FAR, FAR, FAR, FAR, list(range(64)), []))
            await arrives("cycle", "cycle.answers")
        async with place.intruder("binder") as binder:
            binder.post("binder.withdrawals", Withdraw("x", FAR, "forged", "forged", epoch=FAR))
            await arrives("binder-0", "binder.withdrawals")
        await place.cluster.create(web("p", "a").request(cpu=2))
        await lands(place.cluster, "p", 30.0)
        assert await place.cluster.node_of("a", "p") == "free"


async def test_a_permitter_withdraws_nothing(tmp_path: Path) -> None:
    async with a_place(tmp_path) as place, place.intruder("permitter") as bus:
        bus.post("binder.permits", Withdraw("uid", 1, "forged", "forged", epoch=FAR))

        async def refused() -> bool:
            return await place.told("binder-0", 'flotilla_bus_refused_total{reason="type",subject="binder.permits"}')

        await until(refused, "the binder has not refused it")
        bus.post("binder.withdrawals", Withdraw("uid", 1, "forged", "forged", epoch=1))
        await place.cluster.create(web("p", "a").request(cpu=2))
        await lands(place.cluster, "p")
