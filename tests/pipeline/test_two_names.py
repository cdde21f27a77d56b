"""Two processes of one name: the second one ends with a line that says why, and the first one goes on undisturbed."""

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from signal import SIGCONT, SIGSTOP

import pytest
import pytest_asyncio

from tests.pipeline.support import until
from tools.supervisor.children import environment_for
from tools.supervisor.options import PipelineOptions
from tools.supervisor.pipeline import Pipeline

pytestmark = pytest.mark.asyncio(loop_scope="module")

PATIENCE = 20.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pipeline() -> AsyncIterator[Pipeline]:
    async with Pipeline.running(PipelineOptions()) as running:
        yield running


async def started(pipeline: Pipeline, kind: str, name: str) -> asyncio.subprocess.Process:
    settings = replace(
        pipeline.options.settings,
        name=name,
        nats_url=pipeline.nats_url,
        redis_url=pipeline.redis_url,
        api=pipeline.api,
        http_host="127.0.0.1",
        http_port=0,
        http_scheme="http",
    )
    module, pipe = f"services.{kind}", asyncio.subprocess.PIPE
    environment = environment_for(settings)
    return await asyncio.create_subprocess_exec(sys.executable, "-m", module, env=environment, stderr=pipe, stdout=pipe)


async def ended(process: asyncio.subprocess.Process) -> tuple[int | None, str]:
    async with asyncio.timeout(PATIENCE):
        _, said = await process.communicate()
    return process.returncode, said.decode()


@pytest.mark.parametrize(("kind", "name"), [("worker", "worker-0"), ("binder", "binder-0")])
async def test_the_second_one_is_refused(pipeline: Pipeline, kind: str, name: str) -> None:
    shares = [line for line in pipeline.log_lines if "shards: " in line]
    pids = pipeline.processes
    code, said = await ended(await started(pipeline, kind, name))
    expected = f"flotilla {kind}: another {kind} named {name} is running (incarnation "
    assert (code, expected in said, "set --name or FLOTILLA_NAME" in said) == (2, True, True), said
    assert pipeline.processes == pids
    assert await pipeline.unready() == {}
    assert [line for line in pipeline.log_lines if "shards: " in line] == shares, "no shard has moved"


async def test_one_that_stood_still_meanwhile_is_refused_when_it_wakes(pipeline: Pipeline) -> None:
    def shares() -> int:
        return sum("shards: " in line and "w1 " in line for line in pipeline.log_lines)

    async def has_shards() -> bool:
        return shares() > before

    before = shares()
    first = await started(pipeline, "worker", "w1")
    try:
        await until(has_shards, "w1 has no shards", PATIENCE)
        first.send_signal(SIGSTOP)
        before = shares()
        second = await started(pipeline, "worker", "w1")
        try:
            await until(has_shards, "its successor has no shards", PATIENCE)
            first.send_signal(SIGCONT)
            code, said = await ended(first)
            assert (code, "another worker named w1 is running" in said) == (2, True), said
            assert second.returncode is None
        finally:
            second.terminate()
            await ended(second)
    finally:
        if first.returncode is None:
            first.kill()
