"""Cycle's shell: pods from the queue, asks to the workers, commits to the snapshot, outcomes back to the queue."""

import asyncio
import logging
import random
import secrets
from collections.abc import Iterable

from services.cycle.asking import Asking
from services.cycle.core import CycleCore
from services.cycle.events import (
    Ask,
    Batch,
    Decided,
    Effect,
    Event,
    Failed,
    Superseded,
    Tick,
    Unschedulable,
    WorkerFault,
    Write,
)
from services.cycle.extending import AskExtenders, Extending
from services.cycle.feed import Feed
from services.cycle.fullobjects import NODES, WholeObjects
from services.cycle.membership import Membership
from services.cycle.narrowing import AskAboutVictims
from services.cycle.outcomes import outcome_of
from services.cycle.spans import RoundSpans
from shared.bus import Envelope, subjects
from shared.config.document import read_config
from shared.extenders.client import ExtenderClient
from shared.kube.access import client_connection
from shared.kube.client import KubeClient
from shared.kube.listwatch import ListWatch
from shared.messages.evaluation import Ties
from shared.messages.preemption import Candidates, Preempt
from shared.messages.queue import Batch as PulledBatch
from shared.messages.queue import Outcome, QueuedPod, Verdict
from shared.messages.rounds import Explained, Proposals, Propose
from shared.messages.state import Committed, Heartbeat, Outdated
from shared.messages.workers import Assign, WorkerBeat
from shared.plugins.frameworks import load_frameworks, load_scheduler_config
from shared.runtime import Context, CoreRunner, every
from shared.runtime.clocks import ClockOffsets
from shared.runtime.health import Watchdog
from shared.runtime.joining import joined
from shared.runtime.leadership import LaterTerm, leadership
from shared.runtime.names import name_conflict
from shared.runtime.stopping import CYCLE_PODS
from shared.telemetry.logs import Repeated

PACE = 0.02
"""Seconds between two rounds that are not full: fewer and fuller ones cost less a pod."""
LOOK = 0.25
"""Seconds between two looks at who is lost."""
FINISH_LOOK = 0.01
RESULTS = {
    Verdict.DECIDED: "scheduled",
    Verdict.UNSCHEDULABLE: "unschedulable",
    Verdict.FAILED: "error",
    Verdict.SUPERSEDED: "scheduled",
}
"""As kube-scheduler labels them."""


async def main(context: Context) -> None:
    settings = context.settings
    source = read_config(settings.config)
    config, given = load_scheduler_config(source), client_connection(source)
    frameworks = load_frameworks(config)
    client = await KubeClient.open(settings.api, context.telemetry, given)
    try:
        extenders = ExtenderClient(config.extenders)
        try:
            async with (
                joined(context, config.leader_election, given),
                leadership(context, config.leader_election, f"{settings.prefix}-cycle", given) as lead,
            ):
                core = CycleCore(
                    lead.epoch,
                    frameworks,
                    round_size=settings.round_size,
                    ties=Ties(seed=settings.seed),
                    pace=PACE,
                    extending=Extending(extenders.extenders),
                    incarnation=secrets.token_hex(8),
                )
                await lead.during(Shell(context, core, extenders, client, LaterTerm(context, lead.raise_term)).run())
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
    ) -> None:
        settings = context.settings
        self._later_term = later_term
        self._client = client
        self._whole = WholeObjects(client)
        self._asking = Asking(extenders, self._whole, self._handle, self._trouble, context.fault)
        self._context = context
        self._core = core
        self._membership = Membership(core.epoch, settings.shard_count, settings.expected_workers)
        self._pods: dict[str, tuple[QueuedPod, float]] = {}
        """With the time at which each was taken."""
        self._feed = Feed(
            context.bus, core.epoch, settings.round_size, lambda: core.pods_held, self._take, core.refused.append
        )
        self._runner: CoreRunner[Event, Effect] = CoreRunner(
            core, Tick(), self._carry_out, clock=context.clock, telemetry=context.telemetry
        )
        self._spans = RoundSpans(context.tracer)
        self._clocks = ClockOffsets(context)
        self._snapshot = Watchdog(context.health, context.clock, "snapshot", "no snapshot has answered the commit")
        self._snapshot.stop()
        self._sparingly = Repeated(context.log)
        self._rounds_before = 0
        metrics = context.metrics
        self._rounds = metrics.counter("flotilla_rounds_total", "Rounds begun.")
        self._refused = metrics.counter("flotilla_cycle_refused_total", "Messages that were not taken.")
        self._held = metrics.gauge("flotilla_cycle_pods", "Pods that wait for an outcome.")
        self._workers = metrics.gauge("flotilla_workers", "Workers that hold shards.")
        self._faults = metrics.counter(
            "flotilla_worker_faults_total",
            "Answers that cannot have been right when they were given.",
            ["worker", "reason"],
        )
        self._attempts = metrics.histogram(
            "scheduler_scheduling_attempt_duration_seconds",
            "From a pod's leaving the queue to its outcome.",
            ["result", "profile"],
        )

    async def run(self) -> None:
        bus = self._context.bus
        self._context.health.wait_for("workers", "no workers hold the shards yet")
        self._context.health.ready()
        await bus.subscribe(subjects.CYCLE_ANSWERS, (Proposals, Explained, Candidates), self._on_answer)
        await bus.subscribe(subjects.CYCLE_COMMITTED, (Committed, Outdated, Heartbeat), self._on_committed)
        await bus.subscribe(subjects.WORKER_BEATS, WorkerBeat, self._on_beat)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._feed.pull())
                tasks.create_task(self._feed.report())
                tasks.create_task(every(LOOK, self._look))
                tasks.create_task(self._context.fault.raised())
                if self._asking.sends_nodes:
                    tasks.create_task(ListWatch(self._client, NODES, self._whole.hear, random.Random()).run())
        except asyncio.CancelledError:
            await self._finish()
            raise
        finally:
            self._runner.close()
            await self._asking.close()

    async def _finish(self) -> None:
        """What is under way comes to its end, if it does soon. What does not, the queue hands to the next cycle."""
        telling = asyncio.create_task(self._feed.report())
        try:
            async with asyncio.timeout(CYCLE_PODS):
                while self._core.pods_held:
                    await asyncio.sleep(FINISH_LOOK)
                await self._feed.all_told()
        except TimeoutError:
            self._context.log.warning("%d pods are left to the next cycle", self._core.pods_held)
        finally:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)

    # What comes in

    def _take(self, batch: PulledBatch) -> None:
        now = self._context.clock()
        for queued in batch.pods:
            self._pods[queued.pod.uid] = (queued, now)
        gangs = {queued.pod.uid: queued.gang for queued in batch.pods if queued.gang is not None}
        self._handle(Batch([queued.pod for queued in batch.pods], batch.seq, gangs))

    def _on_answer(self, message: Proposals | Explained | Candidates, envelope: Envelope) -> None:
        if not isinstance(message, Explained):
            self._handle(message)

    def _on_committed(self, message: Committed | Outdated | Heartbeat, envelope: Envelope) -> None:
        if isinstance(message, Outdated):
            self._on_outdated(message)
            return
        if isinstance(message, Committed) and message.epoch >= self._core.epoch:
            self._snapshot.stop()
        self._handle(message)

    def _on_outdated(self, outdated: Outdated) -> None:
        if (outdated.epoch, outdated.cycle) == (self._core.epoch, self._core.incarnation):
            self._leave(outdated.newest, "has committed")

    def _leave(self, newest: int, what: str) -> None:
        self._later_term.leave(newest, f"another cycle {what} in term {newest}, and ours is {self._core.epoch}")

    def _on_beat(self, beat: WorkerBeat, envelope: Envelope) -> None:
        self._clocks.heard(beat.worker, beat.at)
        if self._membership.outdated_by(beat):
            self._leave(beat.epoch, f"has given {beat.worker} its shards")
            return
        self._send(self._membership.beat(beat, self._context.clock()))

    def _look(self) -> None:
        self._send(self._membership.tick(self._context.clock()))
        for error in list(self._core.refused):
            self._refused.inc()
            self._sparingly.warning("refused", "refused: %s", error)
        self._core.refused.clear()
        self._rounds.inc(self._core.rounds - self._rounds_before)
        self._rounds_before = self._core.rounds
        self._held.set(self._core.pods_held)

    def _handle(self, event: Event) -> None:
        self._runner.feed(event)
        self._spans.end(self._core.under_way, self._context.clock())

    def _trouble(self, text: str) -> None:
        """With an extender, that fails nobody's attempt."""
        self._sparingly.warning(text, "%s", text)

    # What goes out

    def _send(self, sends: Iterable[tuple[str, Assign]]) -> None:
        for worker, assign in sends:
            self._context.bus.post(subjects.worker(worker), assign)
        while self._membership.refused:
            taken = self._membership.refused.popleft()
            self._sparingly.warning(f"name {taken.name}", "%s", name_conflict("worker", taken))
            self._context.bus.post(subjects.worker(taken.name), taken)
        if self._membership.changed:
            workers = self._membership.workers()
            self._workers.set(len(workers.shards))
            if workers.complete:
                self._context.health.clear("workers")
                shares = ", ".join(f"{name} {len(shards)}" for name, shards in sorted(workers.shards.items()))
                self._context.log.info("shards: %s", shares)
            else:
                self._context.health.wait_for("workers", self._why_nobody())
            self._handle(workers)

    def _why_nobody(self) -> str:
        distrusted = self._membership.distrusted(self._context.clock())
        which = f"; {', '.join(distrusted)}: at fault too often, and to start again" if distrusted else ""
        return f"no worker is left{which}"

    def _on_fault(self, fault: WorkerFault) -> None:
        """Faults that the snapshot found were counted and logged there."""
        worker, kind = fault.worker, fault.kind
        if not fault.counted:
            self._faults.labels(worker, kind).inc()
            said = "worker %s is at fault (%s): %s"
            self._sparingly.error(f"fault {worker} {kind}", said, worker, kind, fault.reason)
        sends = self._membership.fault(worker, f"{kind}: {fault.reason}", self._context.clock())
        if sends:
            self._context.log.error("worker %s gets no shards until it has started again", worker)
            self._send(sends)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Ask(worker=worker, message=Preempt() as preempt):
                self._context.bus.post(subjects.worker(worker), preempt)
            case Ask(worker=worker, message=Propose() as propose):
                trace = self._spans.context(propose.round, self._core.asked_pods, self._context.clock())
                self._context.bus.post(subjects.worker(worker), propose, trace=trace)
            case AskExtenders() | AskAboutVictims():
                self._asking.ask(effect)
            case Write(message=commit, round=number):
                trace = self._spans.context(number, (), self._context.clock()) if number else None
                self._snapshot.start()
                self._context.bus.post(subjects.SNAPSHOT_COMMITS, commit, trace=trace)
            case Decided(uid=uid, node=node):
                self._tell(Outcome(uid, Verdict.DECIDED, node))
            case Unschedulable():
                self._say_who_makes_way(effect)
                self._tell(outcome_of(effect, self._has_nomination(effect.uid)))
            case Failed(uid=uid):
                self._tell(outcome_of(effect, self._has_nomination(uid)))
            case Superseded(uid=uid):
                self._tell(Outcome(uid, Verdict.SUPERSEDED))
            case WorkerFault():
                self._on_fault(effect)

    def _has_nomination(self, uid: str) -> bool:
        held = self._pods.get(uid)
        return held is not None and bool(held[0].pod.status.nominated_node_name)

    def _say_who_makes_way(self, told: Unschedulable) -> None:
        held, preemption = self._pods.get(told.uid), told.preemption
        if held is not None and preemption is not None and preemption.victims:
            victims = ", ".join(victim.key for victim in preemption.victims)
            said = "%s: nominated to node %s; these pods make way: %s"
            self._context.log.info(said, held[0].pod.key, preemption.nominated, victims)

    def _tell(self, outcome: Outcome) -> None:
        held = self._pods.pop(outcome.uid, None)
        if held is not None:
            (queued, taken_at), now = held, self._context.clock()
            profile = queued.pod.spec.scheduler_name
            self._attempts.labels(RESULTS[outcome.verdict], profile).observe(now - taken_at)
            self._spans.attempt(queued, outcome, taken_at, now)
            self._log(queued, outcome)
        self._feed.tell(outcome)

    def _log(self, queued: QueuedPod, outcome: Outcome) -> None:
        """Each outcome, with the trace of its pod; what is not a plugin's fault only if somebody wants to know."""
        level = logging.WARNING if outcome.verdict is Verdict.FAILED else logging.DEBUG
        log = self._context.log
        if log.isEnabledFor(level):
            said = outcome.message or outcome.node
            trace = self._context.tracer.pod(outcome.uid).fields()
            log.log(level, "%s: %s: %s", queued.pod.key, outcome.verdict, said, extra=trace)
