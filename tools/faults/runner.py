"""A fault run from start to verdict."""

import asyncio
import logging
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

import psutil

from shared.errors import ClusterError, FlotillaError
from tools.api_objects import ObjectWriter
from tools.cli.processes import resident_memory, root_cause
from tools.cli.queue_listing import details
from tools.faults.checks import Check, Inspector, memory_growth, memory_table, verdicts
from tools.faults.environment import Environment, running_environment
from tools.faults.injection import Injector, plan
from tools.faults.workload import NAMESPACE, NODES_PATH, PODS_PATH, FaultWorkload, Wave, pod_path

WAVE_INTERVAL = 0.5
MIN_WAVES = 4
INITIAL_TIMEOUT = 60.0
"""Seconds for the initial pods to be bound, without faults."""
IDLE_TIMEOUT = 150.0
"""Seconds to become idle after the faults; the longest failover takes 37."""
MAX_HISTORIES = 50


class FaultRun:
    def __init__(self, seconds: float, workload: FaultWorkload, output: TextIO) -> None:
        """`seconds`: the duration of the faults."""
        self._seconds = seconds
        self._workload = workload
        self._outputs = [output]

    async def play(self) -> int:
        """The exit code: 0 only if all checks pass. Otherwise the logs stay in a folder that the output names."""
        logs = Path(tempfile.mkdtemp(prefix=f"flotilla-faults-{self._workload.seed}-"))
        with _logging_to(logs / "observer.log"), (logs / "run.log").open("w") as log:
            self._outputs.append(log)
            before = {process.pid for process in psutil.Process().children(recursive=True)}
            try:
                checks = await self._checks(logs)
                left = [each for each in psutil.Process().children(recursive=True) if each.pid not in before]
                checks.append(Check("no process is left over", f"{len(left)} processes", list(map(str, left))))
            except asyncio.CancelledError:
                shutil.rmtree(logs, ignore_errors=True)
                raise
            except (FlotillaError, BaseExceptionGroup) as error:
                self._print(f"the run did not finish; logs: {logs}")
                raise root_cause(error) from error
            for line in verdicts(checks):
                self._print(line)
            passed = not any(check.broken for check in checks)
            self._print("all checks passed" if passed else f"checks failed; logs and histories of pods: {logs}")
        if passed:
            shutil.rmtree(logs, ignore_errors=True)
        return 0 if passed else 1

    def _print(self, text: str) -> None:
        for output in self._outputs:
            print(text, file=output, flush=True)

    async def _checks(self, logs: Path) -> list[Check]:
        work = self._workload
        self._print(f"seed {work.seed}: {self._seconds:g} s of faults, {work.pods:,} pods, {work.nodes:,} nodes")
        began = time.monotonic()
        async with running_environment(work.seed, logs) as environment, Inspector.of(environment) as inspector:
            witness, writer = environment.witness, ObjectWriter(environment.api.url)
            self._print(f"{len(environment.processes)} processes ready in {time.monotonic() - began:.1f} s")
            await self._start(environment, inspector, writer)
            first = {seen.name for seen in witness.pods.values()}
            before = resident_memory(environment.processes)
            await self._inject(environment, writer)
            began = time.monotonic()
            activity = await inspector.wait_until_idle(IDLE_TIMEOUT)
            self._print(f"{'not idle' if activity else 'idle'} {time.monotonic() - began:.1f} s after the last fault")
            if inspector.last_activity:
                self._print(f"  idle last: {inspector.last_activity}")
            checks = await inspector.checks(activity)
            await self._keep_evidence(checks, inspector, environment, logs)
            await writer.delete(pod_path(seen.name) for seen in list(witness.pods.values()) if seen.name not in first)
            activity = await inspector.wait_until_idle(IDLE_TIMEOUT)
            after = resident_memory(environment.processes)
            for line in memory_table(before, after):
                self._print(f"  {line}")
            return [
                *checks,
                Check("everything becomes idle after the new pods are deleted", "", [activity] if activity else []),
                memory_growth(before, after),
            ]

    async def _start(self, environment: Environment, inspector: Inspector, writer: ObjectWriter) -> None:
        """Create the cluster and the initial pods. ClusterError if these are not scheduled."""
        await create_cluster(writer, self._workload)
        began = time.monotonic()
        await write_wave(writer, self._workload.initial())
        activity = await inspector.wait_until_idle(INITIAL_TIMEOUT)
        if activity:
            raise ClusterError(f"before the first fault: {activity}")
        bound = environment.witness.bindings
        self._print(f"{bound:,} pods bound and idle after {time.monotonic() - began:.1f} s; injecting faults")

    async def _inject(self, environment: Environment, writer: ObjectWriter) -> None:
        waves = self._workload.waves(max(MIN_WAVES, round(self._seconds / WAVE_INTERVAL)))
        injector = Injector(environment, lambda text: self._print(f"  {text}"))
        schedule = plan(self._workload.seed, self._seconds, list(environment.links))
        async with asyncio.TaskGroup() as group:
            group.create_task(_write_waves(writer, waves, self._seconds / len(waves)))
            group.create_task(injector.run(schedule))
        witness = environment.witness
        self._print(
            f"{len(schedule)} faults of {len(injector.injected)} kinds; pods so far: {witness.created:,} created, "
            f"{writer.deleted:,} deleted, {witness.gone - writer.deleted:,} preempted, {witness.bindings:,} bindings"
        )

    async def _keep_evidence(
        self, checks: list[Check], inspector: Inspector, environment: Environment, logs: Path
    ) -> None:
        """Write the histories of suspicious pods, as `flotilla queue` shows them, and the servers' logs."""
        if not any(check.broken for check in checks):
            return
        names = list(dict.fromkeys(name for check in checks for name in check.pods))[:MAX_HISTORIES]
        with (logs / "histories.txt").open("w") as file, suppress(FlotillaError):
            for name in names:
                for pod, page in await inspector.queue(name, NAMESPACE):
                    print("\n".join(details(pod, page.now)), end="\n\n", file=file)
        for server in (environment.nats, environment.redis):
            with suppress(OSError):
                shutil.copy(server.folder / f"{server.name}.log", logs)


async def create_cluster(writer: ObjectWriter, workload: FaultWorkload) -> None:
    for path, made in workload.preparations():
        await writer.create(path, [made])
    await writer.create(NODES_PATH, workload.make_nodes())


async def write_wave(writer: ObjectWriter, wave: Wave) -> None:
    await writer.create(PODS_PATH, wave.created)
    await writer.delete(pod_path(name) for name in wave.deleted)


async def _write_waves(writer: ObjectWriter, waves: Iterable[Wave], interval: float) -> None:
    for wave in waves:
        await write_wave(writer, wave)
        await asyncio.sleep(interval)


@contextmanager
def _logging_to(path: Path) -> Iterator[None]:
    """Log this process's records to a file instead of its output."""
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
        handler.close()
