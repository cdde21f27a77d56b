"""The demo from start to verdict."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TextIO

from shared.errors import ClusterError, FlotillaError
from shared.kube.client import KubeClient
from testing.auditor.service import Auditor
from tools.api_objects import ObjectWriter
from tools.cli.output import Screen
from tools.cli.processes import connected_bus, root_cause
from tools.demo.devices import allocations
from tools.demo.preemption import PreemptionScene
from tools.demo.progress import Gauges, Result, report, verdict, verdicts
from tools.demo.training import TrainingScene
from tools.demo.workload import NAMESPACE, DemoWorkload
from tools.supervisor.options import PipelineOptions
from tools.supervisor.pipeline import Pipeline

REPAINT_INTERVAL = 0.2
STALL_TIMEOUT = 30.0
"""Seconds without a binding that end the demo."""
IDLE_TIMEOUT = 10.0
"""Seconds for the ledger and the queue to be empty once all pods are bound."""
NEXT = "\nAll checks passed. A cluster to play with yourself: flotilla up --nodes 3 (README.md, The first two minutes)"
LOG_LINES = 20
"""Last log lines of the services, shown after a failure."""


class Demo:
    def __init__(
        self,
        workload: DemoWorkload,
        options: PipelineOptions,
        output: TextIO,
        *,
        console: bool = False,
        stays: bool = False,
    ) -> None:
        """`console`: serve the page meanwhile; `stays`: and then until Ctrl-C."""
        self._workload = workload
        self._console = console
        self._stays = console and stays
        self._options = options
        self._screen = Screen(output)

    async def play(self) -> int:
        """The exit code: 0 only if every pod is bound and every check passes."""
        work, options, screen = self._workload, self._options, self._screen
        screen.say(
            f"Flotilla demo: {work.pods:,} pods of {work.kinds:,} kinds on {work.nodes:,} nodes "
            f"({counted(options.workers, 'worker')}, {counted(options.binders, 'binder')}, "
            f"rounds of at most {counted(options.settings.round_size, 'pod')})\n"
        )
        screen.status("starting NATS, Redis, a simulated API server and all services")
        began = time.monotonic()
        try:
            async with Pipeline.running(options) as pipeline:
                screen.say(f"  {len(pipeline.processes)} processes ready in {time.monotonic() - began:.1f} s")
                console = await pipeline.open_console() if self._console else ""
                if console:
                    screen.say(f"  console: {console}")
                async with self._logs_on_failure(pipeline):
                    result = await self._schedule(pipeline)
                    for line in report(result):
                        screen.say(line)
                    passed = result.passed and await self._check_devices(pipeline) and await self._preempt(pipeline)
                    passed = passed and await self._train(pipeline)
                screen.clear()
                if passed:
                    screen.say(NEXT)
                if self._stays:
                    await self._stay_open(console)
        finally:
            screen.release()
        return 0 if passed else 1

    async def _stay_open(self, console: str) -> None:
        """Until Ctrl-C, which then only ends this: the exit code is that of the checks."""
        self._screen.say(f"\nThe console stays open, with this cluster, until Ctrl-C: {console}")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is not None:
                task.uncancel()

    @asynccontextmanager
    async def _auditing(self, pipeline: Pipeline) -> AsyncIterator[Auditor]:
        prefix = self._options.settings.prefix
        async with (
            connected_bus(pipeline.nats_url, prefix, "demo") as bus,
            Auditor.watching(pipeline.api, redis_url=pipeline.redis_url, bus=bus, prefix=prefix) as auditor,
        ):
            yield auditor

    @asynccontextmanager
    async def _logs_on_failure(self, pipeline: Pipeline) -> AsyncIterator[None]:
        """Show the last log lines if something fails."""
        handler = _PipelineLog(pipeline)
        logging.getLogger().addHandler(handler)
        try:
            yield
        except (FlotillaError, BaseExceptionGroup) as error:
            self._screen.release()
            self._screen.say("\nlast log lines:")
            for line in pipeline.log_lines[-LOG_LINES:]:
                self._screen.say(f"  {line}")
            self._screen.say()
            raise root_cause(error) from error
        finally:
            logging.getLogger().removeHandler(handler)

    async def _schedule(self, pipeline: Pipeline) -> Result:
        work, screen = self._workload, self._screen
        async with self._auditing(pipeline) as auditor:
            writer = ObjectWriter(pipeline.api_url or "")
            screen.status(f"creating {work.nodes:,} nodes")
            for path, each in work.preparations():
                await writer.create(path, [each])
            await writer.create("/api/v1/nodes", work.make_nodes())
            screen.say()
            gauges = Gauges(pipeline, auditor, writer, work.pods)
            creating = writer.create(f"/api/v1/namespaces/{NAMESPACE}/pods", work.make_pods())
            async with asyncio.TaskGroup() as group:
                group.create_task(creating)
                group.create_task(self._watch(gauges))
            return await self._result(gauges, auditor)

    async def _check_devices(self, pipeline: Pipeline) -> bool:
        if not self._workload.devices:
            return True
        client = await KubeClient.open(pipeline.api)
        try:
            found = await allocations(client, NAMESPACE)
        finally:
            await client.close()
        for line in found.report():
            self._screen.say(line)
        return found.passed

    async def _preempt(self, pipeline: Pipeline) -> bool:
        """The second scene; returns whether every check passed."""
        work, screen = self._workload, self._screen
        if work.late == 0:
            return True
        screen.say(f"\nPreemption: {work.late:,} high-priority pods on {work.late:,} nodes full of low-priority ones\n")
        async with self._auditing(pipeline) as auditor:
            scene = PreemptionScene(
                pipeline, ObjectWriter(pipeline.api_url or ""), screen, late=work.late, seed=work.seed
            )
            result = await scene.play()
            violations = await auditor.finish()
        again = verdicts(violations) if violations else [verdict("all checks of the first part pass again", True)]
        for line in (*result.report(), *again):
            screen.say(line)
        return result.passed and not violations

    async def _train(self, pipeline: Pipeline) -> bool:
        """The last scene; returns whether every check passed."""
        members, screen = self._workload.training, self._screen
        if members == 0:
            return True
        screen.say(f"\nTraining: a gang of {members:,} that needs one block, in three blocks full of smaller jobs\n")
        async with self._auditing(pipeline) as auditor:
            result = await TrainingScene(pipeline, ObjectWriter(pipeline.api_url or ""), screen, members=members).play()
            violations = await auditor.finish()
        again = verdicts(violations) if violations else [verdict("all checks of the first part pass again", True)]
        for line in (*result.report(), *again):
            screen.say(line)
        return result.passed and not violations

    async def _watch(self, gauges: Gauges) -> None:
        """Until all pods are bound; ClusterError without progress."""
        bound, progressed = 0, time.monotonic()
        while gauges.bound < self._workload.pods:
            await gauges.poll()
            self._screen.progress(gauges.progress().block(), gauges.progress().line())
            if gauges.failure is not None:
                raise gauges.failure
            if gauges.bound > bound:
                bound, progressed = gauges.bound, time.monotonic()
            elif time.monotonic() - progressed > STALL_TIMEOUT:
                raise ClusterError(f"no pod was bound for {STALL_TIMEOUT:g} s: {await gauges.explanation()}")
            await asyncio.sleep(REPAINT_INTERVAL)

    async def _result(self, gauges: Gauges, auditor: Auditor) -> Result:
        seconds = gauges.seconds
        deadline = time.monotonic() + IDLE_TIMEOUT
        while not await gauges.idle() and time.monotonic() < deadline:
            self._screen.progress(gauges.progress().block(), gauges.progress().line())
            await asyncio.sleep(REPAINT_INTERVAL)
        violations = await auditor.finish()
        return Result(
            pods=self._workload.pods,
            bound=gauges.bound,
            seconds=seconds,
            median=auditor.latency(0.5),
            p99=auditor.latency(0.99),
            cpu=gauges.cpu_seconds(),
            violations=violations,
        )


def counted(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


class _PipelineLog(logging.Handler):
    """Adds this process's warnings to the log lines of the services."""

    def __init__(self, pipeline: Pipeline) -> None:
        super().__init__(logging.WARNING)
        self._pipeline = pipeline

    def emit(self, record: logging.LogRecord) -> None:
        self._pipeline.tell(f"{record.name}: {record.getMessage()}")
