"""Worker's shell: asks and deltas in, proposals out, its shards' state from Redis."""

import asyncio
import secrets
from collections.abc import Iterable
from contextlib import suppress

from services.worker.core import WorkerCore
from services.worker.events import Answer, Distrusted, Effect, Event, Reload, Tick, Unnamed
from services.worker.spans import EvaluationSpans
from shared.bus import Envelope, subjects
from shared.config.document import read_config
from shared.errors import ClusterError, FlotillaError
from shared.framework.loading import load_frameworks
from shared.messages.identity import NameTaken
from shared.messages.limits import BEAT_INTERVAL
from shared.messages.preemption import Preempt
from shared.messages.rounds import Explain, Proposals, Propose
from shared.messages.state import Delta, Heartbeat, State
from shared.messages.workers import Assign, WorkerBeat
from shared.runtime import Context, CoreRunner, every
from shared.runtime.clocks import ClockOffsets
from shared.runtime.context import Watchdog
from shared.runtime.names import name_taken
from shared.runtime.stopping import WORKER_SHARDS
from shared.store.errors import StoreUnreachable
from shared.store.link import RedisLink, connect
from shared.store.reader import Reader, pipeline_of
from shared.telemetry.logs import Repeated

LEAVE_LOOK = 0.05
"""Seconds between two checks whether others have taken the shards."""
LOAD_PAUSE = 0.1
"""Seconds between two attempts to load, while there is no whole state."""


async def main(context: Context) -> None:
    settings = context.settings
    frameworks = load_frameworks(read_config(settings.config))
    core = WorkerCore(context.name, frozenset(), settings.shard_count, frameworks)
    link = await connect(settings.redis_url, context.log)
    try:
        await learn_pipeline(context, link)
        await Shell(context, core, link).run()
    finally:
        await link.close()


async def learn_pipeline(context: Context, link: RedisLink) -> None:
    """Whose worker this is the state in Redis tells: it waits until there is one. Nothing is heard before.

    Where the state does not tell, as that of the last release, the first pipeline is believed that is heard.
    """
    found, settings, sparingly = None, context.settings, Repeated(context.log)
    while found is None:
        try:
            found = await pipeline_of(link, settings.prefix)
            why = f"Redis at {link.where} has no keys {settings.prefix}:* yet: the snapshot has begun no term"
        except StoreUnreachable as cause:
            why = str(cause)
            sparingly.warning("store", "%s", cause)
        if found is None:
            context.health.wait_for("pipeline", why)
            await asyncio.sleep(LOAD_PAUSE)
    context.health.clear("pipeline")
    context.bus.pipeline.id = found


class Shell:
    def __init__(self, context: Context, core: WorkerCore, link: RedisLink) -> None:
        self._context = context
        self._core = core
        self._reader = Reader(link, context.settings.prefix)
        self._incarnation = core.incarnation = secrets.token_hex(8)
        self._distrusted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._loading: asyncio.Task[None] | None = None
        self._term_heard = asyncio.Event()
        """A heartbeat says that the state is there whole."""
        self._leaving = False
        self._began = context.clock()
        self._runner: CoreRunner[Event, Effect] = CoreRunner(core, Tick(), self._carry_out, context)
        self._spans = EvaluationSpans(context.tracer, context.name)
        self._clocks = ClockOffsets(context)
        self._cycle = Watchdog(context.health, context.clock, "cycle", "no cycle has told it which shards are its own")
        self._snapshot = Watchdog(context.health, context.clock, "snapshot", "no snapshot of this pipeline is heard")
        self._repeated = Repeated(context.log)
        metrics = context.metrics
        self._nodes = metrics.gauge("flotilla_worker_nodes", "Nodes of the shards that this worker holds.")
        self._shards = metrics.gauge("flotilla_worker_shards", "Shards that this worker holds.")
        self._reloads = metrics.counter("flotilla_worker_reloads_total", "Times its shards were loaded whole.")
        self._refused = metrics.counter("flotilla_worker_refused_total", "Messages that were not taken.")
        self._seconds = metrics.histogram(
            "flotilla_worker_answer_duration_seconds", "From an ask's arrival to its answer."
        )

    async def run(self) -> None:
        self._context.health.wait_for("shards", "no shards have been loaded yet")
        self._context.health.ready()
        bus = self._context.bus
        await bus.subscribe(subjects.SNAPSHOT_DELTAS, (Delta, Heartbeat), self._on_delta)
        types = (Propose, Assign, Explain, Preempt, NameTaken)
        await bus.subscribe(subjects.worker(self._context.name), types, self._on_message)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(every(BEAT_INTERVAL, self._beat))
                tasks.create_task(self._context.fault.raised())
                tasks.create_task(self._until_distrusted())
        except asyncio.CancelledError:
            await self._leave()
            raise
        finally:
            self._runner.close()
            if self._loading is not None:
                self._loading.cancel()

    async def _until_distrusted(self) -> None:
        await self._distrusted

    async def _leave(self) -> None:
        """Announces it, and goes on answering until other workers have its shards, or no cycle assigns them."""
        self._leaving = True
        deadline = asyncio.get_running_loop().time() + WORKER_SHARDS
        while self._core.shards and asyncio.get_running_loop().time() < deadline:
            self._beat()
            await asyncio.sleep(LEAVE_LOOK)

    # What comes in

    def _on_delta(self, message: Delta | Heartbeat, envelope: Envelope) -> None:
        self._snapshot.reset()
        if isinstance(message, Heartbeat):
            self._clocks.heard("snapshot", message.at, message.api_ahead)
            self._term_heard.set()
        self._runner.feed(message)

    def _on_message(self, message: Propose | Assign | Explain | Preempt | NameTaken, envelope: Envelope) -> None:
        if isinstance(message, Propose):
            self._spans.begin(message, envelope.trace, self._context.clock())
        before = self._core.shards
        self._runner.feed(message)
        if isinstance(message, Assign) and message.epoch >= self._core.assignment[0]:
            self._on_cycle_heard(message.repeats)
        if self._core.shards != before:
            self._beat()  # the cycle that waits for these shards learns at once

    def _on_cycle_heard(self, repeats: bool) -> None:
        """A cycle of the last release says it once."""
        if repeats:
            self._cycle.reset()
        else:
            self._cycle.stop()

    # What goes out

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Answer(message=answer):
                self._context.bus.post(subjects.CYCLE_ANSWERS, answer)
                if isinstance(answer, Proposals):
                    self._seconds.observe(self._spans.end(answer, self._context.clock()))
            case Reload():
                self._load()
            case Unnamed(taken=taken):
                self._context.fault.end(name_taken("worker", taken, self._context.wall()))
            case Distrusted(why=why):
                if not self._distrusted.done():
                    self._distrusted.set_exception(ClusterError(f"the cycle believes this process no more: {why}"))

    def _beat(self) -> None:
        core = self._core
        self._tell_refused(core.refused)
        if core.loaded or not core.shards:  # who holds none is there for when others are lost
            self._context.health.clear("shards")
        else:
            self._context.health.wait_for("shards", f"{len(core.shards)} are being loaded")
        if core.no_shards_because:
            self._context.health.wait_for("trust", core.no_shards_because)
        else:
            self._context.health.clear("trust")
        self._nodes.set(core.table.node_count)
        self._shards.set(len(core.shards))
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

    def _tell_refused(self, refused: Iterable[FlotillaError]) -> None:
        for error in list(refused):
            self._refused.inc()
            self._repeated.warning(type(error).__name__, "refused: %s", error)
        self._core.refused.clear()

    # Loading

    def _load(self) -> None:
        """A load that is under way is waited for, unless it is of other shards than are held now."""
        wanted = self._core.shards
        if self._loading is not None and not self._loading.done():
            if self._loading.get_name() == str(sorted(wanted)):
                return
            self._loading.cancel()
        self._reloads.inc()
        self._loading = asyncio.create_task(self._load_shards(wanted), name=str(sorted(wanted)))
        self._context.fault.watch(self._loading)

    async def _load_shards(self, shards: frozenset[int]) -> None:
        while True:
            self._term_heard.clear()
            try:
                state = await self._reader.load(shards, self._core.shard_count, self._context.bus.pipeline.id)
            except StoreUnreachable as cause:
                self._repeated.warning("store", "%s", cause)
            except FlotillaError as cause:
                self._repeated.error("load", "%s", cause)
                self._context.health.wait_for("state", str(cause))
            else:
                self._context.health.clear("state")
                if self._core.shards == shards and state is not None:
                    self._take(state)
                    return
                if self._core.shards != shards:
                    return
            with suppress(TimeoutError):
                await asyncio.wait_for(self._term_heard.wait(), LOAD_PAUSE)

    def _take(self, state: State) -> None:
        self._runner.feed(state)
        self._beat()
