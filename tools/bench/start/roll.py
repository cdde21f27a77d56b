"""Ends the leader of each service in turn while pods come in, and measures how long no pod is bound.

A leader gets SIGTERM while its standby is ready, and starts again as the next standby, as in a rolling upgrade.
"""

import asyncio
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import msgspec

from shared.errors import ClusterError
from shared.kube.client import KubeClient
from testing.inprocess.workloads import NAMESPACE
from tools.api_objects import ObjectWriter
from tools.bench.start.measurement import START_TIMEOUT, BenchCluster, create
from tools.bench.steady.load import Load, percentile
from tools.cli.output import table
from tools.supervisor.options import SINGLE, PipelineOptions
from tools.supervisor.pipeline import Pipeline

CLASSES = 50
CALM = 5.0
"""Seconds of load before each leader ends; the pauses in them are what the machine does by itself."""
SETTLED = 5.0
"""Seconds of load after the ended leader is ready as a standby."""
PATIENCE = 300.0
"""Seconds for a takeover, and until the next standby is ready."""
POLL = 0.02
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
Times = Sequence[tuple[float, float]]
"""When pods were created and seen bound."""


class _LeaseSpec(msgspec.Struct):
    holder: str = msgspec.field(default="", name="holderIdentity")
    term: int = msgspec.field(default=0, name="leaseTransitions")


class _Lease(msgspec.Struct):
    spec: _LeaseSpec


@dataclass(frozen=True, slots=True)
class Takeover:
    """One leader's end, by the monotonic clock. `taken`: when the standby held the Lease; `ready`: when the ended one
    stood by.
    """

    service: str
    began: float
    ended: float
    taken: float
    ready: float
    over: float
    times: Times

    def row(self) -> Sequence[str]:
        before = longest_pause(self.times, self.began, self.ended)
        pause = longest_pause(self.times, self.ended, self.over)
        first = min((bound for created, bound in self.times if created >= self.taken), default=self.over)
        latencies = sorted(bound - created for created, bound in self.times if self.ended - 1 <= created)
        seconds = (before, pause, self.taken - self.ended, first - self.taken, percentile(latencies, 0.99))
        return (self.service, *(f"{each:.2f} s" for each in seconds), f"{self.ready - self.ended:.1f} s")


HEAD = ("", "pause before", "after SIGTERM", "to its Lease", "to a new pod", "p99 of pods", "ready again")


def longest_pause(times: Times, began: float, ended: float) -> float:
    """Seconds without a bound pod, at most, within these times."""
    bound = sorted(at for _, at in times if began <= at <= ended)
    return max(after - before for before, after in pairwise((began, *bound, ended)))


async def measure_roll(cluster: BenchCluster, workers: int, rate: int) -> int:
    named = PipelineOptions(workers=workers, standbys=True)
    options = PipelineOptions(
        workers=workers, standbys=True, start_patience=START_TIMEOUT, held=frozenset(named.services())
    )
    async with (
        Pipeline.running(options) as pipeline,
        Load.of(pipeline.api, "plain", CLASSES) as load,
    ):
        await create(cluster, pipeline.api_url or "", workers)
        await ObjectWriter(pipeline.api_url or "").create("/api/v1/namespaces", [{"metadata": {"name": NAMESPACE}}])
        await pipeline.release()
        client = await KubeClient.open(pipeline.api, agent="flotilla-bench-start")
        tasks = [asyncio.create_task(load.watch()), asyncio.create_task(load.create(1 << 40, rate))]
        try:
            print(f"{rate} pods/s come in while leaders end; load {os.getloadavg()[0]:.1f}", flush=True)
            takeovers = [await _take_over(service, pipeline, load, client) for service in SINGLE]
            for line in table([HEAD, *(each.row() for each in takeovers)]):
                print(line)
            print(f"{len(load.times()):,} pods were bound; load {os.getloadavg()[0]:.1f}")
            failed = next((task for task in tasks if task.done()), None)
            if failed is not None:
                failed.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await client.close()
    return 0


async def _take_over(service: str, pipeline: Pipeline, load: Load, client: KubeClient) -> Takeover:
    await _until_all_ready(pipeline)
    began = time.monotonic()
    await asyncio.sleep(CALM)
    standing_by = await pipeline.standing_by()
    (leader,) = (name for name in (service, f"{service}-standby") if name not in standing_by)
    path = f"{LEASES}/flotilla-{service}"
    before = await _lease(client, path)
    ended = time.monotonic()
    pipeline.signal(leader, signal.SIGTERM)
    deadline = ended + PATIENCE
    while (now := await _lease(client, path)).term == before.term or not now.holder:
        if time.monotonic() > deadline:
            raise ClusterError(f"no standby of the {service} has taken its Lease within {PATIENCE:g} s")
        await asyncio.sleep(POLL)
    taken = time.monotonic()
    await _until_all_ready(pipeline)
    ready = time.monotonic()
    await asyncio.sleep(SETTLED)
    return Takeover(service, began, ended, taken, ready, time.monotonic(), load.times())


async def _lease(client: KubeClient, path: str) -> _LeaseSpec:
    raw = await client.get(path)
    return _LeaseSpec() if raw is None else msgspec.json.decode(raw, type=_Lease).spec


async def _until_all_ready(pipeline: Pipeline) -> None:
    async with asyncio.timeout(PATIENCE):
        while await pipeline.unready() or len(await pipeline.standing_by()) < len(SINGLE):
            await asyncio.sleep(POLL)
