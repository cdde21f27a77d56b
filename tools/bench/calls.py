"""What a call to the API server costs its caller: python -m tools.bench.calls

CPU of this process a call that creates an Event, at steady rates and as fast as the server answers, with TLS and
without it. The simulated API server runs in another process.
"""

import argparse
import asyncio
import multiprocessing
import os
import ssl
import tempfile
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec
import uvloop

from shared.certificates import Authority
from shared.config.settings import ApiSettings
from shared.errors import ClusterError
from shared.kube.client import KubeClient
from shared.kube.events_and_conditions import PodEvent, PodRef
from testing.simulator.service import Simulator, SimulatorOptions

HOST = "127.0.0.1"
DAY = timedelta(days=1)
AT_ONCE = 32
"""Calls at the same time where no rate is given."""
WARM_UP = 200
STOP_SECONDS = 5.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.bench.calls", description=__doc__)
    parser.add_argument("--rates", default="50,300,0", help="calls a second; 0: as many as the server answers")
    parser.add_argument("--seconds", type=float, default=5.0, help="at each rate (default 5)")
    given = parser.parse_args()
    rates = [int(rate) for rate in given.rates.split(",")]
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}; CPU of the caller, us a call")
    for secure in (False, True):
        with tempfile.TemporaryDirectory(prefix="flotilla-") as folder, _server(Path(folder), secure) as url:
            settings = _settings(Path(folder), url) if secure else ApiSettings(server=url)
            for rate in rates:
                cost, calls = uvloop.run(_measure(settings, rate, given.seconds))
                said = f"{rate}/s" if rate else f"as fast as answered ({calls / given.seconds:,.0f}/s)"
                print(f"  {'TLS' if secure else 'plain':5}  {said:32} {cost:7.0f}")


async def _measure(settings: ApiSettings, rate: int, seconds: float) -> tuple[float, int]:
    """Microseconds of CPU a call, and the number of calls."""
    client = await KubeClient.open(settings)
    numbers = iter(range(time.time_ns() // 1000, 1 << 62))

    async def call() -> None:
        result = await client.create_event(_event(next(numbers)))
        if not result.ok:
            raise ClusterError(result.message)

    try:
        await asyncio.gather(*(call() for _ in range(WARM_UP)))
        began = time.process_time()
        calls = await (_steadily(call, rate, seconds) if rate else _at_once(call, seconds))
        return 1e6 * (time.process_time() - began) / calls, calls
    finally:
        await client.close()


async def _steadily(call: Callable[[], Awaitable[None]], rate: int, seconds: float) -> int:
    """One every 1/`rate` s, whether or not earlier ones are answered."""
    began, count = time.monotonic(), int(rate * seconds)
    async with asyncio.TaskGroup() as group:
        for i in range(count):
            await asyncio.sleep(began + i / rate - time.monotonic())
            group.create_task(_await(call))
    return count


async def _await(call: Callable[[], Awaitable[None]]) -> None:
    await call()


async def _at_once(call: Callable[[], Awaitable[None]], seconds: float) -> int:
    until, count = time.monotonic() + seconds, 0

    async def some() -> None:
        nonlocal count
        while time.monotonic() < until:
            await call()
            count += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(some())
    return count


def _event(number: int) -> PodEvent:
    pod = PodRef("default", f"web-{number}", f"0b6a7c52-8a37-4d0e-9f3a-{number % (1 << 48):012x}")
    note = f"Successfully assigned default/{pod.name} to node-{number % 5000}"
    return PodEvent(pod, "Normal", "Scheduled", "Binding", note, "default-scheduler", "binder-1", number / 1e6)


# The server


class _server:
    """A simulated API server in a process of its own; its URL."""

    def __init__(self, folder: Path, secure: bool) -> None:
        if secure:
            authority = Authority.create("bench", datetime.now(UTC), DAY)
            pair = authority.sign((HOST,), datetime.now(UTC), DAY)
            (folder / "ca.pem").write_text(authority.certificate)
            (folder / "server.pem").write_text(pair.certificate + pair.key)
        context = multiprocessing.get_context("spawn")
        self._ours, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, folder if secure else None), daemon=True)

    def __enter__(self) -> str:
        self._process.start()
        url: str = self._ours.recv()
        return url

    def __exit__(self, *_: object) -> None:
        self._ours.send(None)
        self._process.join(STOP_SECONDS)
        self._process.terminate()


def _serve(caller: Connection, folder: Path | None) -> None:
    """Until the caller says something."""
    tls = None
    if folder is not None:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(folder / "server.pem")

    async def serve() -> None:
        simulator = Simulator(SimulatorOptions(kubelet=False, max_events=1000, tls=tls))
        caller.send(await simulator.start())
        await asyncio.to_thread(caller.recv)
        await simulator.stop()

    uvloop.run(serve())


def _settings(folder: Path, url: str) -> ApiSettings:
    entry = {"server": url, "certificate-authority": str(folder / "ca.pem")}
    config = {
        "current-context": "bench",
        "clusters": [{"name": "bench", "cluster": entry}],
        "users": [{"name": "bench", "user": {"token": "t"}}],
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
    }
    (folder / "config").write_bytes(msgspec.json.encode(config))
    return ApiSettings(kubeconfig=str(folder / "config"))


if __name__ == "__main__":
    main()
