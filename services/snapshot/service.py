"""The snapshot's shell: connects the core with the watcher, cycle, binders, Redis, workers and the queue."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial

from msgspec.structs import replace

from services.snapshot.commit_checks import ProfileFilters
from services.snapshot.dispatch.binders import Binders
from services.snapshot.dispatch.claim_fences import ClaimFences
from services.snapshot.dispatch.pod_lookups import PodLookUps
from services.snapshot.dispatch.term_end import TermEnd
from services.snapshot.events import (
    AcknowledgeBinder,
    Beat,
    CommitFault,
    DispatchOrders,
    Effect,
    Event,
    Fence,
    FenceClaims,
    NodeOpened,
    PodStale,
    Problem,
    RecallAttempts,
    Reply,
    Tick,
    WatchEvent,
    WatchEvents,
    WorkerFault,
)
from services.snapshot.introspection import Asked, Introspection
from services.snapshot.metrics import CommitSpans, SnapshotMetrics
from services.snapshot.standby import Standby
from services.snapshot.store.effect_writer import EffectWriter
from services.snapshot.store.fencing_barrier import FencingBarrier
from services.snapshot.store.term_start import ListFreshness, TermStart
from services.snapshot.store.terms import Terms, ledger_is_lost
from shared.bus import Envelope, subjects
from shared.config.document import read_config
from shared.errors import ClusterError, ProtocolError, UnreadableObject, UserError
from shared.framework.loading import load_scheduler_config
from shared.kube.access import client_connection
from shared.kube.client import KubeClient
from shared.messages.binding import (
    BinderBeat,
    BindingOutcomes,
    Evict,
    Evicted,
    IsNominated,
    IsPlaced,
    Recalled,
    Withdraw,
)
from shared.messages.inspection import CompareCache, FindPod, ListCache, ListLedger, ListPodsOn, MeasureNodes
from shared.messages.queue import Absorbed, Assumed, Forgotten, ForgottenPod
from shared.messages.state import Commit, Delta, Heartbeat, NeedDeltas, OthersChanged, Outdated
from shared.messages.watch import Kind, WatchBeat, Watched
from shared.runtime import Context, CoreRunner, sleep_until_tick
from shared.runtime.following import LISTING
from shared.runtime.hosting import on_dump_signal
from shared.runtime.joining import joined
from shared.runtime.leadership import leadership
from shared.runtime.shown_versions import compare_shown_versions
from shared.runtime.stopping import SNAPSHOT_WRITES
from shared.store.link import connect
from shared.store.schema import Persist
from shared.telemetry.logs import Repeated
from shared.ticks import next_tick
from shared.watch import Seen

CHECK_INTERVAL = 2.0
"""Seconds between two checks whether the state is still in Redis, while there is nothing to write."""
HEARTBEAT_INTERVAL = 0.25
"""Seconds between two heartbeats, and between two checks of deadlines."""
QUIET_INTERVAL = 1.0
"""The same while nothing happens; after a change the next heartbeat comes within HEARTBEAT_INTERVAL."""
QUIET_BEATS = 4
"""Heartbeats after the last change before they become rare, so that one of them reveals a lost delta."""
MAX_WAITING = 1 << 12
"""Orders that no binder has room for, or effects that wait to be written; beyond that, commits are not accepted."""


async def main(context: Context) -> None:
    source = read_config(context.settings.config)
    config, given = load_scheduler_config(source, context.settings.feature_gates), client_connection(source)
    schedulers = frozenset(profile.scheduler_name for profile in config.profiles)
    settings = context.settings
    client = await KubeClient.open(settings.api, context.telemetry, given)
    try:
        context.health.wait_for("redis", "not connected yet")
        link = await connect(settings.redis_url, context.log, on_away=partial(context.health.wait_for, "redis"))
        context.health.clear("redis")
        try:
            standby = Standby(context, schedulers, ProfileFilters.of(config))
            lease = f"{settings.prefix}-snapshot"
            async with (
                joined(context, config.leader_election, given, answers=True),
                leadership(
                    context, config.leader_election, lease, given, schedulers, partial(standby.run, link)
                ) as lead,
            ):
                context.health.wait_for(LISTING, "the cluster has not been listed yet")
                pipeline = context.bus.pipeline.id
                terms = Terms(lead, link, settings.prefix, context.health, context.log, pipeline)
                recovered = await terms.take()
                continues = await standby.end(recovered)
                settled = lead.settled and recovered.epoch <= lead.before
                ledger = [entry for entry in recovered.ledger if entry.bound or not settled]
                standby.core.take_over(terms.epoch, ledger, recovered.answer, context.clock())
                lost = ledger_is_lost(recovered, lead.before) and not settled
                barrier = FencingBarrier(client, schedulers | lead.served, terms.epoch, context.log, context.fault)
                is_first = max(lead.before, recovered.epoch) == 0
                freshness = None if is_first else ListFreshness(lead.version, context.log)
                start = TermStart(barrier, freshness, lost, recovered.doubtful, recovered.read, continues)
                shell = Shell(context, client, terms, standby, start, lead.settle, lead.later_version)
                await lead.during(shell.run())
        finally:
            await link.close()
    finally:
        await client.close()


class Shell:
    def __init__(
        self,
        context: Context,
        client: KubeClient,
        terms: Terms,
        standby: Standby,
        start: TermStart,
        settle: Callable[[], bool],
        later_version: Callable[[], Awaitable[int]],
    ) -> None:
        """`settle` is called if the term leaves nothing behind that the next one must wait for.

        `later_version`: as that of `Leadership`.
        """
        self._context = context
        self._bus = context.bus
        self._terms = terms
        self._core = core = standby.core
        self._start: TermStart | None = start
        self._settle = settle
        self._decoder = standby.decoder
        self._published = standby.published
        self._follower = standby.follower
        self._follower.apply, self._follower.heard = self._apply, self._on_heard
        self._reader = standby.follower.reader
        context.reported.positions["seq"] = lambda: core.seq
        terms.read = lambda: (*self._reader.position, self._reader.versions.get(Kind.POD, 0))
        self._later_version = later_version
        self._writer = EffectWriter(
            core, terms, context.settings.shard_count, self._carry_out, self._on_term, context.clock
        )
        self._spans = CommitSpans(context.telemetry.tracer)
        self._runner: CoreRunner[Event, Effect] = CoreRunner(core, None, self._add, context, core.validate)
        core.cluster.ledger.ahead = context.wall() - context.clock()
        self._binders = Binders(
            context, core, self._follower.clocks, self._runner.feed, self._writer.add, standby.listens_since
        )
        for beat, heard_at in standby.binders():
            self._binders.heard(beat, heard_at)
        self._listed = asyncio.Event()
        if self._reader.synced:
            self._listed.set()
        self._has_changed = False
        """Whether the watch has changed the state since the queue was last told."""
        self._begun = False
        self._closed = False
        """Reports of binders are not heard any more."""
        self._told_epoch = 0
        """The term that the queue knows of."""
        self._check_at = 0.0
        self._happened = asyncio.Event()
        """Whether anything was heard or published since the last heartbeat."""
        self._quiet_beats = 0
        self._look_ups = PodLookUps(client, self._runner.feed, context.log, context.fault)
        self._claim_fences = ClaimFences(client, self._runner.feed, context.log, context.fault)
        self._introspection = Introspection(core.cluster, client.get, context.clock, context.log, context.fault)
        self._forgotten: list[ForgottenPod] = []
        self._repeated = Repeated(context.log)
        self._metrics = SnapshotMetrics(context.telemetry.metrics)

    async def run(self) -> None:
        bus = self._bus
        await self._follower.begin()
        await bus.subscribe(subjects.SNAPSHOT_COMMITS, (Commit, NeedDeltas), self._on_commit)
        await bus.subscribe(subjects.SNAPSHOT_BOUND, (BindingOutcomes, Recalled), self._on_bound)
        await bus.subscribe(subjects.BINDER_BEATS, BinderBeat, self._binders.on_beat)
        await bus.subscribe(subjects.QUEUE_EVICTED, Evicted, self._binders.on_evicted)
        await bus.subscribe(subjects.SNAPSHOT_NOMINATED, (IsNominated, IsPlaced), self._on_asked)
        listed = (ListCache, ListLedger, ListPodsOn, FindPod, MeasureNodes, CompareCache)
        await bus.subscribe(subjects.SNAPSHOT_LIST, listed, self._on_list)
        try:
            with on_dump_signal(self._introspection.dump):
                async with asyncio.TaskGroup() as tasks:
                    self._context.fault.watch(tasks.create_task(self._beat(), name="beat"))
                    shown = self._reader, self._later_version, self._context.clock, self._follower.carry_out
                    tasks.create_task(compare_shown_versions(*shown))
                    tasks.create_task(self._work())
                    tasks.create_task(self._context.fault.raised())
        finally:
            self._runner.close()
            self._look_ups.close()
            self._claim_fences.close()
            self._introspection.close()

    async def _work(self) -> None:
        continues = self._start is not None and await self._know_the_cluster(self._start) and self._start.continues
        self._start = None
        self._begun = True
        await self._writer.begin(self._published if continues else None)
        self._context.health.clear(LISTING)
        self._context.health.ready()
        counts = ", ".join(f"{what} {number:,}" for what, number in self._core.cluster.counts().items())
        self._context.log.info("term %d begins with: %s", self._core.epoch, counts)
        try:
            await self._writer.run()
        except asyncio.CancelledError:
            await self._finish()
            raise

    async def _know_the_cluster(self, start: TermStart) -> bool:
        """Returns once the state has all that earlier terms have bound, and whether it is known from standing by."""
        if self._follower.stood_by and not start.lost:
            if not self._reader.synced:
                self._follower.carry_out(self._reader.start(self._context.clock()))
            await self._listed.wait()
            if await start.is_known(self._reader, self._context, self._follower.relist):
                self._context.log.info("this standby has read all that the last leader had read")
                return True
        self._listed.clear()
        self._follower.start_over()
        await self._listed.wait()
        self._core.assume_again(await start.run(self._reader, self._context, self._follower.relist))
        self._metrics.unfenced.set(len(start.barrier.aside))
        return False

    async def _finish(self) -> None:
        """Writes what was accepted, and settles what was ordered. Further requests go to the next snapshot.

        After a fault nothing is written: the state may hold half of a change.
        """
        if self._context.fault.found:
            return
        self._binders.stopped = True
        end = TermEnd(self._core, self._binders.dispatcher, self._runner.feed, self._context.clock)
        writing = asyncio.create_task(self._writer.run())
        try:
            await end.run()
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
        if not writing.cancelled():  # not all of what was accepted could be written, so this term is not settled
            cause = writing.exception()
            if isinstance(cause, ClusterError):
                self._context.log.warning("what was accepted could not be written: %s", cause)
                self._context.fault.end(cause)
            elif cause is not None:
                self._context.fault.report("writing what was accepted", cause)
            return
        self._closed = True
        self._tell_forgotten()
        for persist in self._core.end():
            self._writer.add(persist)
        self._runner.feed(Beat())  # all that will be written is published
        self._runner.close()  # what would be published from here on would not be written
        with suppress(TimeoutError, ClusterError):
            async with asyncio.timeout(SNAPSHOT_WRITES):
                await self._writer.finish()
        if self._writer.waiting:
            self._context.log.warning("%s effects could not be written in time", f"{self._writer.waiting:,}")
        settled = not self._writer.waiting and end.settled and not self._context.fault.found
        if settled and self._settle():
            self._context.log.info("term %d is settled: nothing that it ordered is under way", self._core.epoch)

    async def _beat(self) -> None:
        while True:
            await self._until_beat()
            now = self._context.clock()
            self._core.cluster.ledger.ahead = self._context.wall() - now
            self._follower.tick()
            if self._begun:
                self._runner.feed(Tick())
                self._runner.feed(Beat())
                self._binders.tick(now)
                self._tell_forgotten()
                self._tell_absorbed()
                if now >= self._check_at:
                    self._check_at = now + CHECK_INTERVAL
                    self._writer.add(Persist())
            self._metrics.show(self._core, self._binders.dispatcher.waiting)
            self._introspection.expire()

    async def _until_beat(self) -> None:
        self._quiet_beats = 0 if self._happened.is_set() else self._quiet_beats + 1
        self._happened.clear()
        settled = self._begun and self._reader.synced and not len(self._core.cluster.ledger)
        if settled and self._quiet_beats > QUIET_BEATS:
            try:
                async with asyncio.timeout_at(next_tick(asyncio.get_running_loop().time(), QUIET_INTERVAL)):
                    await self._happened.wait()
            except TimeoutError:
                return
        await sleep_until_tick(HEARTBEAT_INTERVAL)

    # Messages

    def _on_heard(self, message: Watched | WatchBeat) -> None:
        if self._reader.synced:
            self._listed.set()
        if isinstance(message, Watched):
            self._happened.set()
        if self._has_changed:  # otherwise only confirmed what was published before: the next heartbeat says so
            self._has_changed = False
            self._tell_absorbed()

    def _apply(self, changes: Sequence[Seen]) -> None:
        events: list[WatchEvent] = []
        for change in changes:
            if self._start is not None:
                self._start.barrier.on_watch(change)
            try:
                events += self._decoder.decode_all(change)
            except ProtocolError as cause:
                self._repeated.error("watch", "%s", cause)
        if events:
            seq = self._core.seq
            self._runner.feed(WatchEvents(events))
            self._has_changed |= self._core.seq != seq

    def _on_commit(self, commit: Commit | NeedDeltas, envelope: Envelope) -> None:
        """Commits that are not accepted are repeated by cycle."""
        if isinstance(commit, NeedDeltas):
            self._runner.feed(commit)
            return
        if not self._begun or self._binders.stopped or not self._terms.healthy:
            return
        if max(self._binders.dispatcher.waiting, self._writer.waiting) > MAX_WAITING:
            return
        self._happened.set()
        self._spans.begin(commit, envelope.trace, self._context.clock())
        self._runner.feed(commit)

    def _on_bound(self, message: BindingOutcomes | Recalled, envelope: Envelope) -> None:
        """Reports that are not accepted are repeated by the binder."""
        if not self._begun or self._closed:
            return
        if isinstance(message, Recalled):
            self._binders.on_recalled(message)
        else:
            self._binders.on_outcomes(message, envelope)
            self._tell_forgotten()

    def _on_asked(self, asked: IsNominated | IsPlaced, envelope: Envelope) -> None:
        """Not answered before the term begins, or once it may be over: binders ask again."""
        if not self._begun or not self._terms.healthy:
            return
        if isinstance(asked, IsPlaced):
            self._binders.on_is_placed(asked, envelope)
        else:
            self._binders.on_is_nominated(asked, envelope)

    def _on_list(self, asked: Asked, envelope: Envelope) -> None:
        if self._begun:
            self._introspection.answer(asked, envelope)

    # Effects

    def _add(self, effect: Effect) -> None:
        """Before the term begins most effects are dropped: the whole state will be written and published."""
        if self._begun:
            self._writer.add(effect)
        elif isinstance(effect, Delta):
            self._published.changed(effect.changes)
        elif isinstance(effect, ForgottenPod | PodStale) or (
            isinstance(effect, Problem) and isinstance(effect.error, UserError)
        ):
            self._carry_out(effect)

    def _on_term(self) -> None:
        """What the queue learned of lost decisions is void, but not what earlier terms have forgotten."""
        self._binders.dispatcher.clear()
        self._tell_forgotten()
        self._bus.post(subjects.QUEUE_FORGOTTEN, Assumed(self._core.epoch, list(self._core.ledger)))
        self._told_epoch = self._core.epoch

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Heartbeat():
                api_ahead = self._context.api_clock.ahead(self._context.clock())
                heartbeat = replace(effect, at=self._context.wall(), api_ahead=api_ahead)
                self._bus.post(subjects.SNAPSHOT_DELTAS, heartbeat)
                self._bus.post(subjects.CYCLE_COMMITTED, heartbeat)
            case Delta():
                self._happened.set()
                self._bus.post(subjects.SNAPSHOT_DELTAS, effect)
            case Reply(message=committed):
                self._metrics.conflicts.inc(len(committed.conflicts))
                self._metrics.decisions.inc(self._spans.end(committed, self._context.clock()))
                self._bus.post(subjects.CYCLE_COMMITTED, committed)
            case Outdated() | OthersChanged():
                self._bus.post(subjects.CYCLE_COMMITTED, effect)
            case RecallAttempts() | DispatchOrders() | Evict() | Withdraw() | AcknowledgeBinder():
                self._binders.carry_out(effect)
            case ForgottenPod():
                self._forgotten.append(effect)
            case Fence():
                self._look_ups.begin(effect)
            case FenceClaims():
                self._claim_fences.begin(effect)
            case WorkerFault(worker=worker, kind=kind, reason=reason):
                self._metrics.faults.labels(worker, kind).inc()
                self._repeated.error(f"fault {worker} {kind}", "worker %s is at fault (%s): %s", worker, kind, reason)
            case CommitFault(what=what):
                self._metrics.misstated.inc()
                self._repeated.warning(
                    "misstated", "a decision was rejected, as the pod is not what was decided: %s", what
                )
            case PodStale(key=key):
                self._metrics.stale.inc()
                self._repeated.warning("stale", "pod %s: ignored an old version without its node", key)
                self._follower.doubt()
            case NodeOpened(node=node):
                self._context.log.info("node %s is open again", node)
            case Problem(error=UnreadableObject() as error):
                self._repeated.error(str(error), "%s", error)
            case Problem(error=error):
                self._repeated.warning(type(error).__name__, "%s", error)

    def _tell_absorbed(self) -> None:
        """The queue defers events until the published state includes them."""
        published = not self._core.cluster.has_postponed
        if published and self._told_epoch == self._core.epoch and self._reader.synced:
            watch_epoch, watch_seq = self._reader.position
            self._bus.post(subjects.QUEUE_FORGOTTEN, Absorbed(self._core.epoch, self._core.seq, watch_epoch, watch_seq))

    def _tell_forgotten(self) -> None:
        """In the last epoch that the queue knows of: a new term may have begun and not been announced."""
        if self._forgotten and self._told_epoch:
            self._bus.post(subjects.QUEUE_FORGOTTEN, Forgotten(self._told_epoch, self._forgotten))
            self._forgotten = []
