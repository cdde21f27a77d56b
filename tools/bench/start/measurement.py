"""Measures start-up: of a pipeline in a large synthetic cluster, and after each way of stopping `flotilla up`."""

import asyncio
import contextlib
import os
import secrets
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import psutil

from shared.config.settings import ApiSettings, Settings
from shared.config.sources import environment_of, without_settings
from shared.errors import ClusterError
from shared.kube.client import KubeClient
from shared.kube.outcome import CallOutcome
from shared.model.wellknown import HOSTNAME, ZONE
from tools.api_objects import ObjectWriter
from tools.bench.memory import PeakMemory
from tools.cli.processes import MIB, resident_memory
from tools.supervisor.children import Simulator, environment_for
from tools.supervisor.forked_process import ForkServer
from tools.supervisor.options import PipelineOptions
from tools.supervisor.pipeline import Pipeline
from tools.supervisor.relay import Relay

SAMPLE_AFTER_READY = 5.0
"""Seconds of sampling once everything is ready."""
START_TIMEOUT = 3600.0
Object = dict[str, Any]
ZONES = 10
APPS = 2_000
IMAGES = 20
IMAGES_A_NODE = 10
TOLERATIONS = [
    {"key": f"node.kubernetes.io/{why}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for why in ("not-ready", "unreachable")
]
PODS = "/api/v1/namespaces/default/pods"
API_VARIABLES = frozenset({"FLOTILLA_SERVER", "FLOTILLA_TOKEN", "FLOTILLA_KUBECONFIG", "FLOTILLA_CONTEXT"})
POLL_INTERVAL = 0.02
BIND_TIMEOUT = 120.0
STOP_TIMEOUT = 30.0


@dataclass(frozen=True, slots=True)
class BenchCluster:
    """`pending`: the pods fit nowhere; otherwise they are bound."""

    node_count: int
    pod_count: int
    pending: bool

    def nodes(self) -> Iterator[Object]:
        amounts = {"cpu": "4", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi"}
        for number in range(self.node_count):
            name = _node(number)
            labels = {HOSTNAME: name, ZONE: f"zone-{number % ZONES}", "kubernetes.io/arch": "amd64"}
            images = [
                {"names": [f"app-{i}@sha256:{i:064x}", f"app-{i}:v1"], "sizeBytes": 100_000_000 + i}
                for i in ((number + place) % IMAGES for place in range(IMAGES_A_NODE))
            ]
            yield {
                "metadata": {"name": name, "labels": labels},
                "spec": {"providerID": f"cloud:///zone/i-{number:016x}"},
                "status": {
                    "allocatable": amounts,
                    "capacity": amounts,
                    "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
                    "images": images,
                },
            }

    def pods(self) -> Iterator[Object]:
        for number in range(self.pod_count):
            app = number % APPS
            name = f"app-{app:04}"
            owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": name, "controller": True}
            placed = {} if self.pending else {"nodeName": _node(number % self.node_count)}
            yield {
                "metadata": {"name": f"{name}-{number:07}", "labels": {"app": name}, "ownerReferences": [owner]},
                "spec": {**placed, "containers": [self._container(app)], "tolerations": TOLERATIONS},
            }

    def _container(self, app: int) -> Object:
        return {
            "name": "app",
            "image": f"app-{app % IMAGES}:v1",
            "resources": {"requests": {"cpu": "1000" if self.pending else "100m", "memory": f"{500 + app % 50}Mi"}},
            "env": [{"name": f"SETTING_{place}", "value": "x" * 40} for place in range(8)],
        }


def _node(number: int) -> str:
    return f"node-{number:06}"


async def create(cluster: BenchCluster, server: str, workers: int) -> None:
    creator = ObjectWriter(server)
    await creator.create("/api/v1/nodes", cluster.nodes())
    await creator.create(PODS, cluster.pods())
    kind = "that fit nowhere" if cluster.pending else "on them"
    print(f"{cluster.node_count:,} nodes, {cluster.pod_count:,} pods {kind}, {workers} workers", flush=True)


async def measure(cluster: BenchCluster, workers: int) -> int:
    services = PipelineOptions(workers=workers).services()
    options = PipelineOptions(workers=workers, start_patience=START_TIMEOUT, held=frozenset(services))
    async with Pipeline.running(options) as pipeline:
        await create(cluster, pipeline.api_url or "", workers)
        began = time.monotonic()
        memory = PeakMemory()
        async with memory.watching(pipeline):
            await pipeline.release()
            print(f"ready after {time.monotonic() - began:.1f} s")
            await asyncio.sleep(SAMPLE_AFTER_READY)
        print(f"{'':<14}{'CPU s':>8}{'most MB':>9}{'MB':>7}")
        spent = pipeline.cpu()
        for name, held in resident_memory(pipeline.processes).items():
            print(f"{name:<14}{spent[name]:>8.1f}{max(memory.most.get(name, 0), held) / MIB:>9.0f}{held / MIB:>7.0f}")
        print(f"{'all at once':<14}{'':>8}{memory.total / MIB:>9.0f}")
    return 0


def interrupt(up: psutil.Process) -> None:
    up.send_signal(signal.SIGINT)


def to_all(number: signal.Signals) -> Callable[[psutil.Process], None]:
    def send(up: psutil.Process) -> None:
        for process in (*up.children(recursive=True), up):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    return send


STOPS = {
    "Ctrl-C": interrupt,
    "SIGTERM to all processes": to_all(signal.SIGTERM),
    "kill -9 of all processes": to_all(signal.SIGKILL),
}


async def measure_restarts(cluster: BenchCluster, workers: int, api: ApiSettings | None) -> int:
    """`api`: an existing cluster, in which only the pods to wait for are created; None: a simulated one."""
    if api is not None:
        await _measure(api, workers)
        return 0
    async with _simulator() as server:
        await create(cluster, server, workers)
        await _measure(ApiSettings(server=server), workers)
    return 0


async def _measure(api: ApiSettings, workers: int) -> None:
    client = await KubeClient.open(api, agent="flotilla-bench-start")
    try:
        restarts = _Restarts(client, api, workers)
        print(f"{'started after':<28}{'first pod bound':>16}{'CPU s':>8}{'load':>7}", flush=True)
        before = "nothing: the first start"
        for stopped, stop in (*STOPS.items(), ("", interrupt)):
            seconds, cpu, load = await restarts.run(stop)
            print(f"{before:<28}{seconds:>14.2f} s{cpu:>8.2f}{load:>7.1f}", flush=True)
            before = stopped
    finally:
        await client.close()


class _Restarts:
    def __init__(self, client: KubeClient, api: ApiSettings, workers: int) -> None:
        self._client = client
        self._command = (sys.executable, "-P", "-m", "tools.cli.main", "up", "--workers", str(workers))
        variables = environment_of(Settings(api=api))
        reaching = {name: value for name, value in variables.items() if name in API_VARIABLES}
        self._environment = without_settings(os.environ) | reaching

    async def run(self, stop: Callable[[psutil.Process], None]) -> tuple[float, float, float]:
        """Start the pipeline, wait until a new pod is bound, and stop the pipeline by `stop`.

        Returns the seconds until the pod was bound, the CPU seconds that the pipeline used until then, and the load.
        """
        async with self._pod() as name:
            began = time.monotonic()
            async with self._pipeline() as up:
                await self._until_bound(name, up)
                seconds = time.monotonic() - began
                cpu, load = _cpu_of(psutil.Process(up.pid)), os.getloadavg()[0]
                stop(psutil.Process(up.pid))
                async with asyncio.timeout(STOP_TIMEOUT):
                    await up.wait()
        return seconds, cpu, load

    @asynccontextmanager
    async def _pipeline(self) -> AsyncIterator[asyncio.subprocess.Process]:
        """Kills all processes of the pipeline at the end."""
        up = await asyncio.create_subprocess_exec(
            *self._command,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env=self._environment,
            start_new_session=True,
        )
        family: list[psutil.Process] = []
        try:
            yield up
        finally:
            if up.returncode is None:
                family = [psutil.Process(up.pid), *psutil.Process(up.pid).children(recursive=True)]
            for process in family:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            await up.wait()

    @asynccontextmanager
    async def _pod(self) -> AsyncIterator[str]:
        """A small pending pod, deleted at the end."""
        name = f"flotilla-bench-start-{secrets.token_hex(4)}"
        container = {"name": "app", "image": "app", "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}}}
        spec = {"containers": [container]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        created = await self._client.try_call("POST", PODS, msgspec.json.encode(pod))
        if created.outcome is not CallOutcome.OK:
            raise ClusterError(f"cannot create a pod in namespace default: {created.message}")
        try:
            yield name
        finally:
            await self._client.try_call("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")

    async def _until_bound(self, name: str, up: asyncio.subprocess.Process) -> None:
        deadline = time.monotonic() + BIND_TIMEOUT
        while time.monotonic() < deadline:
            seen = await self._client.observe_pod("default", name)
            if seen is not None and seen.node:
                return
            if up.returncode is not None:
                assert up.stderr is not None
                output = (await up.stderr.read()).decode(errors="replace").strip()
                raise ClusterError(f"flotilla up ended with exit code {up.returncode}: {output}")
            await asyncio.sleep(POLL_INTERVAL)
        raise ClusterError(f"pod default/{name} is not bound after {BIND_TIMEOUT:g} s: see kubectl describe pod")


def _cpu_of(up: psutil.Process) -> float:
    spent = 0.0
    for process in (up, *up.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            spent += times.user + times.system
    return spent


@asynccontextmanager
async def _simulator() -> AsyncIterator[str]:
    """The URL of a simulated API server in a process of its own."""
    fork_server = ForkServer()
    with open(os.devnull, "w") as nowhere:
        simulator = Simulator(environment_for(Settings()), Relay(nowhere, as_json=False, width=9), fork_server)
        try:
            await simulator.start()
            yield simulator.url
        finally:
            await simulator.stop()
            await fork_server.stop()
