"""Queue's shell: the watch on one side, cycle and the snapshot on the other, and owners of pods to be told."""

import asyncio
from collections.abc import Iterable

from services.queue.backoff import Backoff
from services.queue.core import QueueCore
from services.queue.events import (
    Acknowledge,
    Answer,
    Effect,
    Ended,
    Event,
    Notify,
    Observed,
    Problem,
    Seen,
    Tick,
    Withdrawn,
)
from services.queue.metrics import QueueMetrics
from services.queue.sightings import Sightings
from services.queue.spans import PodSpans
from shared.bus import Envelope
from shared.bus.subjects import (
    BINDER_NOTICES,
    QUEUE_FORGOTTEN,
    QUEUE_INSPECT,
    QUEUE_OUTCOMES,
    QUEUE_TAKE,
    WATCH,
    WATCHER_RELIST,
)
from shared.config.file import read_config
from shared.messages.binding import Notice, Notices
from shared.messages.queue import Absorbed, Assumed, Batch, Forgotten, Inspect, Outcomes, Received, Take
from shared.messages.watch import Relist, WatchBeat, Watched
from shared.plugins.frameworks import load_frameworks, load_scheduler_config
from shared.runtime import Context, CoreRunner, every
from shared.telemetry.logs import Repeated
from shared.watch.reader import Effect as WatchEffect
from shared.watch.reader import WatchReader

LOOK = 0.25
"""Seconds between two looks at whether a listing is late, and between two updates of metrics."""
MOST_NOTICES = 256
"""In one message: they go to one binder."""
LISTING = "listing"


async def main(context: Context) -> None:
    config = load_scheduler_config(read_config(context.settings.config))
    backoff = Backoff(initial=config.pod_initial_backoff_seconds, longest=config.pod_max_backoff_seconds)
    frameworks = load_frameworks(config)
    await Shell(context, QueueCore(frameworks, backoff=backoff)).run()


class Shell:
    def __init__(self, context: Context, core: QueueCore) -> None:
        self._context = context
        self._bus = context.bus
        self._core = core
        self._reader = WatchReader(context.name)
        self._sightings = Sightings()
        self._runner: CoreRunner[Event, Effect] = CoreRunner(
            core,
            Tick(),
            self._carry_out,
            clock=context.clock,
            telemetry=context.telemetry,
            validate=core.validate if context.validates else None,
        )
        self._metrics = QueueMetrics(context.metrics)
        self._spans = PodSpans(context.tracer, core)
        self._sparingly = Repeated(context.log)
        self._begun = False
        self._asker: tuple[Take, Envelope] | None = None
        self._reporter: tuple[Outcomes, Envelope] | None = None
        self._notices: list[Notice] = []

    async def run(self) -> None:
        bus = self._bus
        self._context.health.wait_for(LISTING, "the cluster has not been listed yet")
        self._context.health.ready()
        await bus.subscribe(WATCH, (Watched, WatchBeat), self._on_watch)
        await bus.subscribe(QUEUE_TAKE, Take, self._on_take)
        await bus.subscribe(QUEUE_OUTCOMES, Outcomes, self._on_outcomes)
        await bus.subscribe(QUEUE_FORGOTTEN, (Forgotten, Assumed, Absorbed), self._on_forgotten)
        await bus.subscribe(QUEUE_INSPECT, Inspect, self._on_inspect)
        self._on_watch_effects(self._reader.start(self._context.clock()))
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(every(LOOK, self._look))
                tasks.create_task(self._runner.broken())
        finally:
            self._runner.close()

    # What comes in

    def _on_watch(self, message: Watched | WatchBeat, envelope: Envelope) -> None:
        self._on_watch_effects(self._reader.take(message, self._context.clock()))
        if self._reader.synced and not self._begun:
            self._begin()

    def _on_watch_effects(self, effects: Iterable[WatchEffect]) -> None:
        now = self._context.clock()
        seen: list[Seen] = []
        for effect in effects:
            if isinstance(effect, Relist):
                self._bus.post(WATCHER_RELIST, effect)
            else:
                seen += self._sightings.read(effect, now)
        if seen:
            self._feed(Observed(seen, self._reader.position))

    def _begin(self) -> None:
        """From here on the queue knows of every pod that there is, and answers."""
        self._begun = True
        self._context.health.clear(LISTING)
        waiting = ", ".join(f"{count} {place}" for place, count in self._core.counts().items() if count)
        self._context.log.info("the cluster is listed; pods: %s", waiting or "none")

    def _on_take(self, take: Take, envelope: Envelope) -> None:
        if not self._begun:
            return  # cycle asks again
        self._asker = (take, envelope)
        self._feed(take)

    def _on_outcomes(self, message: Outcomes, envelope: Envelope) -> None:
        if not self._begun:
            return  # cycle tells it again
        self._reporter = (message, envelope)
        self._feed(message)

    def _on_forgotten(self, message: Forgotten | Assumed | Absorbed, envelope: Envelope) -> None:
        self._feed(message)

    def _on_inspect(self, message: Inspect, envelope: Envelope) -> None:
        if self._begun:
            envelope.respond(self._core.inspect())

    def _look(self) -> None:
        self._on_watch_effects(self._reader.tick(self._context.clock()))
        for refused in (self._core.refused, self._reader.refused):
            while refused:
                self._sparingly.warning("refused", "refused: %s", refused.popleft())
        self._metrics.show(self._core)

    # What goes out

    def _feed(self, event: Event) -> None:
        self._runner.feed(event)
        while self._notices:
            batch, self._notices = self._notices[:MOST_NOTICES], self._notices[MOST_NOTICES:]
            self._bus.post(BINDER_NOTICES, Notices(batch))

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Answer(batch=batch, again=again):
                self._answer(batch)
                if not again:
                    self._spans.taken(batch)
            case Acknowledge(message=received):
                self._acknowledge(received)
            case Notify(notice=notice):
                self._notices.append(notice)
            case Ended():
                self._metrics.ended(effect)
                self._spans.ended(effect)
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
