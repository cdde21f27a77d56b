"""Plays schedules, many seeds on all cores, and shortens the schedules of those that fail."""

import gc
import multiprocessing
import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field

from testing.simulation.broken import BROKEN, broken_build
from testing.simulation.devices import DeviceWorld
from testing.simulation.drawing import base_of, draw
from testing.simulation.gangs import GangWorld
from testing.simulation.loop import Spinning, Stalled
from testing.simulation.preemption import PreemptionWorld
from testing.simulation.rolls import RollWorld
from testing.simulation.schedule import Schedule
from testing.simulation.storage import StorageWorld
from testing.simulation.story import Story
from testing.simulation.substitutes import run_on_virtual_time
from testing.simulation.trees import TreeWorld
from testing.simulation.world import World

WORLDS: dict[str, type[World]] = {
    "devices": DeviceWorld,
    "gangs": GangWorld,
    "gangs-trees": TreeWorld,
    "gangs-trees-calm": TreeWorld,
    "plain-rolls": RollWorld,
    "preemption": PreemptionWorld,
    "waits": StorageWorld,
}
MAX_SECONDS = 120.0
"""CPU time limit of a run; most take one or two."""


@dataclass(slots=True)
class Result:
    """`wrong`: violated invariants; `story`: of the pods and nodes that `wrong` names, if recorded."""

    seed: int
    wrong: str = ""
    log: list[str] = field(default_factory=list)
    story: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def held(self) -> bool:
        return not self.wrong

    @property
    def kind(self) -> str:
        """The first violation without names and numbers, to compare failures."""
        first = self.wrong.splitlines()[0] if self.wrong else ""
        return re.sub(r" ?\([^)]*\)", "", re.sub(r"[\w.-]*\d[\w.-]*", "#", first))[:60]


@dataclass(frozen=True, slots=True)
class Options:
    """`broken`: the broken build to play, if any; `shrink_seconds`: time to shorten each failure."""

    scene: str = ""
    broken: str = ""
    shrink_seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class Failure:
    """`shortest`: the shortest schedule found that fails in the same way as `whole`; `result`: its result and story."""

    whole: Schedule
    shortest: Schedule
    result: Result


Progress = Callable[[int, int, Result], None]
"""Called with the number of seeds played, the number that failed, and the last result."""


# One schedule


def make_world(schedule: Schedule) -> World:
    return (WORLDS.get(schedule.scene) or WORLDS.get(base_of(schedule.scene), World))(schedule)


def play(schedule: Schedule, story: Story | None = None) -> Result:
    began = time.process_time()
    result = Result(schedule.seed)

    async def run() -> None:
        world = make_world(schedule)
        if story is not None:
            story.follow(world)
        result.log = world.log
        try:
            await world.run()
        except AssertionError as wrong:
            result.wrong = str(wrong) or "an assertion without a message"

    try:
        with _limited_cpu():
            run_on_virtual_time(run, schedule.seed)
    except (AssertionError, Stalled, Spinning) as wrong:
        result.wrong = result.wrong or f"{type(wrong).__name__}: {wrong}"
    result.seconds = time.process_time() - began
    return result


def play_with_story(schedule: Schedule) -> Result:
    """Play the same course as `play`, and record it."""
    story = Story()
    with story.of_the_queue():
        result = play(schedule, story)
    if not result.held:
        result.story = story.about(result.wrong)
    return result


@contextmanager
def _limited_cpu() -> Iterator[None]:
    """Raise Spinning after MAX_SECONDS of CPU, even in code that never awaits."""

    def end(number: int, frame: object) -> None:
        raise Spinning(f"the run has taken more than {MAX_SECONDS:g} s of CPU")

    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, MAX_SECONDS, 1.0)  # again, as a handler may swallow it
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def shrink(
    schedule: Schedule, failed: Result, play: Callable[[Schedule], Result], seconds: float
) -> tuple[Schedule, Result]:
    """Leave out entries, halves first, then ever smaller parts, while the rest fails in the same way.

    Returns the shortest schedule found when `seconds` are over.
    """
    ends = time.monotonic() + seconds
    entries, result = list(schedule.entries), failed
    size = max(len(entries) // 2, 1)
    while entries:
        removed = False
        start = 0
        while start < len(entries):
            if time.monotonic() >= ends:
                return schedule.with_only(entries), result
            rest = [*entries[:start], *entries[start + size :]]
            found = play(schedule.with_only(rest))
            if found.kind == failed.kind:
                entries, result, removed = rest, found, True
            else:
                start += size
        if size == 1 and not removed:
            break
        size = max(size // 2, 1)
    return schedule.with_only(entries), result


# Many seeds


def play_seeds(seeds: Sequence[int], options: Options, progress: Progress) -> tuple[list[Result], list[Failure]]:
    results: list[Result] = []
    failed: list[Result] = []
    with pool_of_players() as pool:
        for future in as_completed([pool.submit(_play_seed, seed, options) for seed in seeds]):
            results.append(future.result())
            failed += [result for result in results[-1:] if not result.held]
            progress(len(results), len(failed), results[-1])
        failed.sort(key=lambda each: each.seed)
        return results, list(pool.map(_shrink_seed, failed, [options] * len(failed)))


def play_schedule(schedule: Schedule, options: Options) -> Result:
    """Play in a process like those of `play_seeds`, so that the run takes the same course."""
    with pool_of_players() as pool:
        return pool.submit(_play_schedule, schedule, options).result()


def drawn(seed: int, options: Options) -> Schedule:
    """The schedule of a seed; for a broken build, one with the scene and mishaps that reveal it."""
    if not options.broken:
        return draw(seed, scene=options.scene)
    broken = BROKEN[options.broken]
    scene = options.scene or broken.scene
    return draw(
        seed,
        scene=scene,
        mishaps=frozenset(broken.mishaps.split()),
        seconds=broken.seconds,
        mishap_every=broken.every,
        often=broken.often,
        arguments=broken.arguments,
    )


def _play_seed(seed: int, options: Options) -> Result:
    with broken_build(options.broken):
        return play(drawn(seed, options))


def _shrink_seed(failed: Result, options: Options) -> Failure:
    whole = drawn(failed.seed, options)
    with broken_build(options.broken):
        shortest, _ = shrink(whole, failed, play, options.shrink_seconds)
        return Failure(whole, shortest, play_with_story(shortest))


def _play_schedule(schedule: Schedule, options: Options) -> Result:
    with broken_build(options.broken):
        return play_with_story(schedule)


def pool_of_players(processes: int | None = None) -> ProcessPoolExecutor:
    """Processes, as many as there are CPUs, with the same hash seed: the order of sets is a part of a run's course."""
    os.environ["PYTHONHASHSEED"] = "0"
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(processes or os.cpu_count(), mp_context=context, initializer=_collect_seldom)


def _collect_seldom() -> None:
    """What was imported is no garbage, and a run makes little of it."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
