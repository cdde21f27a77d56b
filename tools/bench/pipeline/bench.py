"""Runs the cases of the benchmark, optionally with a profiler in one service."""

import asyncio
import io
import os
import platform
import pstats
import signal
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TextIO
from urllib.parse import urlsplit

import msgspec
from redis.asyncio import Redis

from shared.errors import ClusterError, FlotillaError
from shared.runtime.hosting import PROFILE
from tools.bench.pipeline.cases import Case, Figures, heading, row, shortfall, spread
from tools.bench.pipeline.measurement import Measurement, options_of
from tools.cli.output import Screen
from tools.cli.processes import root_cause
from tools.supervisor.options import PipelineOptions
from tools.supervisor.pipeline import Pipeline

PATIENCE = 5.0
LAST_LINES = 20
LINES = 25
PROFILE_TIMEOUT = 10.0
POLL = 0.05


class Profiling:
    """Profiles one process, which writes its profile to this folder."""

    def __init__(self, name: str, folder: str) -> None:
        self._name = name
        self._file = Path(folder) / "profile"

    @property
    def variables(self) -> dict[str, dict[str, str]]:
        return {self._name: {PROFILE: str(self._file)}}

    def toggle(self, pipeline: Pipeline) -> None:
        os.kill(pipeline.processes[self._name], signal.SIGUSR2)

    async def written(self) -> None:
        """Wait until the process has written its profile."""
        try:
            async with asyncio.timeout(PROFILE_TIMEOUT):
                while not self._file.exists():
                    await asyncio.sleep(POLL)
        except TimeoutError:
            raise ClusterError(f"{self._name} has written no profile") from None

    def report(self) -> list[str]:
        text = io.StringIO()
        stats = pstats.Stats(str(self._file), stream=text)
        stats.strip_dirs().sort_stats("tottime").print_stats(LINES)
        return text.getvalue().strip().splitlines()


class Bench:
    def __init__(self, options: PipelineOptions, output: TextIO) -> None:
        self._options = options
        self._screen = Screen(output)
        self._headed = False

    async def run(self, cases: Sequence[Case], repeat: int) -> int:
        """The exit code: 0 only if every pod was decided."""
        complete = True
        try:
            for number, case in enumerate(cases, 1):
                runs: list[Figures] = []
                for turn in range(1, repeat + 1):
                    which = f"case {number} of {len(cases)}" + (f", run {turn} of {repeat}" if repeat > 1 else "")
                    runs.append(await self._measure(case, which, self._options))
                    self._show(case, runs[-1])
                    complete &= runs[-1].decided >= case.pods
                if repeat > 1:
                    self._screen.say(spread(runs))
        finally:
            self._screen.release()
        return 0 if complete else 1

    async def profile(self, case: Case, service: str) -> int:
        """One run with a profiler in a service, and its report."""
        name = next(name for name, kind in self._options.services().items() if kind == service)
        try:
            with tempfile.TemporaryDirectory(prefix="flotilla-") as folder:
                profiling = Profiling(name, folder)
                options = replace(self._options, variables=profiling.variables)
                figures = await self._measure(case, f"with a profiler in {name}", options, profiling)
                self._show(case, figures)
                self._screen.say()
                for line in profiling.report():
                    self._screen.say(line)
        finally:
            self._screen.release()
        return 0

    def _show(self, case: Case, run: Figures) -> None:
        self._screen.say(row(case, run))
        if run.decided < case.pods:
            self._screen.say(shortfall(case, run))

    async def _measure(
        self, case: Case, which: str, options: PipelineOptions, profiling: Profiling | None = None
    ) -> Figures:
        def say(text: str) -> None:
            self._screen.status(f"{which}: {text}")

        say("starting NATS, Redis, the simulated API server and all services")
        async with Pipeline.running(options_of(case, options)) as pipeline:
            await self._head(pipeline)
            toggle = _nothing if profiling is None else lambda: profiling.toggle(pipeline)
            try:
                figures = await Measurement(case, pipeline, say, toggle, toggle).run()
                if profiling is not None:
                    await profiling.written()
            except (FlotillaError, BaseExceptionGroup) as error:
                self._screen.say("last log lines:")
                for line in pipeline.log_lines[-LAST_LINES:]:
                    self._screen.say(f"  {line}")
                raise root_cause(error) from error
            return figures

    async def _head(self, pipeline: Pipeline) -> None:
        """Once: print the machine and the names of the columns."""
        if self._headed:
            return
        self._headed = True
        options = pipeline.options
        self._screen.say(
            f"{os.cpu_count()} CPUs, {platform.machine()}, Python {platform.python_version()}, "
            f"NATS {await nats_version(pipeline.nats_url)}, Redis {await redis_version(pipeline.redis_url)}; "
            f"workers: {options.workers}, binders: {options.binders}"
        )
        self._screen.say("processes: microseconds of CPU per pod; total: without the simulator")
        self._screen.say()
        self._screen.say(heading())


def _nothing() -> None:
    """Stands in for the profiler."""


async def nats_version(url: str) -> str:
    """From the server's greeting."""
    parts = urlsplit(url)
    async with asyncio.timeout(PATIENCE):
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        try:
            greeting = await reader.readline()
        finally:
            writer.close()
    return str(msgspec.json.decode(greeting.removeprefix(b"INFO "), type=dict)["version"])


async def redis_version(url: str) -> str:
    redis = Redis.from_url(url, socket_timeout=PATIENCE)
    try:
        return str((await redis.info("server"))["redis_version"])
    finally:
        await redis.aclose()
