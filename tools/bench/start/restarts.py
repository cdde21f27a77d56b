"""Stopping and starting `flotilla up` at an API server that stays: seconds from the command to the first pod bound."""

import asyncio
import contextlib
import os
import secrets
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import msgspec
import psutil

from shared.config.settings import ApiSettings, Settings
from shared.config.sources import environment_of, without_settings
from shared.errors import ClusterError
from shared.kube.client import KubeClient
from shared.kube.outcome import CallOutcome
from tools.api_objects import ObjectWriter
from tools.bench.start.measurement import Cluster
from tools.supervisor.children import Simulator, environment_for
from tools.supervisor.forked_process import ForkServer
from tools.supervisor.relay import Relay

PODS = "/api/v1/namespaces/default/pods"
API_VARIABLES = frozenset({"FLOTILLA_SERVER", "FLOTILLA_TOKEN", "FLOTILLA_KUBECONFIG", "FLOTILLA_CONTEXT"})
POLL_INTERVAL = 0.02
BIND_TIMEOUT = 120.0
STOP_TIMEOUT = 30.0


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


@dataclass(frozen=True, slots=True)
class Start:
    """`cpu`: seconds used by the pipeline's processes until the pod was bound."""

    after: str
    seconds: float
    cpu: float
    load: float


async def measure_restarts(cluster: Cluster, workers: int, api: ApiSettings | None) -> int:
    """`api`: an existing cluster, in which only the pods to wait for are created; None: a simulated one."""
    if api is not None:
        await _measure(api, workers)
        return 0
    async with _simulator() as server:
        creator = ObjectWriter(server)
        await creator.create("/api/v1/nodes", cluster.nodes())
        await creator.create(PODS, cluster.pods())
        kind = "that fit nowhere" if cluster.pending else "on them"
        print(f"{cluster.node_count:,} nodes, {cluster.pod_count:,} pods {kind}, {workers} workers", flush=True)
        await _measure(ApiSettings(server=server), workers)
    return 0


async def _measure(api: ApiSettings, workers: int) -> None:
    client = await KubeClient.open(api, agent="flotilla-bench-start")
    try:
        restarts = _Restarts(client, api, workers)
        print(f"{'started after':<28}{'first pod bound':>16}{'CPU s':>8}{'load':>7}", flush=True)
        before = "nothing: the first start"
        for stopped, stop in (*STOPS.items(), ("", interrupt)):
            start = await restarts.run(before, stop)
            print(f"{start.after:<28}{start.seconds:>14.2f} s{start.cpu:>8.2f}{start.load:>7.1f}", flush=True)
            before = stopped
    finally:
        await client.close()


class _Restarts:
    def __init__(self, client: KubeClient, api: ApiSettings, workers: int) -> None:
        self._client = client
        self._command = (sys.executable, "-P", "-m", "tools.cli.main", "up", "--workers", str(workers))
        told = environment_of(Settings(api=api))
        reaching = {name: value for name, value in told.items() if name in API_VARIABLES}
        self._environment = without_settings(os.environ) | reaching

    async def run(self, after: str, stop: Callable[[psutil.Process], None]) -> Start:
        """Start the pipeline, wait until a new pod is bound, and stop the pipeline by `stop`."""
        async with self._pod() as name:
            return await self._timed(name, after, stop)

    async def _timed(self, name: str, after: str, stop: Callable[[psutil.Process], None]) -> Start:
        began = time.monotonic()
        async with self._pipeline() as up:
            await self._until_bound(name, up)
            seconds = time.monotonic() - began
            start = Start(after, seconds, _cpu_of(psutil.Process(up.pid)), os.getloadavg()[0])
            stop(psutil.Process(up.pid))
            async with asyncio.timeout(STOP_TIMEOUT):
                await up.wait()
        return start

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
        created = await self._client.attempt("POST", PODS, msgspec.json.encode(pod))
        if created.outcome is not CallOutcome.OK:
            raise ClusterError(f"cannot create a pod in namespace default: {created.message}")
        try:
            yield name
        finally:
            await self._client.attempt("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")

    async def _until_bound(self, name: str, up: asyncio.subprocess.Process) -> None:
        deadline = time.monotonic() + BIND_TIMEOUT
        while time.monotonic() < deadline:
            standing = await self._client.observe_pod("default", name)
            if standing is not None and standing.node:
                return
            if up.returncode is not None:
                assert up.stderr is not None
                said = (await up.stderr.read()).decode(errors="replace").strip()
                raise ClusterError(f"flotilla up ended with exit code {up.returncode}: {said}")
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
