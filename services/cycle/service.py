"""The cycle's shell: pods from the queue, asks to the workers, commits to the snapshot, outcomes back to the queue."""

import asyncio
import logging
import random
import secrets
from collections.abc import Iterable
from importlib.metadata import version

from services.cycle.core import CycleCore
from services.cycle.events import (
    Answered,
    Ask,
    ConfirmTerm,
    Effect,
    EndTerm,
    Event,
    ExplanationAsked,
    Hinted,
    Outcome,
    Record,
    SendCommit,
    SendDeltas,
    TermConfirmed,
    Tick,
    Unschedulable,
    WorkerFault,
)
from services.cycle.extender_calls import NODES, ExtenderCalls, FullObjects
from services.cycle.extenders import AskAboutVictims, AskExtenders, AskForExplanation, Extenders
from services.cycle.membership import Membership
from services.cycle.metrics import CycleMetrics, RoundSpans
from services.cycle.queue_client import QueueClient, outcome_of
from services.cycle.recording import Decider
from services.cycle.standby import Standby
from shared.bus import Envelope, subjects
from shared.config.document import read_config, without_secrets
from shared.config.settings import HINTS_IN_EVENTS
from shared.errors import ClusterError
from shared.extenders.client import ExtenderClient
from shared.framework.loading import load_frameworks, load_scheduler_config
from shared.kube.access import client_connection
from shared.kube.client import KubeClient
from shared.kube.listwatch import ListWatch
from shared.messages.evaluation import Ties
from shared.messages.explaining import ExplainPod, ShardExplained
from shared.messages.preemption import Candidates
from shared.messages.queue import Hint, Verdict
from shared.messages.recording import RecordDecisions
from shared.messages.rounds import Proposals, Propose
from shared.messages.state import Committed, Heartbeat, NeedDeltas, OthersChanged, Outdated
from shared.messages.workers import Assign, WorkerBeat
from shared.runtime import Context, CoreRunner, every
from shared.runtime.clocks import ClockOffsets
from shared.runtime.context import Watchdog
from shared.runtime.joining import joined
from shared.runtime.leadership import LaterTerm, leadership
from shared.runtime.names import name_conflict
from shared.runtime.stopping import CYCLE_PODS
from shared.telemetry.logs import Repeated

LONGEST_PAUSE = 0.025
"""Seconds between two rounds of few pods where pods come fast: fewer and fuller rounds cost less per pod."""
LOOK_INTERVAL = 0.25
"""Seconds between two checks for lost workers, and between two updates of metrics, while workers send heartbeats."""
LONGEST_LOOK_INTERVAL = 0.5
"""The same without heartbeats."""
FINISH_INTERVAL = 0.01
"""Seconds between two checks whether the last pods are decided."""


async def main(context: Context) -> None:
    settings = context.settings
    source = read_config(settings.config)
    config, given = load_scheduler_config(source, settings.feature_gates), client_connection(source)
    frameworks = load_frameworks(config)
    client = await KubeClient.open(settings.api, context.telemetry, given)
    try:
        extenders = ExtenderClient(config.extenders)
        try:
            standby, lease = Standby(context), f"{settings.prefix}-cycle"
            async with (
                joined(context, config.leader_election, given),
                leadership(context, config.leader_election, lease, given, stand_by=standby.run) as lead,
            ):
                beats = await standby.end()
                core = CycleCore(
                    lead.epoch,
                    frameworks,
                    round_size=settings.round_size,
                    ties=Ties(seed=settings.seed),
                    longest_pause=LONGEST_PAUSE,
                    extenders=Extenders(extenders.extenders),
                    incarnation=secrets.token_hex(8),
                    decider=Decider(version("flotilla"), without_secrets(source), str(settings.feature_gates)),
                    hints=settings.hints == HINTS_IN_EVENTS,
                )
                shell = Shell(context, core, extenders, client, LaterTerm(context, lead.raise_term), beats)
                await lead.during(shell.run())
        finally:
            await extenders.close()
    finally:
        await client.close()


class Shell:
    def __init__(
        self,
        context: Context,
        core: CycleCore,
        extenders: ExtenderClient,
        client: KubeClient,
        later_term: LaterTerm,
        beats: Iterable[tuple[WorkerBeat, float]] = (),
    ) -> None:
        """`beats`: of workers, heard while it stood by."""
        settings = context.settings
        self._context = context
        self._bus = context.bus
        self._core = core
        self._client = client
        self._later_term = later_term
        self._full_objects = FullObjects(client)
        self._calls = ExtenderCalls(extenders, self._full_objects, self._handle, self._on_trouble, context.fault)
        self._membership = Membership(core.epoch, settings.shard_count, settings.expected_workers, confirmed=False)
        self._beats = beats
        unanswered = Watchdog(context.health, context.clock, "queue", "no queue has answered")
        self._queue = QueueClient(
            context.bus,
            unanswered,
            core.epoch,
            context.clock,
            lambda: core.pods_held,
            lambda: 2 * core.rounds.limit,
            self._handle,
            core.refused.append,
        )
        self._runner: CoreRunner[Event, Effect] = CoreRunner(core, Tick(), self._carry_out, context, core.validate)
        self._spans = RoundSpans(context.tracer)
        self._metrics = CycleMetrics(context.metrics)
        self._clocks = ClockOffsets(context)
        self._snapshot = Watchdog(context.health, context.clock, "snapshot", "no snapshot has answered the commit")
        self._snapshot.stop()
        self._repeated = Repeated(context.log)
        self._rounds_before = 0
        self._looked_at = 0.0
        self._confirmed = asyncio.Event()
        self._questions = 0
        self._askers: dict[int, Envelope] = {}
        """Of the questions without an answer; the core answers every one, and refuses those that are too many."""

    async def run(self) -> None:
        self._context.health.wait_for("workers", "no workers hold the shards yet")
        self._context.health.ready()
        await self._bus.subscribe(subjects.CYCLE_ANSWERS, (Proposals, Candidates, ShardExplained), self._on_answer)
        await self._bus.subscribe(subjects.CYCLE_EXPLAIN, ExplainPod, self._on_explain)
        types = (Committed, Outdated, Heartbeat, OthersChanged)
        await self._bus.subscribe(subjects.CYCLE_COMMITTED, types, self._on_committed)
        await self._bus.subscribe(subjects.CYCLE_RECORD, RecordDecisions, self._on_record)
        self._handle(ConfirmTerm())
        for beat, heard_at in self._beats:
            self._send(self._membership.beat(beat, heard_at))
        await self._bus.subscribe(subjects.WORKER_BEATS, WorkerBeat, self._on_beat)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pull())
                tasks.create_task(self._queue.report())
                tasks.create_task(every(LONGEST_LOOK_INTERVAL, self._look))
                tasks.create_task(self._context.fault.raised())
                if self._calls.sends_nodes:
                    tasks.create_task(ListWatch(self._client, NODES, self._full_objects.hear, random.Random()).run())
        except asyncio.CancelledError:
            await self._finish()
            raise
        finally:
            self._runner.close()
            await self._calls.close()

    async def _pull(self) -> None:
        """Without the snapshot's word the term may be used twice, and the queue follows the first one that pulls."""
        await self._confirmed.wait()
        await self._queue.pull()

    async def _finish(self) -> None:
        """Completes what is under way, if that is soon. The queue hands the other pods to the next cycle."""
        reporting = asyncio.create_task(self._queue.report())
        try:
            async with asyncio.timeout(CYCLE_PODS):
                while self._core.pods_held:
                    await asyncio.sleep(FINISH_INTERVAL)
                await self._queue.all_reported()
        except TimeoutError:
            self._context.log.warning("%d pods are left to the next cycle", self._core.pods_held)
        finally:
            reporting.cancel()
            await asyncio.gather(reporting, return_exceptions=True)

    # Messages

    def _handle(self, event: Event) -> None:
        self._runner.feed(event)
        self._spans.end(self._core.rounds_under_way, self._context.clock())

    def _on_answer(self, message: Proposals | Candidates | ShardExplained, envelope: Envelope) -> None:
        self._handle(message)

    def _on_explain(self, request: ExplainPod, envelope: Envelope) -> None:
        self._questions += 1
        self._askers[self._questions] = envelope
        self._handle(ExplanationAsked(self._questions, request))

    def _on_committed(self, message: Committed | Outdated | Heartbeat | OthersChanged, envelope: Envelope) -> None:
        if isinstance(message, Outdated):
            epoch, newest = self._core.epoch, message.newest
            is_ours = (message.epoch, message.cycle) == (epoch, self._core.incarnation)
            if is_ours and message.number in (0, self._core.round_awaited):
                self._later_term.leave(newest, f"another cycle has committed in term {newest}, and ours is {epoch}")
            return
        if isinstance(message, Committed) and message.epoch >= self._core.epoch:
            self._snapshot.stop()
        self._handle(message)

    def _on_record(self, request: RecordDecisions, envelope: Envelope) -> None:
        self._handle(request)

    def _on_beat(self, beat: WorkerBeat, envelope: Envelope) -> None:
        self._clocks.heard(beat.worker, beat.at)
        self._send(self._membership.beat(beat, self._context.clock()))
        if self._membership.wants_confirmation():
            self._handle(ConfirmTerm())
        if self._context.clock() - self._looked_at >= LOOK_INTERVAL:
            self._look()

    def _look(self) -> None:
        self._looked_at = self._context.clock()
        self._send(self._membership.tick(self._context.clock()))
        for error in list(self._core.refused):
            self._metrics.refused.inc()
            self._repeated.warning("refused", "refused: %s", error)
        self._core.refused.clear()
        for place, cause in self._core.rounds.failures.unexpected():
            self._repeated.error(place, "an attempt failed: %s", cause, exc_info=cause)
        self._metrics.rounds.inc(self._core.rounds.begun - self._rounds_before)
        self._rounds_before = self._core.rounds.begun
        self._metrics.held.set(self._core.pods_held)
        self._metrics.preemption_attempts.show({(): self._core.preemption_attempts})
        self._metrics.hints.show({(result,): pods for result, pods in self._core.explanations.hints.items()})

    def _on_trouble(self, text: str) -> None:
        """An extender misbehaves in a way that fails no attempt."""
        self._repeated.warning(text, "%s", text)

    # Workers

    def _send(self, sends: Iterable[tuple[str, Assign]]) -> None:
        for worker, assign in sends:
            self._bus.post(subjects.worker(worker), assign)
        while self._membership.refused:
            taken = self._membership.refused.popleft()
            self._repeated.warning(f"name {taken.name}", "%s", name_conflict("worker", taken))
            self._bus.post(subjects.worker(taken.name), taken)
        if not self._membership.changed:
            return
        workers = self._membership.workers()
        self._metrics.workers.set(len(workers.shards))
        if workers.complete:
            self._context.health.clear("workers")
            shares = ", ".join(f"{name} {len(shards)}" for name, shards in sorted(workers.shards.items()))
            self._context.log.info("shards: %s", shares)
        else:
            distrusted = ", ".join(self._membership.distrusted(self._context.clock()))
            why = f"; {distrusted}: too many faults, must restart" if distrusted else ""
            self._context.health.wait_for("workers", f"no worker is left{why}")
        self._handle(workers)

    def _on_fault(self, fault: WorkerFault) -> None:
        """The snapshot has counted and logged the faults that it found."""
        worker, kind = fault.worker, fault.kind
        self._log_fault(fault)
        sends = self._membership.fault(worker, f"{kind}: {fault.reason}", self._context.clock())
        if sends:
            self._context.log.error("worker %s gets no shards until it has restarted", worker)
            self._send(sends)

    def _log_fault(self, fault: WorkerFault) -> None:
        if not fault.counted:
            worker, kind = fault.worker, fault.kind
            self._metrics.faults.labels(worker, kind).inc()
            said = "worker %s is at fault (%s): %s"
            self._repeated.error(f"fault {worker} {kind}", said, worker, kind, fault.reason)

    def _on_term_confirmed(self) -> None:
        """A wrong beat costs its worker nothing more than that: another one could have sent it in its name."""
        faults, sends = self._membership.on_confirmed(self._context.clock())
        for fault in faults:
            self._log_fault(fault)
        self._send(sends)
        self._confirmed.set()

    # Effects

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Ask(worker=worker, message=Propose() as propose):
                self._metrics.asked(propose.round, self._context.clock())
                trace = self._spans.context(propose.round, self._core.rounds.asked_pods, self._context.clock())
                self._bus.post(subjects.worker(worker), propose, trace=trace)
            case Ask(worker=worker, message=preempt):
                self._bus.post(subjects.worker(worker), preempt)
            case Answered():
                self._answer(effect)
            case AskExtenders() | AskForExplanation() | AskAboutVictims():
                self._calls.ask(effect)
            case SendCommit(message=commit, round=number):
                pods = [each.uid for each in commit.decisions]  # of a round that needed no ask
                trace = self._spans.context(number, pods, self._context.clock()) if number else None
                if number:
                    self._metrics.committed(number, len(commit.decisions), self._context.clock())
                self._snapshot.start()
                self._bus.post(subjects.SNAPSHOT_COMMITS, commit, trace=trace)
            case SendDeltas():
                self._bus.post(subjects.SNAPSHOT_COMMITS, NeedDeltas(self._core.epoch))
            case Record(message=recorded):
                self._bus.post(subjects.CYCLE_DECISIONS, recorded)
            case EndTerm(why=why):
                self._context.fault.end(ClusterError(why))
            case TermConfirmed():
                self._on_term_confirmed()
            case WorkerFault():
                self._on_fault(effect)
            case Hinted(uid=uid, text=text):
                self._queue.hint(Hint(uid, text))
            case _:
                self._tell(effect)

    def _answer(self, answered: Answered) -> None:
        asker = self._askers.pop(answered.number, None)
        if asker is not None:
            asker.respond(self._core.explanations.explained(answered, self._context.clock(), self._context.date))

    def _tell(self, effect: Outcome) -> None:
        info, now, log = effect.pod, self._context.clock(), self._context.log
        outcome = outcome_of(effect, info is not None and bool(info.nominated_node))
        self._queue.tell(outcome)
        if info is None:
            return
        self._metrics.attempt(info, outcome, now)
        self._spans.attempt(info, outcome, now)
        if isinstance(effect, Unschedulable) and effect.preemption is not None and effect.preemption.victims:
            victims = ", ".join(victim.key for victim in effect.preemption.victims)
            log.info("%s: nominated to node %s; victims: %s", info.key, effect.preemption.nominated, victims)
        level = logging.WARNING if outcome.verdict is Verdict.FAILED else logging.DEBUG
        if log.isEnabledFor(level):
            trace = self._context.tracer.pod(info.uid).fields()
            log.log(level, "%s: %s: %s", info.key, outcome.verdict, outcome.message or outcome.node, extra=trace)
