"""Many seeds on all cores; what failed is cut down to what it takes to fail."""

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass

from testing.simulation.broken import BROKEN, broken_build
from testing.simulation.drawing import draw
from testing.simulation.running import Result, play, play_with_story
from testing.simulation.schedule import Schedule
from testing.simulation.shrink import shrink

HASH_SEED = "PYTHONHASHSEED"
Progress = Callable[[int, int, Result], None]


@dataclass(frozen=True, slots=True)
class Options:
    """`broken`: the build in which a fence is switched off; empty: none. `shrink_seconds`: for each failure."""

    scene: str = ""
    broken: str = ""
    shrink_seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class Failure:
    """`shortest`: the shortest schedule found that fails as the whole does; `result`: of it, with its story."""

    whole: Schedule
    shortest: Schedule
    result: Result


def play_seeds(seeds: Sequence[int], options: Options, progress: Progress) -> tuple[list[Result], list[Failure]]:
    """`progress` is told how many have been played, how many of these failed, and what became of the last one."""
    with _pool() as pool:
        futures = [pool.submit(play_seed, seed, options) for seed in seeds]
        results = list(_as_they_come(futures, progress))
        failed = sorted((each for each in results if not each.held), key=lambda each: each.seed)
        failures = list(pool.map(shrink_seed, failed, [options] * len(failed)))
    return results, failures


def drawn(seed: int, options: Options) -> Schedule:
    """Of a broken build, what brings it to light."""
    if not options.broken:
        return draw(seed, scene=options.scene)
    broken = BROKEN[options.broken]
    return draw(
        seed,
        scene=options.scene or broken.scene,
        mishaps=broken.mishaps,
        seconds=broken.seconds,
        mishap_every=1.0,
    )


def play_seed(seed: int, options: Options) -> Result:
    with broken_build(options.broken):
        return play(drawn(seed, options))


def shrink_seed(failed: Result, options: Options) -> Failure:
    whole = drawn(failed.seed, options)
    with broken_build(options.broken):
        shortest, _ = shrink(whole, failed, play, options.shrink_seconds)
        return Failure(whole, shortest, play_with_story(shortest))


def play_schedule(schedule: Schedule, options: Options) -> Result:
    """In a process as those of `play_seeds`, so that it takes the same course."""
    with _pool() as pool:
        return pool.submit(_play, schedule, options).result()


def _play(schedule: Schedule, options: Options) -> Result:
    with broken_build(options.broken):
        return play_with_story(schedule)


def _as_they_come(futures: "Sequence[Future[Result]]", progress: Progress) -> Iterator[Result]:
    failed = 0
    for done, future in enumerate(as_completed(futures), 1):
        result = future.result()
        failed += not result.held
        progress(done, failed, result)
        yield result


def _pool() -> ProcessPoolExecutor:
    """Processes that hash alike: the order of a set is a part of the course that a run takes."""
    os.environ[HASH_SEED] = "0"
    return ProcessPoolExecutor(os.cpu_count(), mp_context=multiprocessing.get_context("spawn"))
