"""The queue's shell: connects the core with the watcher, cycle, the snapshot, binders and Redis."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from time import perf_counter
from typing import Any

from flotilla.events import Action, Resource
from services.queue import events
from services.queue.core import QueueCore
from services.queue.group_conditions import MAX_GROUP_NOTICES
from services.queue.group_listing import GroupListing
from services.queue.introspection import Introspection
from services.queue.metrics import PodSpans, QueueMetrics
from services.queue.pod_conditions import count_for_one_message
from services.queue.retry_store import RetryStore
from services.queue.scheduling.pod_queues import BackoffPolicy
from services.queue.scheduling.queued_pod_info import PodState
from services.queue.scheduling.scheduling_queue import Timeouts
from services.queue.watch_decoder import WatchDecoder
from shared.bus import Envelope, Subscription, subjects
from shared.config.document import read_config
from shared.framework.loading import load_frameworks, load_scheduler_config
from shared.framework.profile import Framework
from shared.kube.access import client_connection
from shared.messages.binding import Evicted, GroupNotice, Notice, Notices
from shared.messages.inspection import ListEvictions, ListGroups, ListQueue
from shared.messages.queue import Absorbed, Activate, Assumed, Batch, Forgotten, Inspect, Outcomes, Received, Take
from shared.messages.watch import WatchBeat, Watched
from shared.runtime import Context, CoreRunner, every
from shared.runtime.context import Watchdog
from shared.runtime.following import LISTING, WatchFollower
from shared.runtime.hosting import on_dump_signal
from shared.runtime.joining import joined
from shared.runtime.leadership import leadership
from shared.runtime.shown_versions import compare_shown_versions
from shared.telemetry.logs import Repeated
from shared.watch import Seen

LOOK_INTERVAL = 0.5
"""Seconds between two updates of metrics, and between two checks for a late listing."""
EARLY = 0.1
"""The part of a back-off after which a pod is handed out if no pod is active: a round may take all that back off."""
MEMORY = "memory"


async def main(context: Context) -> None:
    settings = context.settings
    source = read_config(settings.config)
    config = load_scheduler_config(source, settings.feature_gates)
    frameworks = load_frameworks(config)
    async with RetryStore(
        settings.redis_url, settings.prefix, context.telemetry, clock=context.clock, wall=context.wall
    ) as store:
        await store.probe()
        given = client_connection(source)
        core = QueueCore(
            frameworks,
            backoff=BackoffPolicy(
                initial=config.pod_initial_backoff_seconds, maximum=config.pod_max_backoff_seconds, early=EARLY
            ),
            timeouts=Timeouts(unschedulable=settings.unschedulable_patience),
            stopwatch=perf_counter,
            date=context.date,
        )
        standby = Standby(context, core, annotations=awaits_annotations(frameworks.values()))
        lease, stand_by = f"{settings.prefix}-queue", standby.follower.stand_by
        async with (
            joined(context, config.leader_election, given, answers=True),
            leadership(context, config.leader_election, lease, given, stand_by=stand_by) as lead,
        ):
            context.health.wait_for(LISTING, "the cluster has not been listed yet")
            context.health.wait_for(MEMORY, "retry records have not been read yet")
            records = await store.load(lead, context.bus.pipeline.id)
            context.health.clear(MEMORY)
            core.take_over(lead.epoch, records, context.clock())
            shell = Shell(context, standby, store, lead.later_version)
            with on_dump_signal(shell.dump):
                await lead.during(shell.run())


def awaits_annotations(frameworks: Iterable[Framework]) -> bool:
    """Whether any plugin waits for changes of nodes' annotations."""
    awaited = Action(0)
    for framework in frameworks:
        for resource in (Resource.NODE, Resource.ANY):
            awaited |= framework.watched.get(resource, Action(0))
    return Action.UPDATE_NODE_ANNOTATION in awaited


class Standby:
    """The pods and the cluster that the watcher's stream shows; a new leader reads the retry history from Redis."""

    def __init__(self, context: Context, core: QueueCore, *, annotations: bool = False) -> None:
        """`annotations`: of nodes, are kept for hints."""
        self.core = core
        self.decoder = WatchDecoder(core.objects, annotations=annotations)
        self.follower = WatchFollower(context, self._apply)
        self._clock = context.clock
        self._runner: CoreRunner[events.Event, events.Effect] = CoreRunner(
            core, None, self._drop, context, core.validate
        )

    def _apply(self, changes: Sequence[Seen]) -> None:
        now = self._clock()
        if found := [event for change in changes for event in self.decoder.decode(change, now)]:
            self._runner.feed(events.WatchEvents(found))

    def _drop(self, effect: events.Effect) -> None:
        """The leader carries effects out."""
        if isinstance(effect, events.PodStale):
            self.follower.doubt()


class Shell:
    def __init__(
        self,
        context: Context,
        standby: Standby,
        store: RetryStore | None = None,
        later_version: Callable[[], Awaitable[int]] | None = None,
    ) -> None:
        """`store`: without it, retry records do not survive a restart. `later_version`: as that of `Leadership`."""
        self._context = context
        self._bus = context.bus
        self._core = core = standby.core
        self._store = store
        self._follower = standby.follower
        self._follower.apply, self._follower.heard = self._apply, self._on_heard
        self._reader = standby.follower.reader
        self._later_version = later_version
        self._decoder = standby.decoder
        self._runner: CoreRunner[events.Event, events.Effect] = CoreRunner(
            core, events.Tick(), self._carry_out, context, core.validate
        )
        self._introspection = Introspection(core, context.date, context.clock())
        self._group_listing = GroupListing(core.groups, core.nominator, context.date)
        self._metrics = QueueMetrics(context.metrics)
        self._spans = PodSpans(context.tracer, core)
        missing = "pods wait, and no cycle has asked for any"
        self._cycle = Watchdog(context.health, context.clock, "cycle", missing)
        self._cycle.stop()
        self._limited_log = Repeated(context.log)
        self._listed = False
        self._take: tuple[Take, Envelope] | None = None
        self._outcomes: tuple[Outcomes, Envelope] | None = None
        self._notices: list[Notice] = []
        self._group_notices: list[GroupNotice] = []

    async def run(self) -> None:
        bus = self._bus
        self._context.health.ready()
        await self._follower.begin()
        answering: list[Subscription[Any]] = [
            await bus.subscribe(subjects.QUEUE_TAKE, Take, self._on_take),
            await bus.subscribe(subjects.QUEUE_OUTCOMES, Outcomes, self._on_outcomes),
            await bus.subscribe(subjects.QUEUE_INSPECT, Inspect, self._on_inspect),
            await bus.subscribe(subjects.QUEUE_LIST, (ListQueue, ListEvictions, ListGroups), self._on_list),
        ]
        await bus.subscribe(subjects.QUEUE_FORGOTTEN, (Forgotten, Assumed, Absorbed), self._on_event)
        await bus.subscribe(subjects.QUEUE_EVICTED, Evicted, self._on_evicted)
        await bus.subscribe(subjects.QUEUE_ACTIVATE, Activate, self._on_event)
        if not self._reader.synced:
            self._follower.carry_out(self._reader.start(self._context.clock()))
        elif not self._listed:
            self._begin()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(every(LOOK_INTERVAL, self._look))
                tasks.create_task(self._context.fault.raised())
                if self._later_version is not None:
                    shown = self._reader, self._later_version, self._context.clock, self._follower.carry_out
                    tasks.create_task(compare_shown_versions(*shown))
                if self._store is not None:
                    tasks.create_task(self._store.run())
        finally:
            for subscription in answering:
                await subscription.close()
            self._runner.feed(events.TermEnds())
            self._runner.close()
            self._post_notices()
            if self._store is not None:
                await self._store.finish()

    def dump(self) -> None:
        for line in self._introspection.lines(self._context.clock()):
            self._context.log.info("dump: %s", line)

    # Messages

    def _on_heard(self, message: Watched | WatchBeat) -> None:
        if self._reader.synced and not self._listed:
            self._begin()

    def _apply(self, changes: Sequence[Seen]) -> None:
        now, began = self._context.clock(), perf_counter()
        found = [event for change in changes for event in self._decoder.decode(change, now)]
        if found:
            labels = self._metrics.labels(found, self._core)
            self._runner.feed(events.WatchEvents(found, self._reader.position if self._listed else None))
            self._metrics.handled(labels, perf_counter() - began)

    def _begin(self) -> None:
        """Answers messages from here on: the core knows every pod, so it pops them in the right order."""
        self._listed = True
        self._runner.feed(events.ListingComplete(self._reader.position))
        if self._take is not None:
            self._runner.feed(self._take[0])
        self._context.health.clear(LISTING)
        waiting = ", ".join(f"{count} {state}" for state, count in self._core.counts().items() if count)
        self._context.log.info("the cluster is listed; pods: %s", waiting or "none")

    def _on_take(self, take: Take, envelope: Envelope) -> None:
        """A Take that comes before the cluster is listed is answered when it is."""
        self._take = (take, envelope)
        if self._listed:
            self._runner.feed(take)
            if take.epoch == self._core.cycle_epoch:
                self._cycle.stop()

    def _on_outcomes(self, message: Outcomes, envelope: Envelope) -> None:
        if self._listed:  # until then cycle repeats them
            self._outcomes = (message, envelope)
            self._runner.feed(message)

    def _on_event(self, message: Forgotten | Assumed | Absorbed | Activate, envelope: Envelope) -> None:
        self._runner.feed(message)

    def _on_evicted(self, message: Evicted, envelope: Envelope) -> None:
        self._runner.feed(message)
        envelope.respond(Received(0, message.attempt, self._core.epoch))

    def _on_inspect(self, message: Inspect, envelope: Envelope) -> None:
        if self._listed:
            envelope.respond(self._core.contents())

    def _on_list(self, request: ListQueue | ListEvictions | ListGroups, envelope: Envelope) -> None:
        now = self._context.clock()
        if not self._listed:
            return
        match request:
            case ListQueue():
                envelope.respond(self._introspection.answer(request, now))
            case ListEvictions():
                envelope.respond(self._introspection.evictions(request, now))
            case ListGroups():
                envelope.respond(self._group_listing.answer(request, now))

    def _look(self) -> None:
        self._follower.tick()
        for refused in (self._core.refused, self._reader.refused):
            while refused:
                self._limited_log.warning("refused", "refused: %s", refused.popleft())
        if self._core.counts()[PodState.ACTIVE]:
            self._cycle.start()
        else:
            self._cycle.stop()
        self._metrics.show(self._core, self._context.clock())
        self._introspection.expire(self._context.clock())
        self._group_listing.expire(self._context.clock())

    # Effects

    def _post_notices(self) -> None:
        while self._notices or self._group_notices:
            count, of_groups = count_for_one_message(self._notices), self._group_notices[:MAX_GROUP_NOTICES]
            batch, self._notices = self._notices[:count], self._notices[count:]
            self._group_notices = self._group_notices[len(of_groups) :]
            self._bus.post(subjects.BINDER_NOTICES, Notices(batch, self._core.epoch, of_groups))

    def _carry_out(self, effect: events.Effect) -> None:
        match effect:
            case events.SendBatch(batch=batch, again=again):
                self._respond(self._take, batch)
                if not again:
                    self._spans.popped(batch, self._context.clock())
            case Received():
                self._respond(self._outcomes, effect)
            case Notice() | GroupNotice():
                if not (self._notices or self._group_notices):
                    asyncio.get_running_loop().call_soon(self._post_notices)  # all that the event has led to
                if isinstance(effect, Notice):
                    self._notices.append(effect)
                else:
                    self._group_notices.append(effect)
            case events.PodEnded():
                self._metrics.ended(effect)
                self._spans.ended(effect)
            case events.StoreRetry():
                if self._store is not None:
                    self._store.save(effect)
            case events.PodStale(key=key):
                self._metrics.stale.inc()
                self._limited_log.warning("stale", "pod %s: ignored an old version without its node", key)
                self._follower.doubt()
            case events.Problem(error=error):
                self._limited_log.warning(str(error), "%s", error)

    def _respond(self, request: tuple[Take | Outcomes, Envelope] | None, answer: Batch | Received) -> None:
        """Only the latest request of its kind has an envelope to answer."""
        if request is not None and (request[0].epoch, request[0].number) == (answer.epoch, answer.number):
            request[1].respond(answer)
