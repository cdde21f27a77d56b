"""The worker's shell: whose worker it is, and whether those are there on whom it depends."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from services.worker.core import WorkerCore
from services.worker.service import Shell, learn_pipeline
from services.worker.table_builder import TableBuilder
from shared.bus import Bus, Envelope, subjects
from shared.config.points import ExtensionPoint
from shared.config.settings import Settings
from shared.framework.loading import load_frameworks
from shared.messages.state import Delta, Heartbeat, PodPlaced, State
from shared.messages.workers import Assign, WorkerBeat
from shared.runtime import Context
from shared.runtime.context import PATIENCE
from shared.store.term import open_term
from tests.bus.support import a_bus
from tests.kube.support import until
from tests.rounds.support import (
    Moody,
    SnapshotLog,
    ask_for,
    framework_with,
    propose,
    small_node,
    small_pod,
    state,
    worker,
)
from tests.runtime.contexts import a_context
from tests.servers import nats_server, redis_server
from tests.store.support import PREFIX, begin, linked
from tools.supervisor.servers import NatsServer

pytestmark = pytest.mark.asyncio

OURS = "cluster-1/kube-system"
SHARDS = 4
NO_REDIS: Any = None


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def a_worker(bus: Bus, clock: Clock) -> Context:
    context = a_context(clock=clock, wall=clock)
    return replace(context, bus=bus, settings=Settings(prefix=PREFIX))


@asynccontextmanager
async def a_shell(nats: NatsServer, clock: Clock, core: WorkerCore | None = None) -> AsyncIterator[tuple[Context, Bus]]:
    """It loads no shards, so it needs no Redis. With the bus of a cycle."""
    async with a_bus(nats) as bus, a_bus(nats) as cycle:
        context = a_worker(bus, clock)
        spare = WorkerCore(context.name, frozenset(), SHARDS, load_frameworks(None))
        running = asyncio.create_task(Shell(context, core or spare, NO_REDIS).run())
        try:
            yield context, cycle
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


def missing(context: Context) -> list[str]:
    return [reason for reason in context.health.reasons() if reason.startswith("cycle: ")]


@pytest.mark.parametrize("repeats", [True, False], ids=["this release", "the last release"])
async def test_a_worker_whose_cycle_is_lost_is_not_ready_even_if_nothing_is_asked(repeats: bool) -> None:
    """A cycle of the last release says once what each worker holds, so nothing is known of it afterwards."""
    clock = Clock()
    async with nats_server() as nats, a_shell(nats, clock) as (context, cycle):
        clock.now = PATIENCE + 1
        assert missing(context) == ["cycle: no cycle has told it which shards are its own for 11 s"]

        async def is_told(number: int) -> None:
            def told() -> bool:
                cycle.post(f"worker.{context.name}", Assign(1, number, [], SHARDS, repeats=repeats))
                return not missing(context)

            await until(told)  # it may not listen yet

        await is_told(1)
        clock.now += PATIENCE + 1
        assert bool(missing(context)) is repeats
        await is_told(1)
        assert not missing(context)


async def test_the_traceback_of_a_plugin_that_raises_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    core = worker(framework_with(Moody, ExtensionPoint.FILTER))
    core.handle(state(1, small_node("a")), 0.0)
    async with nats_server() as nats, a_shell(nats, Clock(), core) as (context, cycle):
        rounds, beats = count(1), list[WorkerBeat]()

        async def on_beat(beat: WorkerBeat, envelope: Envelope) -> None:
            beats.append(beat)

        await cycle.subscribe(subjects.WORKER_BEATS, WorkerBeat, on_beat)

        def ask() -> None:
            number = next(rounds)
            bad = small_pod(f"bad-{number}", mood="bad")
            cycle.post(f"worker.{context.name}", propose(ask_for(bad), round_=number))

        def errors() -> list[logging.LogRecord]:
            ask()
            return [record for record in caplog.records if record.getMessage().startswith("an attempt failed: ")]

        await until(errors)
        before = len(beats)
        await until(lambda: errors() and len(beats) > before + 2)
        (record,) = errors()
        assert record.levelno == logging.ERROR
        text = logging.Formatter().format(record)
        assert """running "Moody" plugin: filter: ZeroDivisionError('it is one of those days')""" in text
        assert "in filter_node" in text


class Interrupted(WorkerCore):
    """`interrupt` is called once a state is read, before the core has it."""

    def __init__(self, interrupt: Callable[[], None]) -> None:
        super().__init__("w", frozenset(), SHARDS, load_frameworks(None))
        self._interrupt = interrupt

    def builder(self, state: State) -> TableBuilder:
        self._interrupt()
        return super().builder(state)


FIRST, SECOND = (SnapshotLog(small_node("a"), epoch=epoch).core for epoch in (1, 2))
UNUSABLE = Delta(1, FIRST.seq + 1, [PodPlaced("uid-p", "a", load=7)], [])
"""It has no such load."""


@pytest.mark.parametrize("news", [SECOND.heartbeat(), UNUSABLE], ids=["another leader", "an unusable delta"])
async def test_a_state_that_is_of_no_use_when_it_is_loaded_is_loaded_again_at_once(news: Delta | Heartbeat) -> None:
    """The clock stands still, so nothing is requested again because it does not come."""
    heard: list[Delta | Heartbeat] = []

    def interrupt() -> None:
        if not heard:
            heard.append(news)
            shell._on_delta(news, Envelope({}, "", lambda *_: None))

    async with nats_server() as nats, redis_server() as redis, linked(redis) as link, a_bus(nats) as bus:
        await begin(link, FIRST)
        context, core = a_worker(bus, Clock()), Interrupted(interrupt)
        shell = Shell(context, core, link)
        running = asyncio.create_task(shell.run())
        try:
            async with a_bus(nats) as cycle:
                assign = Assign(1, 1, list(range(SHARDS)), SHARDS)

                def told() -> bool:
                    cycle.post(f"worker.{context.name}", assign)
                    return bool(heard)

                await until(told)  # it may not listen yet
                await begin(link, SECOND)
                await until(lambda: core.loaded)
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


async def test_a_worker_learns_from_the_state_which_pipeline_is_its_own_and_waits_until_there_is_one() -> None:
    async with nats_server() as nats, redis_server() as redis, linked(redis) as link, a_bus(nats) as bus:
        context = a_worker(bus, Clock())
        learning = asyncio.create_task(learn_pipeline(context, link))
        await until(lambda: any("the snapshot has begun no term" in why for why in context.health.reasons()))
        assert not learning.done() and not bus.pipeline.id
        await open_term(link, PREFIX, 1, OURS)
        await learning
        assert bus.pipeline.id == OURS
        assert not [why for why in context.health.reasons() if why.startswith("pipeline")]


async def test_state_of_the_last_release_leaves_it_open_which_pipeline_it_is() -> None:
    async with nats_server() as nats, redis_server() as redis, linked(redis) as link, a_bus(nats) as bus:
        await open_term(link, PREFIX, 1)
        await learn_pipeline(a_worker(bus, Clock()), link)
        assert bus.pipeline.id == ""


async def test_a_redis_that_is_away_is_waited_for_and_named() -> None:
    async with nats_server() as nats, a_bus(nats) as bus:
        context = a_worker(bus, Clock())
        async with redis_server() as redis, linked(redis) as link:
            await redis.stop()
            learning = asyncio.create_task(learn_pipeline(context, link))
            await until(lambda: any(why.startswith("pipeline: Redis at") for why in context.health.reasons()))
            learning.cancel()
            with suppress(asyncio.CancelledError):
                await learning
