"""Snapshot's shell: the watch, cycle and the binders on one side, Redis, workers and the queue on the other."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress

from msgspec.structs import replace

from services.snapshot.checks import Checks
from services.snapshot.core import SnapshotCore
from services.snapshot.dispatch.order_dispatcher import Dispatcher, Process, Sends, parts
from services.snapshot.dispatch.pending_evictions import Displacing
from services.snapshot.dispatch.pod_lookups import LookUps
from services.snapshot.dispatch.recall import Recalls
from services.snapshot.dispatch.term_end import Settling
from services.snapshot.events import (
    Beat,
    Binding,
    Dispatch,
    Displace,
    Effect,
    Event,
    Fence,
    Forgot,
    Heard,
    LookUp,
    Misstated,
    Observed,
    Opened,
    Persist,
    Problem,
    Publish,
    RefuseCycle,
    Reply,
    Resume,
    Safe,
    Seen,
    Spared,
    Stale,
    Tick,
    Withhold,
    WorkerFault,
)
from services.snapshot.freshness import Freshness
from services.snapshot.inspecting import Inspecting
from services.snapshot.metrics import SnapshotMetrics
from services.snapshot.spans import CommitSpans
from services.snapshot.state.pending_pods import Pending
from services.snapshot.store.effect_writer import Carrier
from services.snapshot.store.fencing_barrier import Barrier
from services.snapshot.store.term_start import Past
from services.snapshot.store.terms import Terms, ledger_is_lost
from services.snapshot.watch_decoder import Intake
from services.snapshot.words import event_of
from shared.bus import Bus, Envelope, subjects
from shared.config.document import read_config
from shared.errors import ClusterError, ProtocolError, UnreadableObject, UserError
from shared.kube.access import client_connection
from shared.kube.client import KubeClient
from shared.messages.binding import (
    BinderBeat,
    BindingOutcome,
    BindingOutcomes,
    Evicted,
    IsNominated,
    Nominated,
    Recall,
    Recalled,
    Withdraw,
)
from shared.messages.inspection import CompareCache, ListCache, ListLedger
from shared.messages.queue import Absorbed, Assumed, Forgotten, ForgottenPod, Received
from shared.messages.state import Commit, Heartbeat
from shared.messages.watch import Relist, WatchBeat, Watched
from shared.plugins.frameworks import load_scheduler_config
from shared.runtime import Context, CoreRunner
from shared.runtime.clocks import ClockOffsets
from shared.runtime.joining import joined
from shared.runtime.leadership import leadership
from shared.runtime.names import Names, name_conflict
from shared.runtime.signals import on_dump_signal
from shared.runtime.stopping import SNAPSHOT_WRITES
from shared.store.link import connect
from shared.telemetry.logs import Repeated
from shared.watch.reader import Effect as WatchEffect
from shared.watch.reader import Progress, WatchReader

CHECK = 2.0
"""Seconds between two looks at whether the state is still in Redis, where there is nothing to write."""
BEAT = 0.25
"""Seconds between two heartbeats, and between two looks at deadlines."""
MOST_WAITING = 1 << 12
ORDERED_NO_MORE = "it is not ordered any more"
"""Of binding orders that no binder has room for, or of what is to be written; with more, nothing further is decided."""


async def main(context: Context) -> None:
    source = read_config(context.settings.config)
    config, given = load_scheduler_config(source), client_connection(source)
    schedulers = frozenset(profile.scheduler_name for profile in config.profiles)
    settings = context.settings
    client = await KubeClient.open(settings.api, context.telemetry, given)
    try:
        link = await connect(settings.redis_url, context.log)
        try:
            async with (
                joined(context, config.leader_election, given, answers=True),
                leadership(context, config.leader_election, f"{settings.prefix}-snapshot", given, schedulers) as lead,
            ):
                context.health.wait_for("listing", "the cluster has not been listed yet")
                pipeline = context.bus.pipeline.id
                terms = Terms(lead, link, settings.prefix, context.health, context.log, pipeline)
                recovered = await terms.take()
                settled = lead.settled and recovered.epoch <= lead.before
                pending = Pending()
                ledger = [entry for entry in recovered.ledger if entry.bound or not settled]
                core = SnapshotCore(terms.epoch, ledger, recovered.answer, Checks.of(config), pending)
                lost = ledger_is_lost(recovered, lead.before) and not settled
                barrier = Barrier(client, schedulers | lead.served, terms.epoch, context.log, context.fault)
                is_first = max(lead.before, recovered.epoch) == 0
                freshness = None if is_first else Freshness(lead.version, context.log)
                past = Past(barrier, freshness, lost, recovered.doubtful)
                intake = Intake(schedulers, core.is_bound, pending)
                shell = Shell(context, client, terms, core, intake, past, lead.settle)
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
        core: SnapshotCore,
        intake: Intake,
        past: Past,
        settle: Callable[[], bool],
    ) -> None:
        """`settle` is called if the term leaves nothing behind that the next one would have to wait for."""
        self._context = context
        self._bus: Bus = context.bus
        self._terms = terms
        self._core = core
        self._past: Past | None = past
        self._settle = settle
        self._intake = intake
        self._reader = WatchReader(context.name)
        self._progress = Progress(context.name)
        self._dispatcher = Dispatcher(core.order)
        self._recalls = Recalls(self._dispatcher, core.stands, context.clock())
        self._names = Names()
        self._displacing = Displacing()
        self._carrier = Carrier(
            core, terms, context.settings.shard_count, self._carry_out, self._on_term, context.clock
        )
        self._spans = CommitSpans(context.telemetry.tracer)
        self._clocks = ClockOffsets(context)
        self._runner: CoreRunner[Event, Effect] = CoreRunner(
            core,
            None,
            self._take,
            clock=context.clock,
            telemetry=context.telemetry,
            validate=core.validate if context.validates else None,
        )
        core.set_wall(context.wall() - context.clock())
        self._listed = asyncio.Event()
        self._begun = False
        self._ending = False
        """Nothing is committed or ordered any more."""
        self._closed = False
        """Nor is anything heard of what was ordered."""
        self._told_term = 0
        self._check_at = 0.0
        self._look_ups = LookUps(client, self._runner.feed, context.log, context.fault)
        self._inspecting = Inspecting(core.cache, client.get, context.clock, context.log, context.fault)
        self._forgotten: list[ForgottenPod] = []
        self._reporters: dict[tuple[str, int, int], Envelope] = {}
        self._sparingly = Repeated(context.log)
        self._metrics = SnapshotMetrics(context.telemetry.metrics)

    async def run(self) -> None:
        bus = self._bus
        await bus.subscribe(subjects.WATCH, (Watched, WatchBeat), self._on_watch)
        await bus.subscribe(subjects.SNAPSHOT_COMMITS, Commit, self._on_commit)
        await bus.subscribe(subjects.SNAPSHOT_BOUND, (BindingOutcomes, Recalled), self._on_bound)
        await bus.subscribe(subjects.BINDER_BEATS, BinderBeat, self._on_binder)
        await bus.subscribe(subjects.QUEUE_EVICTED, Evicted, self._on_evicted)
        await bus.subscribe(subjects.SNAPSHOT_NOMINATED, IsNominated, self._on_is_nominated)
        await bus.subscribe(subjects.SNAPSHOT_LIST, (ListCache, ListLedger, CompareCache), self._on_list)
        try:
            with on_dump_signal(self._inspecting.dump):
                async with asyncio.TaskGroup() as tasks:
                    self._context.fault.watch(tasks.create_task(self._beat(), name="beat"))
                    tasks.create_task(self._work())
                    tasks.create_task(self._context.fault.raised())
        finally:
            self._runner.close()
            self._look_ups.close()
            self._inspecting.close()

    async def _work(self) -> None:
        self._carry_out_watch(self._reader.start(self._context.clock()))
        await self._listed.wait()
        if self._past is not None:
            self._core.assume_again(await self._past.settle(self._reader, self._context, self._relist))
            self._metrics.unfenced.set(len(self._past.barrier.aside))
            self._past = None
        self._begun = True
        await self._carrier.begin()
        self._context.health.clear("listing")
        self._context.health.ready()
        counts = ", ".join(f"{what} {number:,}" for what, number in self._core.counts().items())
        self._context.log.info("term %d goes on from: %s", self._core.epoch, counts)
        try:
            await self._carrier.run()
        except asyncio.CancelledError:
            await self._finish()
            raise

    def _relist(self) -> None:
        self._bus.post(subjects.WATCHER_RELIST, Relist(self._context.name))

    async def _finish(self) -> None:
        """What was accepted is written, and what was ordered is settled. Whoever asks for more will ask the next one.

        After a fault nothing is written either: the state may hold half of a change.
        """
        if self._context.fault.found:
            return
        self._ending = True
        settling = Settling(self._core, self._dispatcher, self._runner.feed, self._context.clock)
        writing = asyncio.create_task(self._carrier.run())
        try:
            await settling.run()
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
        if not writing.cancelled():
            self._fail_to_finish(writing.exception())
            return
        self._closed = True
        self._tell_forgotten()
        with suppress(TimeoutError, ClusterError):
            async with asyncio.timeout(SNAPSHOT_WRITES):
                await self._carrier.finish()
        if self._carrier.waiting:
            self._context.log.warning("%d effects could not be written in time", self._carrier.waiting)
        written = not self._carrier.waiting
        settled = written and settling.settled and not self._context.fault.found
        if settled and self._settle():
            self._context.log.info("term %d is settled: nothing that it ordered is under way", self._core.epoch)

    def _fail_to_finish(self, cause: BaseException | None) -> None:
        """What was accepted could not all be written, so this term leaves no mark of a clean stop."""
        if isinstance(cause, ClusterError):
            self._context.log.warning("what was accepted could not be written: %s", cause)
            self._context.fault.end(cause)
        elif cause is not None:
            self._context.fault.report("writing what was accepted", cause)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT)
            now = self._context.clock()
            self._core.set_wall(self._context.wall() - now)
            self._carry_out_watch(self._reader.tick(now))
            if self._begun:
                self._runner.feed(Tick())
                self._runner.feed(Beat())
                self._send(self._dispatcher.tick(now))
                self._miss_binders(now)
                self._send(self._recalls.tick(now))
                self._tell_forgotten()
                self._tell_absorbed()
                if now >= self._check_at:
                    self._check_at = now + CHECK
                    self._carrier.add([Persist()])
            self._show()
            self._inspecting.expire()

    def _miss_binders(self, now: float) -> None:
        health, missing = self._context.health, self._dispatcher.missing(now)
        if not missing:
            health.clear("binders")
            return
        health.wait_for("binders", missing)
        self._sparingly.warning("binders", "%s", missing)

    # What comes in

    def _on_watch(self, message: Watched | WatchBeat, envelope: Envelope) -> None:
        if isinstance(message, WatchBeat):
            self._clocks.heard("watcher", message.at)
        self._carry_out_watch(self._reader.take(message, self._context.clock()))
        seen = self._progress.due(self._reader.position, beat=isinstance(message, WatchBeat))
        if seen is not None:
            self._bus.post(subjects.WATCHER_SEEN, seen)
        if self._reader.synced:
            self._listed.set()
        if isinstance(message, Watched):
            self._tell_absorbed()

    def _carry_out_watch(self, effects: Iterable[WatchEffect]) -> None:
        seen: list[Seen] = []
        for effect in effects:
            if isinstance(effect, Relist):
                self._bus.post(subjects.WATCHER_RELIST, effect)
                continue
            if self._past is not None:
                self._past.barrier.see(effect)
            try:
                event = self._intake.read(effect)
            except ProtocolError as cause:
                self._sparingly.error("intake", "%s", cause)
                continue
            if event is not None:
                seen.append(event)
        if seen:
            self._runner.feed(Observed(seen))

    def _on_commit(self, commit: Commit, envelope: Envelope) -> None:
        if not self._begun or self._ending or not self._terms.healthy:
            return  # cycle sends it again
        if max(self._dispatcher.waiting, self._carrier.waiting) > MOST_WAITING:
            return
        self._spans.begin(commit, envelope.trace, self._context.clock())
        self._runner.feed(commit)

    def _on_bound(self, message: BindingOutcomes | Recalled, envelope: Envelope) -> None:
        if not self._begun or self._closed:
            return  # the binder tells it again
        if isinstance(message, Recalled):
            self._on_recalled(message)
        else:
            self._on_outcomes(message, envelope)

    def _on_recalled(self, message: Recalled) -> None:
        learnt = self._recalls.take(message, self._context.clock())
        self._send(learnt.sends)
        for wait in learnt.waits:
            self._runner.feed(wait)
        for withdraw in learnt.withdrawn:
            self._bus.post(subjects.BINDER_WITHDRAWALS, withdraw)

    def _on_outcomes(self, message: BindingOutcomes, envelope: Envelope) -> None:
        process, now = (message.binder, message.incarnation), self._context.clock()
        events = [event for each in message.outcomes if (event := self._event_of(process, each, now)) is not None]
        if events:
            self._runner.feed(Heard(events))
        self._tell_forgotten()
        self._reporters[message.binder, message.epoch, message.number] = envelope
        self._carrier.add([Safe(message.binder, message.epoch, message.number)])

    def _event_of(self, process: Process, outcome: BindingOutcome, now: float) -> Binding | None:
        """None for what another binder is to do, or where a binder that the order is not with may not say that."""
        if outcome.handed_back and not self._ending:
            sends = self._dispatcher.hand_back(process, outcome, now)
            if sends is not None:
                self._send(sends)
                return None
        if outcome.found and not self._core.stands((outcome.uid, outcome.attempt)):
            withdraw = Withdraw(outcome.uid, outcome.attempt, "", ORDERED_NO_MORE, self._core.epoch)
            self._bus.post(subjects.BINDER_WITHDRAWALS, withdraw)
        event = event_of(self._dispatcher, process, outcome)
        self._send(self._dispatcher.word(process, outcome, now))
        return event

    def _on_binder(self, beat: BinderBeat, envelope: Envelope) -> None:
        self._clocks.heard(beat.binder, beat.at)
        now = self._context.clock()
        of = (beat.binder, beat.incarnation, now)
        ruling = self._names.beat(*of, epoch=self._core.epoch, uptime=beat.uptime, leaving=beat.gone)
        if ruling.taken is not None:
            self._sparingly.warning(f"name {beat.binder}", "%s", name_conflict("binder", ruling.taken))
            self._bus.post(subjects.binder(beat.binder), ruling.taken)
        if not ruling.counts:
            return
        is_new = not self._dispatcher.knows(beat)
        self._send(self._dispatcher.beat(beat, now))
        if not beat.gone:
            self._ask(beat.binder, self._recalls.ask((beat.binder, beat.incarnation), now))
        for evict in self._displacing.open(now) if is_new else ():
            self._bus.post(subjects.BINDER_EVICTIONS, replace(evict, epoch=self._core.epoch))

    def _on_evicted(self, evicted: Evicted, envelope: Envelope) -> None:
        self._displacing.ended(evicted)
        if evicted.failure:
            self._runner.feed(Spared(evicted.uid))

    def _on_is_nominated(self, asked: IsNominated, envelope: Envelope) -> None:
        """Nobody is answered before the term has begun, or once it may be over: binders ask again."""
        if not self._begun or not self._terms.healthy:
            return
        stands = self._core.is_nominated(asked.uid, asked.attempt, asked.node)
        known = self._displacing.names(asked.uid, asked.attempt, asked.victims)
        envelope.respond(Nominated(self._core.epoch, stands and known))

    def _on_list(self, asked: ListCache | ListLedger | CompareCache, envelope: Envelope) -> None:
        if self._begun:
            self._inspecting.answer(asked, envelope)

    # What goes out

    def _take(self, effect: Effect) -> None:
        """Before the term has begun most effects are void: all that is known will be written and published whole."""
        if self._begun:
            self._carrier.add([effect])
        elif isinstance(effect, Forgot | Stale) or (
            isinstance(effect, Problem) and isinstance(effect.error, UserError)
        ):
            self._carry_out(effect)

    def _on_term(self) -> None:
        """Orders of earlier terms are void, and so is what the queue was told of decisions that are lost."""
        self._dispatcher.clear()
        self._bus.post(subjects.QUEUE_FORGOTTEN, Assumed(self._core.epoch, list(self._core.ledger)))
        self._told_term = self._core.epoch

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Publish(message=Heartbeat() as heartbeat):
                api_ahead = self._context.api_clock.ahead(self._context.clock())
                heartbeat = replace(heartbeat, at=self._context.wall(), api_ahead=api_ahead)
                self._bus.post(subjects.SNAPSHOT_DELTAS, heartbeat)
                self._bus.post(subjects.CYCLE_COMMITTED, heartbeat)
            case Publish(message=message):
                self._bus.post(subjects.SNAPSHOT_DELTAS, message)
            case Reply(message=committed):
                self._metrics.answered(committed, self._spans.end(committed, self._context.clock()))
                self._bus.post(subjects.CYCLE_COMMITTED, committed)
            case RefuseCycle(message=outdated):
                self._bus.post(subjects.CYCLE_COMMITTED, outdated)
            case Dispatch() | Resume() if self._ending:
                pass  # it stays unsent
            case Resume(attempts=attempts):
                for binder, recall in self._recalls.begin(self._core.epoch, attempts, self._context.clock()):
                    self._ask(binder, recall)
            case Dispatch(attempts=attempts):
                self._send(self._dispatcher.give(attempts, self._context.clock()))
            case Displace(message=evict):
                self._displacing.asked(evict, self._context.clock())
                self._bus.post(subjects.BINDER_EVICTIONS, evict)
            case Withhold(message=withdraw):
                self._bus.post(subjects.BINDER_WITHDRAWALS, replace(withdraw, epoch=self._core.epoch))
            case Forgot(uid=uid, reason=reason, plugin=plugin, rejected=rejected):
                self._forgotten.append(ForgottenPod(uid, reason, plugin, rejected))
            case LookUp() | Fence():
                self._look_ups.begin(effect)
            case Safe(binder=binder, epoch=epoch, number=number):
                reporter = self._reporters.pop((binder, epoch, number), None)
                if reporter is not None:
                    reporter.respond(Received(epoch, number, self._core.epoch))
            case WorkerFault(worker=worker, kind=kind, reason=reason):
                self._metrics.at_fault(effect)
                self._sparingly.error(f"fault {worker} {kind}", "worker %s is at fault (%s): %s", worker, kind, reason)
            case Misstated(what=what):
                self._metrics.misstated.inc()
                self._sparingly.warning(
                    "misstated", "a decision was refused, for the pod is not what was decided: %s", what
                )
            case Stale(key=key):
                self._metrics.stale.inc()
                self._sparingly.warning("stale", "pod %s is shown without its node, as it was once: refused", key)
                self._carry_out_watch(self._reader.doubt(self._context.clock()))
            case Opened(node=node):
                self._context.log.info("node %s is open again", node)
            case Problem(error=UnreadableObject() as error):
                self._sparingly.error(str(error), "%s", error)
            case Problem(error=error):
                self._sparingly.warning(type(error).__name__, "%s", error)

    def _ask(self, binder: str, recall: Recall | None) -> None:
        if recall is not None and not self._ending:
            self._bus.post(subjects.binder(binder), recall)

    def _send(self, sends: Sends) -> None:
        for binder, orders in sends if not self._ending else ():
            for part in parts(orders):
                self._bus.post(subjects.binder(binder), self._dispatcher.addressed(binder, self._core.epoch, part))

    def _tell_absorbed(self) -> None:
        """The queue hears of changes before they are part of the state; what they may help, it tries only now."""
        if self._told_term == self._core.epoch and self._reader.synced:
            watch_epoch, watch_seq = self._reader.position
            self._bus.post(subjects.QUEUE_FORGOTTEN, Absorbed(self._core.epoch, self._core.seq, watch_epoch, watch_seq))

    def _tell_forgotten(self) -> None:
        if self._forgotten:
            self._bus.post(subjects.QUEUE_FORGOTTEN, Forgotten(self._core.epoch, self._forgotten))
            self._forgotten = []

    def _show(self) -> None:
        self._metrics.show(self._core, self._dispatcher.waiting)
