"""The worker's shell: receives asks and deltas, sends proposals, and loads the state of its shards from Redis."""

import asyncio
import secrets
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from time import perf_counter

from services.worker.core import WorkerCore
from services.worker.events import Answer, Effect, End, Event, Loaded, Reload, Tick
from services.worker.metrics import WorkerMetrics
from services.worker.relay import MAX_ASKED, Relay
from shared.bus import Envelope, subjects
from shared.config.document import read_config, without_secrets
from shared.errors import ClusterError, FlotillaError
from shared.framework.loading import load_frameworks
from shared.messages.evaluation import Ties
from shared.messages.explaining import ExplainNodes
from shared.messages.identity import NameTaken
from shared.messages.inspection import ConfigurationRead, ReadConfiguration, ReadState
from shared.messages.limits import BEAT_INTERVAL
from shared.messages.preemption import Preempt
from shared.messages.rounds import Proposals, Propose
from shared.messages.state import Delta, Heartbeat
from shared.messages.workers import Assign, WorkerBeat
from shared.runtime import Context, CoreRunner, every
from shared.runtime.clocks import ClockOffsets
from shared.runtime.context import Watchdog
from shared.runtime.names import name_taken
from shared.runtime.stopping import WORKER_SHARDS
from shared.store.errors import StoreUnreachable
from shared.store.link import RedisLink, connect
from shared.store.pages import PageReader
from shared.store.reader import StoreReader, pipeline_of
from shared.telemetry.logs import Repeated
from shared.telemetry.tracing import TraceContext

FIRST_EVALUATIONS = 1 << 21
"""Of a class on a node, that are made at once: a part of a second. Heartbeats go out before the next ones."""
JUDGED_AT_ONCE = 1 << 15
"""Pods on nodes, in a search for the victims of a gang: likewise."""
LEAVE_POLL = 0.05
"""Seconds between two checks whether other workers hold the shards."""
LOAD_PAUSE = 0.1
"""Seconds between two attempts to load, while there is no whole state."""
LONGEST_LOAD_PAUSE = 3.2
"""Seconds between two, at most, while what is loaded is of no use: the pause doubles, as a load costs CPU."""


async def main(context: Context) -> None:
    settings, source = context.settings, read_config(context.settings.config)
    frameworks = load_frameworks(source, settings.feature_gates)
    core = WorkerCore(
        context.name,
        frozenset(),
        settings.shard_count,
        frameworks,
        perf_counter,
        first_evaluations=FIRST_EVALUATIONS,
        judged_at_once=JUDGED_AT_ONCE,
    )
    link = await connect(settings.redis_url, context.log, on_away=partial(context.health.wait_for, "redis"))
    context.health.clear("redis")
    try:
        await learn_pipeline(context, link)
        await Shell(context, core, link, without_secrets(source)).run()
    finally:
        await link.close()


async def learn_pipeline(context: Context, link: RedisLink) -> None:
    """Waits for a state in Redis, which names the worker's pipeline; until then no message is handled.

    The last release's state names none: then the worker joins the first pipeline that it hears.
    """
    found, settings, limited_log = None, context.settings, Repeated(context.log)
    while found is None:
        try:
            found = await pipeline_of(link, settings.prefix)
            why = f"Redis at {link.where} has no keys {settings.prefix}:* yet: the snapshot has begun no term"
        except StoreUnreachable as cause:
            why = str(cause)
            limited_log.warning("store", "%s", cause)
        if found is None:
            context.health.wait_for("pipeline", why)
            await asyncio.sleep(LOAD_PAUSE)
    context.health.clear("pipeline")
    context.bus.pipeline.id = found


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The newest ask, until it is answered: for its span, and for how long the answer took."""

    ask: tuple[int, int, int]
    parent: TraceContext | None
    classes: int
    began: float


class Shell:
    def __init__(self, context: Context, core: WorkerCore, link: RedisLink, config: str = "") -> None:
        """`config`: the configuration that the core decides by, as who asks may see it."""
        self._context = context
        self._core = core
        self._config = config
        self._relay = Relay(PageReader(link, context.settings.prefix), self._configuration)
        self._reader = StoreReader(link, context.settings.prefix)
        self._incarnation = core.incarnation = secrets.token_hex(8)
        self._loading: asyncio.Task[None] | None = None
        self._term_heard = asyncio.Event()
        """Set by a heartbeat of the snapshot: the whole state is in Redis."""
        self._leaving = False
        self._began = context.clock()
        self._runner: CoreRunner[Event, Effect] = CoreRunner(core, Tick(), self._carry_out, context, core.validate)
        self._evaluation: Evaluation | None = None
        self._clocks = ClockOffsets(context)
        self._cycle = Watchdog(context.health, context.clock, "cycle", "no cycle has told it which shards are its own")
        self._snapshot = Watchdog(context.health, context.clock, "snapshot", "no snapshot of this pipeline is heard")
        self._limited_log = Repeated(context.log)
        context.reported.positions["seq"] = lambda: core.seq
        self._metrics = WorkerMetrics(context.metrics)

    async def run(self) -> None:
        self._context.health.wait_for("shards", "no shards have been loaded yet")
        self._context.health.ready()
        bus = self._context.bus
        await bus.subscribe(subjects.SNAPSHOT_DELTAS, (Delta, Heartbeat), self._on_delta)
        types = (Propose, Assign, Preempt, ExplainNodes, NameTaken)
        await bus.subscribe(subjects.worker(self._context.name), types, self._on_message)
        await bus.subscribe(
            subjects.WORKER_READ,
            (ReadState, ReadConfiguration),
            self._relay.answer,
            group=subjects.WORKER_GROUP,
            most_pending=MAX_ASKED,
        )
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(every(BEAT_INTERVAL, self._beat))
                tasks.create_task(self._context.fault.raised())
        except asyncio.CancelledError:
            await self._leave()
            raise
        finally:
            self._runner.close()
            if self._loading is not None:
                self._loading.cancel()

    async def _leave(self) -> None:
        """Announces the end, and answers until other workers hold its shards, or no cycle has assigned them in time."""
        self._leaving = True
        deadline = asyncio.get_running_loop().time() + WORKER_SHARDS
        while self._core.shards and asyncio.get_running_loop().time() < deadline:
            self._beat()
            await asyncio.sleep(LEAVE_POLL)

    # What comes in

    def _on_delta(self, message: Delta | Heartbeat, envelope: Envelope) -> None:
        self._snapshot.reset()
        if isinstance(message, Heartbeat):
            self._clocks.heard("snapshot", message.at, message.api_ahead)
            self._term_heard.set()
        self._runner.feed(message)

    def _on_message(self, message: Propose | Assign | Preempt | ExplainNodes | NameTaken, envelope: Envelope) -> None:
        if isinstance(message, Propose):
            ask, began = (message.epoch, message.round, message.ask), self._context.clock()
            self._evaluation = Evaluation(ask, envelope.trace, len(message.classes), began)
        before = self._core.shards
        self._runner.feed(message)
        if isinstance(message, Assign) and message.epoch >= self._core.assignment[0]:
            if message.repeats:
                self._cycle.reset()
            else:
                self._cycle.stop()  # a cycle of the last release assigns once
        if self._core.shards != before:
            self._beat()  # the cycle that waits for these shards learns at once

    # What goes out

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Answer(message=answer):
                self._context.bus.post(subjects.CYCLE_ANSWERS, answer)
                if isinstance(answer, Proposals):
                    self._record_evaluation(answer)
            case Reload():
                self._load()
            case End(why=NameTaken() as taken):
                self._context.fault.end(name_taken("worker", taken, self._context.wall()))
            case End(why=str() as why):
                self._context.fault.end(ClusterError(f"the cycle believes this process no more: {why}"))

    def _record_evaluation(self, answer: Proposals) -> None:
        evaluation, context = self._evaluation, self._context
        if evaluation is None or evaluation.ask != (answer.epoch, answer.round, answer.ask):
            self._metrics.answer_seconds.observe(0.0)
            return
        self._evaluation, ended, tracer = None, context.clock(), context.tracer
        self._metrics.answer_seconds.observe(ended - evaluation.began)
        if tracer.enabled and evaluation.parent is not None:
            tracer.record(
                "evaluate",
                tracer.child(evaluation.parent),
                evaluation.began,
                ended,
                parent=evaluation.parent,
                attributes={"worker": context.name, "shards": len(answer.shards), "classes": evaluation.classes},
                failed=next((each.failure.message for each in answer.answers if each.failure is not None), ""),
            )

    def _beat(self) -> None:
        core = self._core
        for error in core.refused:
            self._metrics.refused.inc()
            self._limited_log.warning(type(error).__name__, "refused: %s", error)
        core.refused.clear()
        for place, cause in core.failures.unexpected():
            self._limited_log.error(place, "an attempt failed: %s", cause, exc_info=cause)
        if core.loaded or not core.shards:  # a worker without shards is a spare, and ready
            self._context.health.clear("shards")
        else:
            self._context.health.wait_for("shards", f"{len(core.shards)} are being loaded")
        if core.no_shards_because:
            self._context.health.wait_for("trust", core.no_shards_because)
        else:
            self._context.health.clear("trust")
        self._metrics.show(core)
        epoch, number = core.assignment
        beat = WorkerBeat(
            worker=self._context.name,
            incarnation=self._incarnation,
            epoch=epoch,
            assignment=number,
            shards=sorted(core.shards),
            shard_count=core.shard_count,
            seq=core.seq if core.loaded else 0,
            leaving=self._leaving,
            signs=True,
            uptime=self._context.clock() - self._began,
            at=self._context.wall(),
        )
        self._context.bus.post(subjects.WORKER_BEATS, beat)

    def _configuration(self) -> ConfigurationRead:
        settings = self._context.settings
        ties = self._core.ties or Ties(seed=settings.seed)  # services have the same settings
        return ConfigurationRead(self._config, str(settings.feature_gates), settings.shard_count, ties)

    # Loading

    def _load(self) -> None:
        """Starts a load, unless one of the same shards is under way, which goes on until the core has what it needs."""
        wanted = self._core.shards
        if self._loading is not None and not self._loading.done():
            if self._loading.get_name() == str(sorted(wanted)):
                return
            self._loading.cancel()
        self._metrics.reloads.inc()
        self._loading = asyncio.create_task(self._load_shards(wanted), name=str(sorted(wanted)))
        self._context.fault.watch(self._loading)

    async def _load_shards(self, shards: frozenset[int]) -> None:
        pause = LOAD_PAUSE
        while True:
            self._term_heard.clear()
            try:
                loaded = await self._load_once(shards)
            except StoreUnreachable as cause:
                self._limited_log.warning("store", "%s", cause)
            except FlotillaError as cause:
                self._limited_log.error("load", "%s", cause)
                self._context.health.wait_for("state", str(cause))
            else:
                self._context.health.clear("state")
                if self._core.shards != shards:
                    return
                if loaded is not None:
                    self._runner.feed(loaded)
                    self._beat()
                    if not self._core.awaits_state:
                        return  # else it was outdated before it was here, or a delta after it is of no use
                    pause = min(2 * pause, LONGEST_LOAD_PAUSE)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._term_heard.wait()

    async def _load_once(self, shards: frozenset[int]) -> Loaded | None:
        """None without a complete state in Redis, or if the worker has got other shards meanwhile."""
        state = await self._reader.load(shards, self._core.shard_count, self._context.bus.pipeline.id)
        if state is None or self._core.shards != shards:
            return None
        builder = self._core.builder(state)
        for _ in builder.steps():
            await asyncio.sleep(0)
        return Loaded(state, builder.table)
