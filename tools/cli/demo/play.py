"""The demo from its start to its verdict."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import TextIO

from shared.bus import Bus
from shared.errors import ClusterError, FlotillaError
from shared.telemetry import Telemetry
from shared.telemetry.logs import logger
from shared.telemetry.metrics import Metrics
from shared.telemetry.tracing import Tracer
from testing.auditor.service import Auditor
from tools.cli.demo.creating import Creator
from tools.cli.demo.gauges import Gauges
from tools.cli.demo.overtaking import Overtaking, overtaken_lines
from tools.cli.demo.report import Result, report, verdicts
from tools.cli.demo.screen import Screen
from tools.cli.demo.workload import NAMESPACE, Workload
from tools.cli.up import looking
from tools.supervisor.options import PipelineOptions
from tools.supervisor.pipeline import Pipeline

PAINT_EVERY = 0.2
STALLED_AFTER = 30.0
"""Seconds without a pod bound that end the demo."""
SETTLE_PATIENCE = 10.0
"""Seconds that the ledger and the queue may take to be empty once all pods are bound."""
LAST_LINES = 20


class Demo:
    def __init__(self, workload: Workload, options: PipelineOptions, output: TextIO) -> None:
        self._workload = workload
        self._options = options
        self._screen = Screen(output)

    async def play(self) -> int:
        """The exit code: 0 only if every pod is bound and everything held."""
        work, options, screen = self._workload, self._options, self._screen
        screen.say(
            f"Flotilla: {work.pods:,} pods of {work.kinds:,} kinds on {work.nodes:,} nodes; "
            f"workers: {options.workers}, binders: {options.binders}, round size: {options.settings.round_size}\n"
        )
        screen.passing("starting NATS, Redis, the simulated API server and all services")
        began = time.monotonic()
        try:
            async with Pipeline.running(options) as pipeline:
                screen.settle(f"  {len(pipeline.processes)} processes ready in {time.monotonic() - began:.1f} s")
                screen.settle(f"  look: {looking(pipeline)} flotilla queue")
                async with self._last_words_of(pipeline):
                    result = await self._schedule(pipeline)
                    screen.clear()
                    for line in report(result):
                        screen.say(line)
                    held = result.held and await self._overtake(pipeline)
                screen.clear()
        finally:
            screen.leave()
        return 0 if held else 1

    @asynccontextmanager
    async def _auditing(self, pipeline: Pipeline) -> AsyncIterator[Auditor]:
        telemetry = Telemetry(Metrics(), Tracer("demo", "demo", ids=Random()), logger("demo"))
        prefix = self._options.settings.prefix
        bus = await Bus.connect(pipeline.nats_url, prefix, "demo", telemetry)
        try:
            async with Auditor.watching(pipeline.api, redis_url=pipeline.redis_url, bus=bus, prefix=prefix) as auditor:
                yield auditor
        finally:
            await bus.close()

    @asynccontextmanager
    async def _last_words_of(self, pipeline: Pipeline) -> AsyncIterator[None]:
        """What the services said last is shown if something fails."""
        noting = _Noting(pipeline)
        logging.getLogger().addHandler(noting)
        try:
            yield
        except (FlotillaError, BaseExceptionGroup) as error:
            self._screen.leave()
            self._screen.say("\nthe last that the services said:")
            for line in pipeline.log_lines[-LAST_LINES:]:
                self._screen.say(f"  {line}")
            self._screen.say()
            raise _the_cause(error) from error
        finally:
            logging.getLogger().removeHandler(noting)

    async def _schedule(self, pipeline: Pipeline) -> Result:
        work, screen = self._workload, self._screen
        async with self._auditing(pipeline) as auditor:
            creator = Creator(pipeline.api_url or "")
            screen.passing(f"creating {work.nodes:,} nodes")
            for path, each in work.preparations():
                await creator.create(path, [each])
            await creator.create("/api/v1/nodes", work.make_nodes())
            screen.settle(f"  {work.nodes:,} nodes created")
            screen.settle()
            gauges = Gauges(pipeline, auditor, creator, work.pods)
            creating = creator.create(f"/api/v1/namespaces/{NAMESPACE}/pods", work.make_pods())
            async with asyncio.TaskGroup() as group:
                group.create_task(creating)
                group.create_task(self._watch(gauges))
            return await self._result(gauges, auditor)

    async def _overtake(self, pipeline: Pipeline) -> bool:
        """Whether everything held."""
        work, screen = self._workload, self._screen
        if work.late == 0:
            return True
        screen.say(f"\nNow a part of the cluster is full, and {work.late:,} pods of high priority come:\n")
        async with self._auditing(pipeline) as auditor:
            creator = Creator(pipeline.api_url or "")
            overtaken = await Overtaking(pipeline, creator, screen, late=work.late, seed=work.seed).play()
            violations = await auditor.finish()
        screen.clear()
        for line in [*overtaken_lines(overtaken), *verdicts(violations)]:
            screen.say(line)
        return overtaken.held and not violations

    async def _watch(self, gauges: Gauges) -> None:
        """Until all pods are bound; ClusterError if that does not go on."""
        bound, progressed = 0, time.monotonic()
        while gauges.bound < self._workload.pods:
            await gauges.look()
            self._screen.show(gauges.progress())
            if gauges.failure is not None:
                raise gauges.failure
            if gauges.bound > bound:
                bound, progressed = gauges.bound, time.monotonic()
            elif time.monotonic() - progressed > STALLED_AFTER:
                raise ClusterError(f"no pod was bound for {STALLED_AFTER:g} s: {await gauges.explanation()}")
            await asyncio.sleep(PAINT_EVERY)

    async def _result(self, gauges: Gauges, auditor: Auditor) -> Result:
        seconds = gauges.seconds
        deadline = time.monotonic() + SETTLE_PATIENCE
        while not await gauges.settled() and time.monotonic() < deadline:
            self._screen.show(gauges.progress())
            await asyncio.sleep(PAINT_EVERY)
        violations = await auditor.finish()
        return Result(
            pods=self._workload.pods,
            bound=gauges.bound,
            seconds=seconds,
            rate=gauges.bound / seconds,
            median=auditor.latency(0.5),
            p99=auditor.latency(0.99),
            cpu=gauges.cpu_seconds(),
            violations=violations,
        )


class _Noting(logging.Handler):
    """What is logged in this process stands among the lines of the services."""

    def __init__(self, pipeline: Pipeline) -> None:
        super().__init__(logging.WARNING)
        self._pipeline = pipeline

    def emit(self, record: logging.LogRecord) -> None:
        self._pipeline.tell(f"{record.name}: {record.getMessage()}")


def _the_cause(error: BaseException) -> BaseException:
    """The first of our errors in a group of errors of concurrent tasks; else the error itself."""
    if isinstance(error, BaseExceptionGroup):
        ours = error.subgroup(FlotillaError)
        return error if ours is None else _the_cause(ours.exceptions[0])
    return error
