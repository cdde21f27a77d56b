"""A run of a schedule: what became of it, and the story of the pods concerned where something did not hold."""

import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from testing.simulation.gangs import GangWorld
from testing.simulation.loop import Spinning, Stalled
from testing.simulation.preemption import PreemptionWorld
from testing.simulation.schedule import Schedule
from testing.simulation.storage import StorageWorld
from testing.simulation.story import Story
from testing.simulation.substitutes import run_on_virtual_time
from testing.simulation.world import World

WORLDS: dict[str, type[World]] = {"gangs": GangWorld, "preemption": PreemptionWorld, "waits": StorageWorld}
MOST_SECONDS = 120.0
"""Of CPU for one run; most take two or three."""


@dataclass(slots=True)
class Result:
    """`wrong`: what did not hold; empty: all of it did. `story`: of the pods and nodes that `wrong` names, if heard."""

    seed: int
    wrong: str = ""
    log: list[str] = field(default_factory=list)
    story: list[str] = field(default_factory=list)
    seconds: float = 0.0
    settled_after: float = 0.0

    @property
    def held(self) -> bool:
        return not self.wrong

    @property
    def kind(self) -> str:
        """What is wrong without names and numbers, so that two failures can be compared."""
        first = self.wrong.splitlines()[0] if self.wrong else ""
        return re.sub(r" ?\([^)]*\)", "", re.sub(r"[\w.-]*\d[\w.-]*", "#", first))[:60]


def make_world(schedule: Schedule) -> World:
    return WORLDS.get(schedule.scene.partition("-")[0], World)(schedule)


@contextmanager
def _bounded() -> Iterator[None]:
    """Raise Spinning wherever the run is after MOST_SECONDS of CPU, also where nothing awaits."""

    def end(number: int, frame: object) -> None:
        raise Spinning(f"the run has taken more than {MOST_SECONDS:g} s of CPU")

    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, MOST_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def play(schedule: Schedule) -> Result:
    return _play(schedule, None)


def play_with_story(schedule: Schedule) -> Result:
    """Takes the same course as `play`, and a little longer."""
    story = Story()
    with story.of_the_queue():
        result = _play(schedule, story)
    if not result.held:
        result.story = story.about(result.wrong)
    return result


def _play(schedule: Schedule, story: Story | None) -> Result:
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
            result.wrong = str(wrong) or "an assertion without a word"
        result.settled_after = world.settled_after

    try:
        with _bounded():
            run_on_virtual_time(run, schedule.seed)
    except (AssertionError, Stalled, Spinning) as wrong:
        result.wrong = result.wrong or f"{type(wrong).__name__}: {wrong}"
    result.seconds = time.process_time() - began
    return result
