"""The life of a process, as those who run it see it."""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path

import aiohttp
import pytest

from shared.config.feature_gates import FeatureGates
from shared.config.settings import Settings
from shared.messages.queue import Received, Take
from shared.messages.state import Heartbeat
from tests.bus.support import a_bus
from tests.runtime.program import SETTINGS
from tests.servers import nats_server
from tests.telemetry.collector import a_collector
from tools.supervisor.servers import NatsServer

pytestmark = pytest.mark.asyncio

ROOT = Path(__file__).parents[2]
PATIENCE = 20.0


class Hosted:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def line(self) -> str:
        assert self.process.stdout is not None
        return (await asyncio.wait_for(self.process.stdout.readline(), PATIENCE)).decode().rstrip()

    async def url(self) -> str:
        return (await self.line()).removeprefix("at ")

    async def end(self, number: signal.Signals | None = None) -> tuple[int, str, list[str]]:
        """Exit code, the rest of what it said, and its log."""
        if number is not None:
            self.process.send_signal(number)
        out, err = await asyncio.wait_for(self.process.communicate(), PATIENCE)
        return await self.process.wait(), out.decode().strip(), err.decode().splitlines()


@asynccontextmanager
async def hosted(mains: str, server: NatsServer | None = None, **settings: object) -> AsyncIterator[Hosted]:
    url = "nats://u:secret@127.0.0.1:1" if server is None else server.url
    wanted = Settings(**{"prefix": "test", "nats_url": url, "log_format": "json"} | settings)  # type: ignore[arg-type]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.runtime.program",
        *mains.split(),
        cwd=ROOT,
        env=os.environ | {SETTINGS: json.dumps(asdict(wanted))},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield Hosted(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def fetch(url: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status, await response.text()


async def until_it_says(url: str, expected: tuple[int, str]) -> None:
    async with asyncio.timeout(PATIENCE):
        while await fetch(url) != expected:
            await asyncio.sleep(0.01)


# A good life


async def test_it_is_ready_when_every_reason_is_gone_and_ends_when_asked() -> None:
    async with nats_server() as server, hosted("serves", server, name="me") as process:
        url = await process.url()
        assert await fetch(f"{url}/readyz") == (503, "redis: not loaded yet\n")
        assert await fetch(f"{url}/healthz") == await fetch(f"{url}/livez") == (200, "ok\n")
        async with a_bus(server) as bus:
            assert await bus.request("queue.take", Take(1, 2, 3), Received, timeout=5) == Received(1, 2)
            await bus.publish("snapshot.deltas", Heartbeat(1, 1))
            await until_it_says(f"{url}/readyz", (200, "ok\n"))
            status, metrics = await fetch(f"{url}/metrics")
            assert status == 200
            for line in ("flotilla_test_total 1.0", "process_cpu_seconds_total ", "flotilla_bus_messages_total{"):
                assert line in metrics
            last = asyncio.get_running_loop().create_future()
            await bus.subscribe("watch", Heartbeat, lambda message, _: last.set_result(message.seq))
            code, said, log = await process.end(signal.SIGTERM)
            assert (code, said) == (0, "good-bye")
            assert await asyncio.wait_for(last, 5) == 99
    first = json.loads(log[0])
    assert (first["service"], first["name"], first["level"]) == ("test", "me", "info")
    assert first["message"] == f"test is me, at {url}"
    assert len(log) == 1


async def test_it_is_not_ready_while_the_bus_is_lost() -> None:
    async with nats_server() as server, hosted("serves", server) as process:
        url = await process.url()
        async with a_bus(server) as bus:
            await bus.publish("snapshot.deltas", Heartbeat(1, 1))
            await until_it_says(f"{url}/readyz", (200, "ok\n"))
        await server.kill()
        await until_it_says(f"{url}/readyz", (503, "nats: the connection is lost\n"))
        await server.start()
        await until_it_says(f"{url}/readyz", (200, "ok\n"))
        assert (await process.end(signal.SIGINT))[0] == 0


async def test_it_waits_for_the_bus_and_can_be_ended_meanwhile() -> None:
    async with hosted("serves") as process:
        assert process.process.stderr is not None
        url = json.loads(await process.process.stderr.readline())["message"].rpartition(" at ")[2]
        why = "NATS at 127.0.0.1:1 cannot be reached yet: Connection refused"
        await until_it_says(f"{url}/readyz", (503, f"service: is starting\nnats: {why}\n"))
        code, _, log = await process.end(signal.SIGTERM)
    assert code == 0
    assert [json.loads(line)["message"] for line in log] == [why]


async def test_pending_spans_are_exported_at_the_end() -> None:
    with a_collector() as collector:
        async with nats_server() as server, hosted("serves", server, name="me", otlp_endpoint=collector.url) as process:
            url = await process.url()
            async with a_bus(server) as bus:
                await bus.publish("snapshot.deltas", Heartbeat(1, 1))
                await until_it_says(f"{url}/readyz", (200, "ok\n"))
            assert (await process.end(signal.SIGTERM))[0] == 0
    assert [span.name for span in collector.spans] == ["heard"]


async def test_a_finished_service_exits_with_zero() -> None:
    async with nats_server() as server, hosted("returns", server, name="") as process:
        code, _, log = await process.end()
    assert code == 0
    last = json.loads(log[-1])
    assert (last["message"], last["trace_id"]) == ("done", "0af7")
    assert last["name"] == f"test-{socket.gethostname()}-{process.process.pid}".replace(".", "-")


# What the user has to put right


@pytest.mark.parametrize("main", ["refuses", "refuses_in_a_task"])
async def test_a_user_error_is_one_line(main: str) -> None:
    async with nats_server() as server, hosted(main, server, log_level="error") as process:
        assert await process.end() == (2, "", ["flotilla test: config.yaml: no such plugin"])


async def test_a_port_in_use_is_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        async with hosted("serves", http_port=port) as process:
            code, _, log = await process.end()
    assert (code, log) == (2, [f"flotilla test: cannot serve HTTP at 127.0.0.1:{port}: the port is taken"])


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"http_host": "no.such.host.invalid"}, "cannot serve HTTP at no.such.host.invalid:0: "),
        ({"http_port": 70000}, "cannot serve HTTP at 127.0.0.1:70000: "),
        ({"name": "a b"}, "the name 'a b': must be "),
        ({"name": "beats"}, "the name 'beats': must be "),
        ({"prefix": "a.b"}, "the prefix 'a.b': must be "),
        ({"log_format": "xml"}, "logs: the format is one of "),
    ],
)
async def test_an_invalid_setting_is_one_line(settings: dict[str, str], line: str) -> None:
    async with nats_server() as server, hosted("serves", server, log_level="error", **settings) as process:
        code, _, log = await process.end()
    assert code == 2
    assert len(log) == 1 and log[0].startswith(f"flotilla test: {line}")


# What we have to put right


@pytest.mark.parametrize("main", ["breaks", "breaks_in_a_task"])
async def test_an_unexpected_exception_is_a_traceback(main: str) -> None:
    async with nats_server() as server, hosted(main, server) as process:
        code, _, log = await process.end()
    assert code == 1
    last = json.loads(log[-1])
    assert last["message"] == "test has failed"
    assert "ZeroDivisionError: a fault of ours" in last["exception"]


async def test_a_failing_message_handler_ends_the_process_with_a_traceback() -> None:
    async with nats_server() as server, hosted("fails_on_a_message", server) as process:
        code, _, log = await process.end()
    assert code == 1
    found, last = json.loads(log[-2]), json.loads(log[-1])
    assert "ZeroDivisionError: a fault of ours" in found["exception"]
    assert last["message"].startswith("test ends: snapshot.deltas: the handler of Heartbeat failed: ZeroDivisionError")
    assert "exception" not in last


async def test_a_service_that_does_not_end_is_killed() -> None:
    async with nats_server() as server, hosted("stays_not_for_long", server) as process:
        await process.url()
        code, said, log = await process.end(signal.SIGTERM)
    assert (code, said) == (1, "stays")
    assert json.loads(log[-1])["message"] == "test does not end within 0.2 s: exiting at once"


async def test_a_second_signal_exits_at_once() -> None:
    async with nats_server() as server, hosted("stays", server) as process:
        await process.url()
        process.process.send_signal(signal.SIGTERM)
        assert await process.line() == "stays"
        code, _, _ = await process.end(signal.SIGINT)
    assert code == 128 + signal.SIGINT


async def test_feature_gates_that_should_not_be_set_are_logged() -> None:
    gates = FeatureGates.parse("KMSv1=true,NominatedNodeNameForExpectation=false")
    async with nats_server() as server, hosted("returns", server, feature_gates=gates) as process:
        _, _, log = await process.end()
    noted = [line for line in log if "feature gate" in line]
    assert len(noted) == 2
    assert "KMSv1 is deprecated" in noted[0]
    assert "KMSv1 has no effect" in noted[1]
