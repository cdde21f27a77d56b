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
from tools.bench.pipeline.cases import Case, Figures, heading, notes, row, spread
from tools.bench.pipeline.measurement import Measurement, options_of, take_lease
from tools.cli.output import Screen
from tools.cli.processes import root_cause
from tools.supervisor.options import PipelineOptions
from tools.supervisor.pipeline import Pipeline

PATIENCE = 5.0
LAST_LINES = 20
LINES = 25
PROFILE_TIMEOUT = 10.0
POLL = 0.05


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
                file, report = Path(folder) / "profile", io.StringIO()
                options = replace(self._options, variables={name: {PROFILE: str(file)}})
                self._show(case, await self._measure(case, f"with a profiler in {name}", options, (name, file)))
                pstats.Stats(str(file), stream=report).strip_dirs().sort_stats("tottime").print_stats(LINES)
            for line in ("", *report.getvalue().strip().splitlines()):
                self._screen.say(line)
        finally:
            self._screen.release()
        return 0

    def _show(self, case: Case, run: Figures) -> None:
        self._screen.say(row(case, run))
        for line in notes(run):
            self._screen.say(line)

    async def _measure(
        self, case: Case, which: str, options: PipelineOptions, profiled: tuple[str, Path] | None = None
    ) -> Figures:
        """`profiled`: the name of a process, and the file to which its profiler writes."""

        def say(text: str) -> None:
            self._screen.status(f"{which}: {text}")

        say("starting NATS, Redis, the simulated API server and all services")
        async with Pipeline.running(options_of(case, options), on_servers=take_lease) as pipeline:

            def toggle_profiler() -> None:
                if profiled is not None:
                    pipeline.signal(profiled[0], signal.SIGUSR2)

            if not self._headed:
                self._headed = True
                await self._show_head(pipeline)
            try:
                figures = await Measurement(case, pipeline, say, toggle_profiler).run()
                if profiled is not None:
                    await _written(*profiled)
            except (FlotillaError, BaseExceptionGroup) as error:
                self._screen.say("last log lines:")
                for line in pipeline.log_lines[-LAST_LINES:]:
                    self._screen.say(f"  {line}")
                raise root_cause(error) from error
            return figures

    async def _show_head(self, pipeline: Pipeline) -> None:
        """The machine and the names of the columns."""
        options = pipeline.options
        self._screen.say(
            f"{os.cpu_count()} CPUs, {platform.machine()}, Python {platform.python_version()}, "
            f"NATS {await nats_version(pipeline.nats_url)}, Redis {await redis_version(pipeline.redis_url)}; "
            f"workers: {options.workers}, binders: {options.binders}"
        )
        self._screen.say("processes: microseconds of CPU per pod; total: without the simulator")
        self._screen.say()
        self._screen.say(heading())


async def _written(name: str, file: Path) -> None:
    """Wait until the process has written its profile."""
    try:
        async with asyncio.timeout(PROFILE_TIMEOUT):
            while not file.exists():
                await asyncio.sleep(POLL)
    except TimeoutError:
        raise ClusterError(f"{name} has written no profile") from None


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
