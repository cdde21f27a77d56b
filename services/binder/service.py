"""Binder's shell: orders and permits in, calls to the API server, outcomes out."""

import asyncio
import secrets
import time

from msgspec.structs import replace

from services.binder.binding.api_calls import DONE, Calling
from services.binder.binding.outcome_reports import REPEAT
from services.binder.core import MOST_HELD, BinderCore
from services.binder.cores import Cores
from services.binder.cores import Effect as AnyEffect
from services.binder.cores import Event as AnyEvent
from services.binder.events import (
    Acknowledged,
    Activated,
    Answer,
    Beat,
    Call,
    Called,
    Ended,
    Leave,
    LookUp,
    Orders,
    Problem,
    Record,
    Report,
    SetCondition,
    Tick,
    Took,
    Unnamed,
    Waited,
)
from services.binder.eviction.eviction_calls import Evictor
from services.binder.eviction.eviction_core import Evicting
from services.binder.metrics import BinderMetrics
from services.binder.spans import BindSpans
from services.binder.status.status_reporter import Telling
from services.binder.worker_pool import Pool
from shared.bus import Envelope, NoAnswer
from shared.bus.subjects import (
    BINDER_BEATS,
    BINDER_EVICTIONS,
    BINDER_GROUP,
    BINDER_NOTICES,
    BINDER_PERMITS,
    BINDER_WAITING,
    BINDER_WITHDRAWALS,
    QUEUE_ACTIVATE,
    QUEUE_EVICTED,
    SNAPSHOT_BOUND,
    binder,
)
from shared.config.document import read_config
from shared.errors import FlotillaError, ProtocolError
from shared.extenders.client import ExtenderClient
from shared.kube.client import KubeClient
from shared.kube.connection import given_connection
from shared.messages.binding import (
    BinderBeat,
    BindingOrders,
    BindingOutcomes,
    Evict,
    Evicted,
    Notices,
    PermitAnswer,
    Recall,
    Withdraw,
)
from shared.messages.identity import NameTaken
from shared.messages.permits import ListPermits, Permits
from shared.messages.queue import Activate, Received
from shared.plugins.frameworks import load_frameworks, load_scheduler_config
from shared.runtime import Context, CoreRunner
from shared.runtime.joining import joined
from shared.runtime.names import name_taken
from shared.runtime.stopping import BINDER_ORDERS
from shared.telemetry.logs import Repeated

MOST_CALLS = 64
"""To the API server at the same time."""
LEAVE_LOOK = 0.01


async def main(context: Context, *, api_calls: bool = True) -> None:
    """Without `api_calls` every pod counts as bound at once, and nobody is told: for measuring all the rest."""
    source = read_config(context.settings.config)
    config = load_scheduler_config(source)
    frameworks = load_frameworks(config)
    core = BinderCore(
        context.name,
        frameworks,
        clock=time.perf_counter,
        extenders=config.extenders,
        incarnation=secrets.token_hex(8),
    )
    extenders = ExtenderClient(config.extenders)
    client: KubeClient | None = None
    try:
        if api_calls:
            given = given_connection(source)
            client = await KubeClient.open(context.settings.api, context.telemetry, given)
            async with joined(context, config.leader_election, given):
                await Shell(context, core, client, extenders).run()
        else:
            await Shell(context, core, client, extenders).run()
    finally:
        await extenders.close()
        if client is not None:
            await client.close()


class Shell:
    def __init__(
        self, context: Context, core: BinderCore, client: KubeClient | None, extenders: ExtenderClient
    ) -> None:
        self._context = context
        self._core = core
        self._evicting = Evicting()
        cores = Cores(core, self._evicting)
        self._queue_epoch = 0
        self._began = context.clock()
        self._incarnation = core.incarnation
        self._metrics = BinderMetrics(context.metrics)
        self._spans = BindSpans(context.tracer)
        self._sparingly = Repeated(context.log)
        self._runner: CoreRunner[AnyEvent, AnyEffect] = CoreRunner(
            cores,
            Tick(),
            self._carry_out,
            clock=context.clock,
            telemetry=context.telemetry,
            validate=cores.validate if context.validates else None,
        )
        self._telling: Telling | None = None
        self._evictor: Evictor | None = None
        self._calls: Pool[Call | LookUp] | None = None
        self._reports: Pool[BindingOutcomes] = Pool(
            self._report, most_workers=MOST_CALLS, most_waiting=MOST_HELD, failed=self._failed
        )
        if client is not None:
            self._telling = Telling(client, context.name, context.wall, self._metrics, context.log, self._bindings_wait)
            calling = Calling(
                client, self._runner.feed, core.awaits, context.clock, self._metrics, self._spans, extenders
            )
            self._calls = Pool(calling.make, most_workers=MOST_CALLS, most_waiting=2 * MOST_HELD, failed=self._failed)
            self._evictor = Evictor(context, client, self._telling, self._metrics, self._runner.feed, self._failed)

    async def run(self) -> None:
        bus = self._context.bus
        orders = await bus.subscribe(binder(self._context.name), (BindingOrders, NameTaken, Recall), self._on_orders)
        notices = await bus.subscribe(BINDER_NOTICES, Notices, self._on_notices, group=BINDER_GROUP)
        permits = await bus.subscribe(BINDER_PERMITS, (PermitAnswer, ListPermits), self._on_permits)
        withdrawals = await bus.subscribe(BINDER_WITHDRAWALS, Withdraw, self._on_withdraw)
        evictions = await bus.subscribe(BINDER_EVICTIONS, Evict, self._on_evict, group=BINDER_GROUP)
        self._runner.feed(Tick())
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
            await withdrawals.close()
            self._runner.close()
            await self._reports.close()
            if self._calls is not None:
                await self._calls.close()
            if self._evictor is not None:
                await self._evictor.close()
            if self._telling is not None:
                await self._telling.close()

    def _bindings_wait(self) -> bool:
        """More than are made at a time."""
        return self._calls is not None and self._calls.is_behind

    async def _leave(self) -> None:
        """Orders that are still under way after that go to other binders."""
        self._runner.feed(Leave())
        deadline = asyncio.get_running_loop().time() + BINDER_ORDERS
        while asyncio.get_running_loop().time() < deadline:
            told = self._telling is None or self._telling.idle
            left = self._core.held + self._core.untold + self._evicting.held + self._evicting.untold
            if not left and told:
                break
            await asyncio.sleep(LEAVE_LOOK)
        else:
            self._context.log.warning("%d orders are left to other binders", self._core.held)
        self._context.bus.post(BINDER_BEATS, BinderBeat(self._context.name, self._incarnation, 0, gone=True))

    # What comes in

    def _on_orders(self, message: BindingOrders | NameTaken | Recall, envelope: Envelope) -> None:
        if not isinstance(message, BindingOrders):
            self._runner.feed(message)
            return
        self._runner.feed(Orders(message))

    def _on_permits(self, message: PermitAnswer | ListPermits, envelope: Envelope) -> None:
        if not isinstance(message, ListPermits):
            self._runner.feed(message)
            return
        waiting, more = self._core.waiting(self._context.clock())
        waiting = [replace(each, since=self._context.date(each.since)) for each in waiting]
        self._context.bus.post(BINDER_WAITING, Permits(message.id, self._context.name, waiting, more))

    def _on_withdraw(self, message: Withdraw, envelope: Envelope) -> None:
        self._runner.feed(message)

    def _on_evict(self, message: Evict, envelope: Envelope) -> None:
        if self._evictor is None:
            self._context.bus.post(QUEUE_EVICTED, Evicted(message.uid, message.attempt))
        else:
            self._runner.feed(message)

    def _on_notices(self, message: Notices, envelope: Envelope) -> None:
        if 0 < message.epoch < self._queue_epoch:
            refused = ProtocolError(f"notices of the queue of epoch {message.epoch}, now {self._queue_epoch}")
            self._carry_out(Problem(refused))
            return
        self._queue_epoch = max(self._queue_epoch, message.epoch)
        if self._telling is not None:
            for notice in message.notices:
                self._telling.notice(notice)

    # What goes out

    def _carry_out(self, effect: AnyEffect) -> None:
        match effect:
            case Call():
                self._call(effect)
            case Activated(uids=uids):
                self._context.bus.post(QUEUE_ACTIVATE, Activate(uids))
            case Took():
                self._metrics.took(effect)
            case Ended():
                self._on_ended(effect)
            case Report(message=message):
                self._reports.put(message)
            case Answer(message=message):
                self._context.bus.post(SNAPSHOT_BOUND, message)
            case Beat(room=room):
                self._metrics.held.set(self._core.held)
                wall, uptime = self._context.wall(), self._context.clock() - self._began
                self._context.bus.post(
                    BINDER_BEATS, BinderBeat(self._context.name, self._incarnation, room, at=wall, uptime=uptime)
                )
            case Unnamed(taken=taken):
                self._context.fault.end(name_taken("binder", taken, self._context.wall()))
            case Waited():
                self._metrics.waited(effect)
            case Problem(error=error):
                self._metrics.refused.inc()
                self._sparingly.warning(type(error).__name__, "%s", error)
            case Record() | SetCondition() | LookUp():
                self._reach_out(effect)
            case _ if self._evictor is not None:
                self._evictor.carry_out(effect)

    def _reach_out(self, effect: Record | SetCondition | LookUp) -> None:
        """To the API server; where none is asked to bind, none is told or asked anything else."""
        if self._telling is None or self._calls is None:
            return
        match effect:
            case Record():
                self._telling.record(effect)
            case SetCondition():
                self._telling.condition(effect)
            case LookUp():
                self._calls.put(effect)

    def _on_ended(self, end: Ended) -> None:
        if self._spans.enabled:
            self._spans.ended(end, self._context.clock())
        if end.reason:
            order = end.order
            trace = self._context.tracer.pod(order.uid).fields()
            self._context.log.warning(
                "%s/%s: not bound to %s: %s",
                order.assignment.namespace,
                order.assignment.name,
                order.node,
                end.reason,
                extra=trace,
            )

    def _call(self, call: Call) -> None:
        if self._calls is None:
            self._runner.feed(Called(call.uid, call.attempt, call.step, DONE))
        else:
            self._calls.put(call)

    async def _report(self, message: BindingOutcomes) -> None:
        """If nothing comes back, the core has it sent again."""
        try:
            told = replace(message, incarnation=self._incarnation)
            received = await self._context.bus.request(SNAPSHOT_BOUND, told, Received, timeout=REPEAT)
        except NoAnswer as none:
            self._sparingly.warning(none.silence, "outcomes are not acknowledged: %s", none)
        except FlotillaError as cause:
            self._sparingly.warning(type(cause).__name__, "the acknowledgement of outcomes is refused: %s", cause)
        else:
            if 0 < received.sender_epoch < self._core.epoch:
                older = f"a snapshot of epoch {received.sender_epoch}, now {self._core.epoch}, has received outcomes"
                self._carry_out(Problem(ProtocolError(older)))
            else:
                self._runner.feed(Acknowledged(received.number))

    def _failed(self, cause: BaseException) -> None:
        self._context.fault.report("a call", cause)
