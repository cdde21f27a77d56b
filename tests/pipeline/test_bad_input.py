"""An error in a service's environment is one line for the operator, or is waited out where that may help."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from shared.bus.wire import VERSION_HEADER
from shared.config.settings import ApiSettings, Settings
from shared.config.sources import environment_of
from shared.errors import UserError
from testing.builders import node
from testing.simulator.service import SimulatorOptions
from tests.kube.support import api_server
from tests.pipeline.corner import a_corner
from tests.pipeline.support import SOON, until, value_of
from tests.servers import nats_server
from tools.supervisor.options import PipelineOptions
from tools.supervisor.pipeline import Pipeline
from tools.supervisor.servers import NatsServer, end

pytestmark = pytest.mark.asyncio

ROOT = Path(__file__).parents[2]


class Process:
    """A service by itself, and what it has said."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.said: list[str] = []

    async def says(self, text: str) -> str:
        """The first line with this text."""
        assert self._process.stdout is not None
        async with asyncio.timeout(SOON):
            while line := (await self._process.stdout.readline()).decode().rstrip():
                self.said.append(line)
                if text in line:
                    return line
        raise AssertionError(f"it never said {text!r}: {self.said}")

    async def ends(self) -> tuple[int, str]:
        """Its exit code and its last line."""
        assert self._process.stdout is not None
        async with asyncio.timeout(SOON):
            rest = (await self._process.stdout.read()).decode().splitlines()
            return await self._process.wait(), [*self.said, *rest][-1]


@asynccontextmanager
async def a_service(service: str, settings: Settings) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        f"services.{service}",
        cwd=ROOT,
        env=os.environ | environment_of(replace(settings, log_format="text")),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        yield Process(process)
    finally:
        await end(process)


def without_password(server: NatsServer) -> str:
    return f"nats://flotilla:wrong-secret@127.0.0.1:{urlsplit(server.url).port}"


@pytest.mark.parametrize("service", ["watcher", "queue", "snapshot", "cycle", "worker", "binder"])
async def test_a_wrong_password_for_nats_ends_every_service_at_once(service: str) -> None:
    async with nats_server() as nats, a_service(service, Settings(nats_url=without_password(nats))) as process:
        code, said = await process.ends()
        port = urlsplit(nats.url).port
        assert (code, said) == (2, f"flotilla {service}: NATS at 127.0.0.1:{port} refuses the credentials")


@pytest.mark.parametrize("service", ["snapshot", "worker"])
async def test_redis_that_is_away_is_waited_for(service: str) -> None:
    async with nats_server() as nats, api_server() as server:
        api = ApiSettings(server=server.url)
        settings = Settings(nats_url=nats.url, redis_url="redis://u:secret@127.0.0.1:1/0", api=api)
        async with a_service(service, settings) as process:
            said = await process.says("Redis at 127.0.0.1:1")
            assert "secret" not in said
            assert "Traceback" not in "".join(process.said)


@pytest.mark.parametrize("service", ["watcher", "snapshot", "cycle", "binder"])
async def test_a_kubeconfig_that_cannot_be_read_is_one_line(service: str, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text("clusters: [}\n")
    async with nats_server() as nats:
        settings = Settings(nats_url=nats.url, api=ApiSettings(kubeconfig=str(kubeconfig)))
        async with a_service(service, settings) as process:
            code, said = await process.ends()
    assert code == 2
    assert said.startswith(f"flotilla {service}: ")
    assert str(kubeconfig) in said


@pytest.mark.parametrize("service", ["watcher", "cycle"])
async def test_an_api_server_that_answers_401_is_told_and_asked_again(service: str) -> None:
    async with nats_server() as nats, api_server(SimulatorOptions(token="late-secret")) as server:
        server.faults.fail("*", ".", 401, times=4, reason="Unauthorized")
        settings = Settings(nats_url=nats.url, api=ApiSettings(server=server.url, token="late-secret"))
        async with a_service(service, settings) as process:
            assert "late-secret" not in await process.says("401")
            assert "late-secret" not in await process.says(f"of flotilla-{service} begins")


async def test_a_pipeline_ends_with_the_line_of_the_service_that_cannot_be(tmp_path: Path) -> None:
    missing = tmp_path / "kubeconfig"
    with pytest.raises(UserError, match=str(missing)):
        async with Pipeline.running(PipelineOptions(api=ApiSettings(kubeconfig=str(missing)))):
            pass


async def test_unknown_messages_are_counted_and_nothing_is_lost() -> None:
    """Of a version that is to come, or no message at all, on a subject of every service."""
    subjects = ["watch", "queue.take", "snapshot.commits", "snapshot.deltas", "cycle.answers", "worker.worker-0"]
    async with Pipeline.running(PipelineOptions(workers=1)) as pipeline, a_corner(pipeline, "odd") as corner:
        await corner.has_nodes(node("a").capacity(cpu=4, memory="8Gi"))
        await send_nonsense(pipeline, subjects)
        for service, subject in (("queue", "watch"), ("snapshot", "snapshot.commits"), ("cycle", "cycle.answers")):
            await until(lambda s=service, t=subject: has_refused(pipeline, s, t), f"{service} has refused nothing")  # type: ignore[misc]
        await corner.cluster.create(*(corner.pod(f"p{i}") for i in range(5)))
        for i in range(5):
            await corner.lands(f"p{i}")


async def send_nonsense(pipeline: Pipeline, subjects: list[str]) -> None:
    import nats

    client = await nats.connect(pipeline.nats_url)
    try:
        for subject in subjects:
            full = f"{pipeline.options.settings.prefix}.{subject}"
            await client.publish(full, b"\x81\xa4type\xa4take", headers={VERSION_HEADER: "99"})
            await client.publish(full, b"\xff\x00 nonsense", headers={VERSION_HEADER: "1"})
            await client.publish(full, b"")
        await client.flush()
    finally:
        await client.close()


async def has_refused(pipeline: Pipeline, service: str, subject: str) -> bool:
    answer = await pipeline.ask(service, "/metrics")
    return answer is not None and all(
        value_of(answer.body, "flotilla_bus_refused_total", subject=subject, reason=reason)
        for reason in ("version", "undecodable")
    )
