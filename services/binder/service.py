"""The binder's shell: connects its cores with the snapshot, the queue and the API server."""

import asyncio
import secrets
import time
from collections.abc import Sequence

from msgspec.structs import replace

from services.binder import events, eviction_core
from services.binder.api_calls import DONE, ApiCalls
from services.binder.claim_releases import ClaimReleases
from services.binder.core import MAX_HELD, BinderCore
from services.binder.eviction_calls import EvictionCalls
from services.binder.eviction_core import EvictionCore
from services.binder.eviction_state import Answered, EvictedAcknowledged
from services.binder.group_reader import GroupReader
from services.binder.group_status import GroupStatusWriter
from services.binder.metrics import BinderMetrics, BindSpans
from services.binder.outcome_reports import REPEAT_SECONDS
from services.binder.status_reporter import StatusReporter
from services.binder.worker_pool import WorkerPool
from shared.bus import Envelope, NoAnswer, subjects
from shared.config.document import read_config
from shared.config.feature_gates import Feature
from shared.errors import ClusterError, FlotillaError, ProtocolError
from shared.extenders.client import ExtenderClient
from shared.framework.loading import load_frameworks, load_scheduler_config
from shared.kube.access import client_connection
from shared.kube.client import KubeClient
from shared.messages.binding import (
    AttemptFound,
    BinderBeat,
    BindingOrders,
    BindingOutcomes,
    Evict,
    Evicted,
    FindAttempt,
    ListPermits,
    Notices,
    PermitAnswer,
    PermitHeard,
    Permits,
    Recall,
    Recalled,
    Step,
    Withdraw,
)
from shared.messages.identity import NameTaken
from shared.messages.queue import Activate, Received
from shared.plugins.devices.pre_bind import ClaimCreated
from shared.runtime import Context, CoreRunner
from shared.runtime.joining import joined
from shared.runtime.names import name_taken
from shared.runtime.stopping import BINDER_ORDERS
from shared.telemetry.logs import Repeated
from shared.terms import Heard, Newest

MAX_CALLS = 64
"""Calls to the API server at the same time."""
LEAVE_POLL = 0.01
"""Seconds between two checks whether the last orders have ended."""

Event = events.Event | eviction_core.Event
Effect = events.Effect | eviction_core.Effect


async def main(context: Context, *, api_calls: bool = True) -> None:
    """Without `api_calls` every pod counts as bound at once, and nothing is written to it: to benchmark the rest."""
    source = read_config(context.settings.config)
    config = load_scheduler_config(source, context.settings.feature_gates)
    frameworks = load_frameworks(config)
    if not api_calls:
        for framework in frameworks.values():
            framework.pre_bind = []  # their steps go by what the API server answers
    core = BinderCore(
        context.name,
        frameworks,
        clock=time.perf_counter,
        extenders=config.extenders,
        incarnation=secrets.token_hex(8),
        date=context.date,
        nominates=config.feature_gates.enabled(Feature.EXPECTED_NODE),
    )
    extenders = ExtenderClient(config.extenders)
    client: KubeClient | None = None
    try:
        if api_calls:
            given = client_connection(source)
            client = await KubeClient.open(context.settings.api, context.telemetry, given)
            async with joined(context, config.leader_election, given):
                await Shell(context, core, client, extenders).run()
        else:
            await Shell(context, core, client, extenders).run()
    finally:
        await extenders.close()
        if client is not None:
            await client.close()


class BothCores:
    """Runs bindings and evictions, which do not depend on each other, as one core."""

    def __init__(self, bindings: BinderCore, evictions: EvictionCore) -> None:
        self._bindings = bindings
        self._evictions = evictions

    def handle(self, event: Event, now: float) -> Sequence[Effect]:
        match event:
            case Evict() | Answered() | EvictedAcknowledged() | events.Exit():
                return self._evictions.handle(event, now)
            case events.Tick() | events.Leave():
                return [*self._bindings.handle(event, now), *self._evictions.handle(event, now)]
            case _:
                return self._bindings.handle(event, now)

    def next_deadline(self) -> float:
        return min(self._bindings.next_deadline(), self._evictions.next_deadline())

    def validate(self) -> None:
        self._bindings.validate()
        self._evictions.validate()


class Shell:
    def __init__(
        self, context: Context, core: BinderCore, client: KubeClient | None, extenders: ExtenderClient
    ) -> None:
        self._context = context
        self._bus = context.bus
        self._core = core
        self._evictions = EvictionCore()
        self._queue = Newest(0)
        """The queue's term."""
        self._began = context.clock()
        self._metrics = BinderMetrics(context.metrics)
        self._spans = BindSpans(context.tracer)
        self._limited_log = Repeated(context.log)
        cores = BothCores(core, self._evictions)
        self._runner: CoreRunner[Event, Effect] = CoreRunner(
            cores, events.Tick(), self._carry_out, context, cores.validate
        )
        self._reports: WorkerPool[BindingOutcomes] = WorkerPool(
            self._report, max_workers=MAX_CALLS, max_waiting=MAX_HELD, failed=self._failed
        )
        self._status: StatusReporter | None = None
        self._releases: ClaimReleases | None = None
        self._groups: GroupStatusWriter | None = None
        self._calls: WorkerPool[events.Call | events.LookUp | events.Nominate] | None = None
        self._eviction_calls: EvictionCalls | None = None
        if client is not None:
            metrics, feed = self._metrics, self._runner.feed
            status = StatusReporter(
                client,
                instance=context.name,
                wall=context.wall,
                metrics=metrics,
                log=context.log,
                bindings_wait=self._bindings_wait,
                clock=context.clock,
            )
            calls = ApiCalls(client, feed, core.awaits, context.clock, metrics, self._spans, extenders)
            self._status = status
            self._releases = ClaimReleases(client, context.bus, lambda: core.epoch, context.log)
            groups = GroupReader(client, context.clock)
            self._groups = GroupStatusWriter(client, groups, context.wall, context.log)
            self._calls = WorkerPool(calls.make, max_workers=MAX_CALLS, max_waiting=2 * MAX_HELD, failed=self._failed)
            self._eviction_calls = EvictionCalls(context, client, groups, status, metrics, feed, self._failed)

    async def run(self) -> None:
        bus = self._bus
        orders = await bus.subscribe(
            subjects.binder(self._context.name), (BindingOrders, NameTaken, Recall), self._on_event
        )
        notices = await bus.subscribe(subjects.BINDER_NOTICES, Notices, self._on_notices, group=subjects.BINDER_GROUP)
        permits = await bus.subscribe(subjects.BINDER_PERMITS, (PermitAnswer, ListPermits), self._on_permits)
        listing = await bus.subscribe(subjects.BINDER_LIST, FindAttempt, self._on_find)
        withdrawals = await bus.subscribe(subjects.BINDER_WITHDRAWALS, Withdraw, self._on_event)
        evictions = await bus.subscribe(subjects.BINDER_EVICTIONS, Evict, self._on_evict, group=subjects.BINDER_GROUP)
        self._runner.feed(events.Tick())
        self._context.health.ready()
        try:
            await self._context.fault.raised()
        except asyncio.CancelledError:
            for subscription in (orders, notices, evictions):
                await subscription.close()
            await self._leave()
            raise
        finally:
            await permits.close()
            await listing.close()
            await withdrawals.close()
            self._runner.close()
            for closing in (
                self._reports,
                self._calls,
                self._eviction_calls,
                self._releases,
                self._groups,
                self._status,
            ):
                if closing is not None:
                    await closing.close()

    def _bindings_wait(self) -> bool:
        return self._calls is not None and self._calls.is_behind

    async def _leave(self) -> None:
        """Finishes what is under way, as far as there is time; the rest goes to other binders."""
        self._runner.feed(events.Leave())
        if self._status is not None:
            self._status.leave()
        deadline = asyncio.get_running_loop().time() + BINDER_ORDERS
        while asyncio.get_running_loop().time() < deadline:
            cores = (self._core, self._evictions)
            idle = self._status is None or self._status.idle
            if idle and not any(core.held or core.unacknowledged for core in cores):
                break
            await asyncio.sleep(LEAVE_POLL)
        else:
            self._runner.feed(events.Exit())
            self._context.log.warning("%d orders are left to other binders", self._core.held)
        self._bus.post(subjects.BINDER_BEATS, BinderBeat(self._context.name, self._core.incarnation, 0, gone=True))

    # Messages

    def _on_event(self, message: BindingOrders | NameTaken | Recall | Withdraw, envelope: Envelope) -> None:
        self._runner.feed(message)

    def _on_permits(self, message: PermitAnswer | ListPermits, envelope: Envelope) -> None:
        if not isinstance(message, ListPermits):
            self._runner.feed(message)
            return
        waiting, more = self._core.waiting(self._context.clock())
        waiting = [replace(each, since=self._context.date(each.since)) for each in waiting]
        self._bus.post(subjects.BINDER_WAITING, Permits(message.id, self._context.name, waiting, more))

    def _on_find(self, asked: FindAttempt, envelope: Envelope) -> None:
        found = self._core.last_attempt(asked.uid)
        if found is not None:
            steps = tuple(Step(self._context.date(at), state) for at, state in found.transitions)
            reason = "" if found.outcome is None else found.outcome.reason
            envelope.respond(AttemptFound(self._context.name, found.identity.attempt, steps, reason))

    def _on_evict(self, message: Evict, envelope: Envelope) -> None:
        if self._eviction_calls is None:
            self._bus.post(subjects.QUEUE_EVICTED, Evicted(message.uid, message.attempt))
        else:
            self._runner.feed(message)

    def _on_notices(self, message: Notices, envelope: Envelope) -> None:
        newest = self._queue.position
        if message.epoch and self._queue.hear(message.epoch, self._context.clock()) is Heard.OLD:
            stale = f"notices of the queue of epoch {message.epoch}, now {newest}"
            self._carry_out(events.Problem(ProtocolError(stale)))
            return
        for notice in message.notices:
            if self._status is not None:
                self._status.notice(notice)
            if self._releases is not None:
                self._releases.put(notice)
        if self._groups is not None:
            for group in message.groups:
                self._groups.put(group)

    # Effects

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case events.Call():
                if self._calls is None:
                    self._runner.feed(events.Called(effect.uid, effect.attempt, effect.step, DONE))
                else:
                    self._calls.put(effect, ahead=effect.continues)
            case events.ActivatePods(uids=uids):
                self._bus.post(subjects.QUEUE_ACTIVATE, Activate(uids))
            case events.AttemptEnded():
                self._on_ended(effect)
            case BindingOutcomes():
                self._metrics.took(self._core.durations)
                self._reports.put(effect)
            case Recalled():
                self._bus.post(subjects.SNAPSHOT_BOUND, effect)
            case events.SendBeat():
                self._beat(effect)
            case events.EndProcess(why=why):
                self._context.fault.end(ClusterError(why))
            case NameTaken():
                self._context.fault.end(name_taken("binder", effect, self._context.wall()))
            case PermitHeard():
                self._bus.post(subjects.BINDER_WAITING, effect)
            case events.PermitWaitEnded():
                self._metrics.permit_wait_ended(effect)
            case events.DeviceWaitEnded():
                self._metrics.device_wait_ended(effect)
            case ClaimCreated():
                self._metrics.claim_created(effect)
            case events.Problem(error=error):
                self._metrics.refused.inc()
                self._limited_log.warning(type(error).__name__, "%s", error)
            case events.TellOwner():
                if self._status is not None:
                    self._status.tell(effect)
            case events.TellDevicesAwaited():
                if self._status is not None:
                    self._status.tell_devices_awaited(effect)
            case events.LookUp():
                if self._calls is not None:
                    self._calls.put(effect)
            case events.Nominate(uid=uid, attempt=attempt):
                if self._calls is None:
                    self._runner.feed(events.Nominated(uid, attempt, ""))
                else:
                    self._calls.put(effect)
            case _ if self._eviction_calls is not None:
                self._eviction_calls.carry_out(effect)

    def _beat(self, beat: events.SendBeat) -> None:
        context = self._context
        self._metrics.held.set(self._core.held)
        self._metrics.plugins_timed(self._core.meter)
        self._metrics.took(self._core.durations)
        message = BinderBeat(
            context.name,
            self._core.incarnation,
            beat.room,
            at=context.wall(),
            uptime=context.clock() - self._began,
            epoch=beat.epoch,
            number=beat.number,
        )
        self._bus.post(subjects.BINDER_BEATS, message)

    def _on_ended(self, end: events.AttemptEnded) -> None:
        if self._spans.enabled:
            self._spans.ended(end, self._context.clock())
        if end.reason:
            order = end.order
            trace = self._context.tracer.pod(order.uid).fields()
            self._context.log.warning("%s: not bound to %s: %s", order.key, order.node, end.reason, extra=trace)

    async def _report(self, message: BindingOutcomes) -> None:
        """Without an acknowledgement the core has it sent again."""
        try:
            received = await self._bus.request(subjects.SNAPSHOT_BOUND, message, Received, timeout=REPEAT_SECONDS)
        except NoAnswer as none:
            self._limited_log.warning(none.silence, "outcomes are not acknowledged: %s", none)
        except FlotillaError as cause:
            self._limited_log.warning(type(cause).__name__, "the acknowledgement of outcomes is refused: %s", cause)
        else:
            self._runner.feed(received)

    def _failed(self, cause: BaseException) -> None:
        self._context.fault.report("a call", cause)
