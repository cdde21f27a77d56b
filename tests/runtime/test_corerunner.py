"""The shell around a core: events, effects and time."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from shared.errors import InvariantBroken, Unexpected
from shared.runtime import CoreRunner
from shared.runtime.corerunner import STUCK_SLEEP
from shared.telemetry import Telemetry
from tests.bus.support import a_telemetry, sample, until
from tests.runtime.contexts import a_context
from tests.virtual import now, on_virtual_time

TICK = "tick"


class Script:
    """A core that does what the test says."""

    def __init__(self, deadline: float | None = None) -> None:
        self.deadline = deadline
        self.seen: list[tuple[str, float]] = []
        self.on_tick: Callable[[], None] = self.rest

    def rest(self) -> None:
        self.deadline = None

    def handle(self, event: str, now: float) -> list[str]:
        self.seen.append((event, now))
        if event == TICK:
            self.on_tick()
        if event == "fail":
            raise ValueError("no")
        if event == "break":
            raise InvariantBroken("cannot be")
        return [f"{event}-{n}" for n in range(2)]

    def next_deadline(self) -> float | None:
        return self.deadline

    @property
    def ticks(self) -> int:
        return sum(event == TICK for event, _ in self.seen)


def a_runner(
    core: Script,
    carry_out: Callable[[str], None] = lambda _: None,
    *,
    telemetry: Telemetry | None = None,
    clock: Callable[[], float] = now,
    validate: Callable[[], None] | None = None,
) -> CoreRunner[str, str]:
    context = replace(a_context(clock=clock, wall=clock), telemetry=telemetry or a_telemetry(), validates=True)
    return CoreRunner(core, TICK, carry_out, context, validate)


# Events and effects


@on_virtual_time
async def test_effects_are_carried_out_in_order_before_feed_returns() -> None:
    done: list[str] = []
    core = Script()
    runner = a_runner(core, done.append, clock=lambda: 17.0)
    runner.feed("a")
    runner.feed("b")
    assert done == ["a-0", "a-1", "b-0", "b-1"]
    assert core.seen == [("a", 17.0), ("b", 17.0)]
    runner.close()


@on_virtual_time
async def test_an_event_fed_by_an_effect_is_handled_next() -> None:
    done: list[str] = []

    def carry_out(effect: str) -> None:
        done.append(effect)
        if effect == "a-0":
            runner.feed("b")

    runner = a_runner(Script(), carry_out)
    runner.feed("a")
    assert done == ["a-0", "a-1", "b-0", "b-1"]
    runner.close()


@on_virtual_time
async def test_nothing_is_handled_once_it_is_closed() -> None:
    core = Script(deadline=now() + 0.01)
    runner = a_runner(core)
    runner.feed("a")
    runner.close()
    runner.feed("b")
    await asyncio.sleep(0.05)
    assert [event for event, _ in core.seen] == ["a"]


# Faults


@on_virtual_time
async def test_a_core_that_fails_ends_the_term(caplog: pytest.LogCaptureFixture) -> None:
    telemetry, done, core = a_telemetry(), list[str](), Script()
    runner = a_runner(core, done.append, telemetry=telemetry)
    for event in ("a", "fail", "b"):
        runner.feed(event)
    assert done == ["a-0", "a-1"]
    assert [event for event, _ in core.seen] == ["a", "fail"]
    with pytest.raises(Unexpected, match=r"handling str failed: ValueError\('no'\)") as found:
        await telemetry.fault.raised()
    assert isinstance(found.value.__cause__, ValueError)
    assert sample(telemetry, "flotilla_core_failures_total") == 1
    assert [bool(record.exc_info) for record in caplog.records] == [True]
    runner.close()


@on_virtual_time
async def test_an_effect_that_fails_ends_the_term_before_the_next_effect() -> None:
    telemetry, done = a_telemetry(), list[str]()

    def carry_out(effect: str) -> None:
        if effect == "a-0":
            runner.feed("b")
            raise OSError("no room")
        done.append(effect)

    runner = a_runner(Script(), carry_out, telemetry=telemetry)
    runner.feed("a")
    assert done == []
    with pytest.raises(Unexpected, match="carrying out str failed"):
        await telemetry.fault.raised()
    runner.close()


@on_virtual_time
async def test_a_fault_elsewhere_in_the_process_stops_the_core() -> None:
    telemetry, core = a_telemetry(), Script(deadline=now() + 0.01)
    runner = a_runner(core, telemetry=telemetry)
    runner.feed("a")

    async def break_down() -> None:
        raise ValueError("no")

    task = asyncio.create_task(break_down(), name="loading")
    telemetry.fault.watch(task)
    with pytest.raises(Unexpected, match="task loading failed"):
        await telemetry.fault.raised()
    runner.feed("b")
    await asyncio.sleep(0.03)
    assert [event for event, _ in core.seen] == ["a"]
    runner.close()


@on_virtual_time
async def test_a_core_is_validated_after_each_event_on_request() -> None:
    checks: list[int] = []
    telemetry = a_telemetry()

    def validate() -> None:
        checks.append(1)
        if len(checks) == 3:
            raise InvariantBroken("found")

    runner = a_runner(Script(), telemetry=telemetry, validate=validate)
    for event in "abcd":
        runner.feed(event)
    assert len(checks) == 3
    with pytest.raises(Unexpected, match="found"):
        await telemetry.fault.raised()
    runner.close()


@on_virtual_time
async def test_without_a_tick_event_no_timer_runs() -> None:
    core = Script(deadline=now())
    runner = CoreRunner(core, None, lambda _: None, a_context(clock=now, wall=now))
    runner.feed("a")
    await asyncio.sleep(0.02)
    assert core.ticks == 0
    runner.close()


# Time


@on_virtual_time
async def test_a_tick_comes_at_the_deadline_and_never_early() -> None:
    for wait in (0.0, 0.02, 0.1):
        core = Script(deadline=now() + wait)
        due = core.deadline or 0.0
        runner = a_runner(core)
        runner.feed("a")
        await until(lambda core=core: core.ticks == 1)  # type: ignore[misc]
        assert 0.0 <= core.seen[-1][1] - due < 0.01
        runner.close()


@on_virtual_time
async def test_an_earlier_deadline_moves_the_timer_and_a_later_one_too() -> None:
    core = Script(deadline=now() + 60)
    runner = a_runner(core)
    runner.feed("a")
    core.deadline = now() + 0.02
    runner.feed("b")
    await until(lambda: core.ticks == 1)
    core.deadline = now() + 0.02
    runner.feed("c")
    core.deadline = due = now() + 0.1
    runner.feed("d")
    await until(lambda: core.ticks == 2)
    assert core.seen[-1][1] >= due
    runner.close()


@on_virtual_time
async def test_a_removed_deadline_causes_no_tick() -> None:
    core = Script(deadline=now() + 0.02)
    runner = a_runner(core)
    runner.feed("a")
    core.deadline = None
    runner.feed("b")
    await asyncio.sleep(0.05)
    assert core.ticks == 0
    core.deadline = now()
    runner.feed("c")
    await until(lambda: core.ticks == 1)
    runner.close()


@on_virtual_time
async def test_a_tick_that_leaves_its_deadline_in_the_past_does_not_spin() -> None:
    core = Script(deadline=now())
    core.on_tick = lambda: None
    runner = a_runner(core)
    runner.feed("a")
    await until(lambda: core.ticks == 3)
    times = [now for event, now in core.seen if event == TICK]
    assert times[-1] - times[0] >= 1.8 * STUCK_SLEEP
    runner.close()


@on_virtual_time
async def test_a_slow_clock_causes_no_early_tick() -> None:
    shift, due = 0.0, now() + 0.05
    core = Script(deadline=due)
    runner = a_runner(core, clock=lambda: now() + shift)
    runner.feed("a")
    shift = -0.1
    await until(lambda: core.ticks == 1)
    assert core.seen[-1][1] >= due
    runner.close()
