"""Queue's shell: the watch on one side, cycle, the snapshot and binders on the other; owners of pods to be told, and
what is known of pods to be remembered."""

import asyncio
from collections.abc import Iterable
from time import perf_counter
from typing import Any

from services.queue.backoff import Backoff
from services.queue.core import QueueCore
from services.queue.events import (
    Acknowledge,
    Answer,
    Effect,
    Ended,
    Event,
    Lapse,
    Listed,
    Notify,
    Observed,
    Problem,
    Remember,
    Seen,
    Stale,
    Tick,
    Withdrawn,
)
from services.queue.inspecting import Inspection
from services.queue.places import Place
from services.queue.scheduling.scheduling_queue import Patience
from services.queue.spans import PodSpans
from services.queue.status.metrics import QueueMetrics
from services.queue.status.pod_conditions import fitting
from services.queue.status.retry_store import Remembering
from services.queue.watch.watch_decoder import Sightings
from shared.bus import Envelope, Subscription
from shared.bus.subjects import (
    BINDER_NOTICES,
    QUEUE_ACTIVATE,
    QUEUE_EVICTED,
    QUEUE_FORGOTTEN,
    QUEUE_INSPECT,
    QUEUE_LIST,
    QUEUE_OUTCOMES,
    QUEUE_TAKE,
    WATCH,
    WATCHER_RELIST,
    WATCHER_SEEN,
)
from shared.config.document import read_config
from shared.framework.clusterevents import Action, Resource
from shared.framework.profile import Framework
from shared.kube.connection import given_connection
from shared.messages.binding import Evicted, Notice, Notices
from shared.messages.inspection import ListQueue
from shared.messages.queue import Absorbed, Activate, Assumed, Batch, Forgotten, Inspect, Outcomes, Received, Take
from shared.messages.watch import Relist, WatchBeat, Watched
from shared.plugins.frameworks import load_frameworks, load_scheduler_config
from shared.runtime import Context, CoreRunner, every
from shared.runtime.awaited import Awaited
from shared.runtime.clockoffsets import ClockOffsets
from shared.runtime.dumping import on_dump_signal
from shared.runtime.joining import joined
from shared.runtime.leadership import leadership
from shared.telemetry.logs import Repeated
from shared.watch.progress import Progress
from shared.watch.reader import Effect as WatchEffect
from shared.watch.reader import WatchReader

LOOK = 0.25
"""Seconds between two looks at whether a listing is late, and between two updates of metrics."""
LISTING = "listing"
MEMORY = "memory"


async def main(context: Context) -> None:
    settings = context.settings
    source = read_config(settings.config)
    config = load_scheduler_config(source)
    backoff = Backoff(initial=config.pod_initial_backoff_seconds, longest=config.pod_max_backoff_seconds)
    patience = Patience(unschedulable=settings.unschedulable_patience)
    frameworks = load_frameworks(config)
    annotations = waits_for_annotations(frameworks.values())
    async with Remembering(
        settings.redis_url, settings.prefix, context.telemetry, clock=context.clock, wall=context.wall
    ) as remembering:
        await remembering.try_out()
        given = given_connection(source)
        async with (
            joined(context, config.leader_election, given, answers=True),
            leadership(context, config.leader_election, f"{settings.prefix}-queue", given) as lead,
        ):
            context.health.wait_for(LISTING, "the cluster has not been listed yet")
            context.health.wait_for(MEMORY, "what was known of pods has not been read yet")
            kept = await remembering.recall(lead, context.bus.pipeline.id)
            context.health.clear(MEMORY)
            core = QueueCore(
                frameworks,
                epoch=lead.epoch,
                backoff=backoff,
                patience=patience,
                kept=kept,
                stopwatch=perf_counter,
                date=context.date,
            )
            shell = Shell(context, core, remembering, annotations=annotations)
            with on_dump_signal(shell.dump):
                await lead.during(shell.run())


def waits_for_annotations(frameworks: Iterable[Framework]) -> bool:
    """Whether any plugin wants to know of changes of those of nodes."""
    awaited = Action(0)
    for framework in frameworks:
        for resource in (Resource.NODE, Resource.ANY):
            awaited |= framework.watched.get(resource, Action(0))
    return Action.UPDATE_NODE_ANNOTATION in awaited


class Shell:
    def __init__(
        self, context: Context, core: QueueCore, remembering: Remembering | None = None, *, annotations: bool = False
    ) -> None:
        """`remembering`: without it, nothing outlives the queue. `annotations`: those of nodes matter."""
        self._context = context
        self._bus = context.bus
        self._core = core
        self._remembering = remembering
        self._reader = WatchReader(context.name)
        self._progress = Progress(context.name)
        self._sightings = Sightings(core.objects, annotations=annotations)
        self._runner: CoreRunner[Event, Effect] = CoreRunner(
            core,
            Tick(),
            self._carry_out,
            clock=context.clock,
            telemetry=context.telemetry,
            validate=core.validate if context.validates else None,
        )
        self._inspection = Inspection(core.entries, core.counts, core.nominated, context.date)
        self._metrics = QueueMetrics(context.metrics)
        self._spans = PodSpans(context.tracer, core)
        self._clocks = ClockOffsets(context)
        said = "pods wait, and no cycle has asked for any"
        self._cycle, self._cycle_epoch = Awaited(context.health, context.clock, "cycle", said), 0
        self._cycle.settled()
        self._sparingly = Repeated(context.log)
        self._begun = False
        self._asker: tuple[Take, Envelope] | None = None
        self._reporter: tuple[Outcomes, Envelope] | None = None
        self._notices: list[Notice] = []

    async def run(self) -> None:
        bus = self._bus
        self._context.health.ready()
        await bus.subscribe(WATCH, (Watched, WatchBeat), self._on_watch)
        answering: list[Subscription[Any]] = [
            await bus.subscribe(QUEUE_TAKE, Take, self._on_take),
            await bus.subscribe(QUEUE_OUTCOMES, Outcomes, self._on_outcomes),
            await bus.subscribe(QUEUE_INSPECT, Inspect, self._on_inspect),
            await bus.subscribe(QUEUE_LIST, ListQueue, self._on_list),
        ]
        await bus.subscribe(QUEUE_FORGOTTEN, (Forgotten, Assumed, Absorbed), self._on_forgotten)
        await bus.subscribe(QUEUE_EVICTED, Evicted, self._on_evicted)
        await bus.subscribe(QUEUE_ACTIVATE, Activate, self._on_activate)
        self._on_watch_effects(self._reader.start(self._context.clock()))
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(every(LOOK, self._look))
                tasks.create_task(self._context.fault.raised())
                if self._remembering is not None:
                    tasks.create_task(self._remembering.run())
        finally:
            self._runner.close()
            for subscription in answering:
                await subscription.close()
            if self._remembering is not None:
                await self._remembering.finish()

    def dump(self) -> None:
        """What it holds, as lines of the log."""
        for line in self._inspection.lines(self._context.clock()):
            self._context.log.info("dump: %s", line)

    # What comes in

    def _on_watch(self, message: Watched | WatchBeat, envelope: Envelope) -> None:
        if isinstance(message, WatchBeat):
            self._clocks.heard("watcher", message.at)
        self._on_watch_effects(self._reader.take(message, self._context.clock()))
        seen = self._progress.due(self._reader.position, beat=isinstance(message, WatchBeat))
        if seen is not None:
            self._bus.post(WATCHER_SEEN, seen)
        if self._reader.synced and not self._begun:
            self._begin()

    def _on_watch_effects(self, effects: Iterable[WatchEffect]) -> None:
        now, began = self._context.clock(), perf_counter()
        seen: list[Seen] = []
        for effect in effects:
            if isinstance(effect, Relist):
                self._bus.post(WATCHER_RELIST, effect)
            else:
                seen += self._sightings.read(effect, now)
        if seen:
            labels = self._metrics.labels(seen, self._core)
            self._feed(Observed(seen, self._reader.position if self._begun else None))
            self._metrics.handled(labels, perf_counter() - began)

    def _begin(self) -> None:
        """From here on the queue knows of every pod that there is, and answers. Before, nobody was to be tried."""
        self._begun = True
        self._feed(Listed(self._reader.position))
        if self._asker is not None:
            self._feed(self._asker[0])
        self._context.health.clear(LISTING)
        waiting = ", ".join(f"{count} {place}" for place, count in self._core.counts().items() if count)
        self._context.log.info("the cluster is listed; pods: %s", waiting or "none")

    def _on_take(self, take: Take, envelope: Envelope) -> None:
        """A cycle that asks before the cluster is listed is answered when it is, or asks again."""
        self._cycle_epoch = max(self._cycle_epoch, take.epoch)
        if take.epoch == self._cycle_epoch:
            self._cycle.settled()
        self._asker = (take, envelope)
        if self._begun:
            self._feed(take)

    def _on_outcomes(self, message: Outcomes, envelope: Envelope) -> None:
        if not self._begun:
            return  # cycle tells it again
        self._reporter = (message, envelope)
        self._feed(message)

    def _on_forgotten(self, message: Forgotten | Assumed | Absorbed, envelope: Envelope) -> None:
        self._feed(message)

    def _on_activate(self, message: Activate, envelope: Envelope) -> None:
        self._feed(message)

    def _on_evicted(self, message: Evicted, envelope: Envelope) -> None:
        self._feed(message)
        envelope.respond(Received(0, message.attempt, self._core.epoch))

    def _on_inspect(self, message: Inspect, envelope: Envelope) -> None:
        if self._begun:
            envelope.respond(self._core.inspect())

    def _on_list(self, asked: ListQueue, envelope: Envelope) -> None:
        if self._begun:
            envelope.respond(self._inspection.answer(asked, self._context.clock()))

    def _look(self) -> None:
        self._on_watch_effects(self._reader.tick(self._context.clock()))
        for refused in (self._core.refused, self._reader.refused):
            while refused:
                self._sparingly.warning("refused", "refused: %s", refused.popleft())
        if self._core.counts().get(Place.ACTIVE):
            self._cycle.awaits()
        else:
            self._cycle.settled()
        self._post_notices()  # those that time alone has brought
        self._metrics.show(self._core)
        self._inspection.expire(self._context.clock())

    # What goes out

    def _feed(self, event: Event) -> None:
        self._runner.feed(event)
        self._post_notices()

    def _post_notices(self) -> None:
        while self._notices:
            count = fitting(self._notices)
            batch, self._notices = self._notices[:count], self._notices[count:]
            self._bus.post(BINDER_NOTICES, Notices(batch, self._core.epoch))

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Answer(batch=batch, again=again):
                self._answer(batch)
                if not again:
                    self._spans.taken(batch, self._context.clock())
            case Acknowledge(message=received):
                self._acknowledge(received)
            case Notify(notice=notice):
                self._notices.append(notice)
            case Ended():
                self._metrics.ended(effect)
                self._spans.ended(effect)
            case Remember() | Lapse():
                if self._remembering is not None:
                    self._remembering.take(effect)
            case Stale(key=key):
                self._metrics.stale.inc()
                self._sparingly.warning("stale", "pod %s is shown without its node, as it was once: refused", key)
                self._on_watch_effects(self._reader.doubt(self._context.clock()))
            case Problem(error=error):
                self._sparingly.warning(str(error), "%s", error)
            case Withdrawn():
                pass  # cycle decides it in vain: the binding will find no pod

    def _answer(self, batch: Batch) -> None:
        if self._asker is not None:
            take, envelope = self._asker
            if (take.epoch, take.number) == (batch.epoch, batch.number):
                envelope.respond(batch)

    def _acknowledge(self, received: Received) -> None:
        if self._reporter is not None:
            outcomes, envelope = self._reporter
            if (outcomes.epoch, outcomes.number) == (received.epoch, received.number):
                envelope.respond(received)
