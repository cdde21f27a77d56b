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
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

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
START_SECONDS = 30.0
STOP_SECONDS = 5.0

Call = Callable[[], Coroutine[Any, Any, None]]


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


async def _steadily(call: Call, rate: int, seconds: float) -> int:
    """One every 1/`rate` s, whether or not earlier ones are answered."""
    began, count = time.monotonic(), int(rate * seconds)
    async with asyncio.TaskGroup() as group:
        for i in range(count):
            await asyncio.sleep(began + i / rate - time.monotonic())
            group.create_task(call())
    return count


async def _at_once(call: Call, seconds: float) -> int:
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


@contextmanager
def _server(folder: Path, secure: bool) -> Iterator[str]:
    """A simulated API server in a process of its own; its URL. ClusterError if it does not start."""
    if secure:
        authority = Authority.create("bench", datetime.now(UTC), DAY)
        pair = authority.sign((HOST,), datetime.now(UTC), DAY)
        (folder / "ca.pem").write_text(authority.certificate)
        (folder / "server.pem").write_text(pair.certificate + pair.key)
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, folder if secure else None), daemon=True)
    process.start()
    try:
        if not ours.poll(START_SECONDS):
            raise ClusterError(f"the simulated API server does not start within {START_SECONDS:g} s")
        yield ours.recv()
        ours.send(None)
        process.join(STOP_SECONDS)
    finally:
        process.terminate()


def _serve(caller: Connection, folder: Path | None) -> None:
    """Sends the caller its URL, and serves until the caller sends anything."""
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
