"""A fault run from its start to its verdict."""

import asyncio
import logging
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import psutil

from shared.errors import ClusterError, FlotillaError
from tools.cli.faults.checking import Check, Checking
from tools.cli.faults.injecting import Injector
from tools.cli.faults.load import NAMESPACE, Load
from tools.cli.faults.loading import Loader
from tools.cli.faults.looking import Looking, looking
from tools.cli.faults.memory import grown, table
from tools.cli.faults.plan import plan
from tools.cli.faults.report import verdicts
from tools.cli.faults.stage import Stage, on_stage
from tools.cli.queue import in_full
from tools.cli.resident import resident

WAVE_EVERY = 0.5
"""Seconds between two waves of pods."""
LEAST_WAVES = 4
CALM_PATIENCE = 60.0
"""Seconds for the first pods, which nothing disturbs."""
PATIENCE = 150.0
"""Seconds for all to be quiet once the faults are over; the longest failover takes 37."""
MOST_STORIES = 50


@dataclass(frozen=True, slots=True)
class Faults:
    """`seconds`: how long faults strike."""

    seconds: float
    load: Load
    output: TextIO

    async def play(self) -> int:
        """The exit code: 0 only if everything held. What there is to look at otherwise is in a folder that is named."""
        logs = Path(tempfile.mkdtemp(prefix=f"flotilla-faults-{self.load.seed}-"))
        with _noted(logs / "observer.log"), (logs / "run.log").open("w") as kept:
            run = _Run(self, logs, kept)
            before = {process.pid for process in psutil.Process().children(recursive=True)}
            try:
                checks = [*await run.on_stage(), _left_over(before)]
            except asyncio.CancelledError:
                shutil.rmtree(logs, ignore_errors=True)
                raise
            except (FlotillaError, BaseExceptionGroup) as error:
                run.say(f"it does not come to its end; {logs} has the logs")
                raise _the_cause(error) from error
            for line in verdicts(checks):
                run.say(line)
            held = not any(check.broken for check in checks)
            run.say("everything held" if held else f"not everything held: {logs} has the logs and the pods' stories")
        if held:
            shutil.rmtree(logs, ignore_errors=True)
        return 0 if held else 1


class _Run:
    def __init__(self, faults: Faults, logs: Path, kept: TextIO) -> None:
        self._faults = faults
        self._load = faults.load
        self._logs = logs
        self._kept = kept

    def say(self, text: str = "") -> None:
        for output in (self._faults.output, self._kept):
            print(text, file=output, flush=True)

    async def on_stage(self) -> list[Check]:
        load = self._load
        self.say(f"seed {load.seed}: {self._faults.seconds:g} s of faults, {load.pods:,} pods on {load.nodes:,} nodes")
        began = time.monotonic()
        async with (
            on_stage(load.seed, self._logs) as stage,
            looking(stage, load.nodes) as look,
            Loader(stage.cluster.url) as loader,
        ):
            self.say(f"{len(stage.processes)} processes are ready after {time.monotonic() - began:.1f} s")
            await loader.prepare(load)
            await self._calm(stage, look, loader)
            first = {seen.name for seen in stage.witness.pods.values()}
            before = resident(stage.processes)
            await self._strike(stage, loader)
            began = time.monotonic()
            unrest = await look.until_quiet(PATIENCE)
            self.say(f"{'not at rest' if unrest else 'quiet'} {time.monotonic() - began:.1f} s after the last fault")
            if look.slowest:
                self.say(f"  what came to rest last: {look.slowest}")
            checks = await Checking(stage, look, load.nodes).all(unrest)
            await self._keep_evidence(checks, look, stage)
            await loader.delete([seen.name for seen in stage.witness.pods.values() if seen.name not in first])
            unrest = await look.until_quiet(PATIENCE)
            after = resident(stage.processes)
            for line in table(before, after):
                self.say(f"  {line}")
            return [
                *checks,
                Check("all comes to rest again when what came since has gone", "", [unrest] if unrest else []),
                grown(before, after),
            ]

    async def _calm(self, stage: Stage, look: Looking, loader: Loader) -> None:
        """ClusterError if not even this works."""
        began = time.monotonic()
        await loader.bring(self._load.calm())
        unrest = await look.until_quiet(CALM_PATIENCE)
        if unrest:
            raise ClusterError(f"{unrest}, though nothing was disturbed yet")
        bound = stage.witness.bindings
        self.say(f"{bound:,} pods bound, and all quiet, after {time.monotonic() - began:.1f} s; now the faults begin")

    async def _strike(self, stage: Stage, loader: Loader) -> None:
        seconds = self._faults.seconds
        waves = self._load.waves(max(LEAST_WAVES, round(seconds / WAVE_EVERY)))
        injector = Injector(stage, lambda text: self.say(f"  {text}"))
        schedule = plan(self._load.seed, seconds, list(stage.links))
        async with asyncio.TaskGroup() as group:
            group.create_task(loader.bring_all(waves, seconds / len(waves)))
            group.create_task(injector.run(schedule))
        witness = stage.witness
        self.say(
            f"{len(schedule)} faults of {len(injector.injected)} kinds; pods so far: {witness.created:,} created, "
            f"{loader.deleted:,} deleted, {witness.gone - loader.deleted:,} preempted, {witness.bindings:,} bindings"
        )

    async def _keep_evidence(self, checks: list[Check], look: Looking, stage: Stage) -> None:
        """The stories of pods, as `flotilla queue` tells them."""
        names = list(dict.fromkeys(name for check in checks for name in check.pods))[:MOST_STORIES]
        if not any(check.broken for check in checks):
            return
        with (self._logs / "stories.txt").open("w") as file, suppress(FlotillaError):
            for name in names:
                for pod, page in await look.queue(name, NAMESPACE):
                    print("\n".join(in_full(pod, page.now)), end="\n\n", file=file)
        for server in (stage.nats, stage.redis):
            with suppress(OSError):
                shutil.copy(server.folder / f"{server.name}.log", self._logs)


def _the_cause(error: BaseException) -> BaseException:
    """The first of our errors in a group of errors of concurrent tasks; else the error itself."""
    ours = error.subgroup(FlotillaError) if isinstance(error, BaseExceptionGroup) else None
    return error if ours is None else _the_cause(ours.exceptions[0])


def _left_over(before: set[int]) -> Check:
    left = [process for process in psutil.Process().children(recursive=True) if process.pid not in before]
    return Check("no process is left over", f"{len(left)} processes", [str(process) for process in left])


@contextmanager
def _noted(path: Path) -> Iterator[None]:
    """What is logged in this process goes to a file, not among what it says."""
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
        handler.close()
