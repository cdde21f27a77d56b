"""Reasons for not being ready, and work that is done again and again."""

import asyncio
import itertools

import pytest

from shared.runtime import Health, every
from tests.bus.support import until
from tests.virtual import on_virtual_time


def test_ready_only_without_any_reason() -> None:
    health, lost = Health(), "lost"
    health.check("nats", lambda: lost)
    health.wait_for("redis", "loading")
    assert health.reasons() == ["service: is starting", "nats: lost", "redis: loading"]
    health.wait_for("redis", "still loading")
    health.ready()
    assert health.reasons() == ["nats: lost", "redis: still loading"]
    health.clear("redis")
    health.clear("redis")
    lost = ""
    assert health.reasons() == []
    lost = "again"
    assert health.reasons() == ["nats: again"]


@on_virtual_time
async def test_periodic_work_runs_at_once_and_then_together_with_other_work() -> None:
    loop, times, others = asyncio.get_running_loop(), list[float](), list[float]()
    await asyncio.sleep(0.005)
    beat = asyncio.create_task(every(0.02, lambda: times.append(loop.time())))
    await asyncio.sleep(0.007)
    other = asyncio.create_task(every(0.04, lambda: others.append(loop.time())))
    await until(lambda: len(times) == 6)
    for task in (beat, other):
        task.cancel()
    assert times[0] == 0.005 and others[0] == 0.012
    assert times[1:] == pytest.approx([0.02, 0.04, 0.06, 0.08, 0.1])
    assert others[1:] == pytest.approx([0.04, 0.08])


@on_virtual_time
async def test_missed_intervals_are_skipped() -> None:
    loop, times = asyncio.get_running_loop(), list[float]()

    async def slow() -> None:
        times.append(loop.time())
        if len(times) == 1:
            await asyncio.sleep(0.1)

    beat = asyncio.create_task(every(0.02, slow))
    await until(lambda: len(times) == 4)
    beat.cancel()
    assert min(b - a for a, b in itertools.pairwise(times[1:])) > 0.01


@on_virtual_time
async def test_failing_work_fails_its_task_group() -> None:
    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ExceptionGroup) as group:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(every(60, fail))
            tasks.create_task(every(60, lambda: None))
    assert group.group_contains(ValueError)
