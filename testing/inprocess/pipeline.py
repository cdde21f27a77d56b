"""Snapshot, cycle and workers in one process on virtual time: the cores of the services in another shell.

Messages travel as bytes; `fate` loses, duplicates, delays and reorders them. Nothing waits: time jumps to the next
delivery or deadline. The same seed gives the same run.

An outcome is final: unschedulable pods are not retried, and victims are not evicted.
"""

import heapq
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import msgspec

from services.cycle import events as cycle
from services.cycle.core import CycleCore
from services.cycle.extenders import AskAboutVictims, AskExtenders, AskForExplanation
from services.snapshot import events as snapshot
from services.snapshot.commit_checks import ProfileFilters
from services.snapshot.core import SnapshotCore
from services.worker import events as worker
from services.worker.core import WorkerCore
from shared.errors import FlotillaError, InvariantBroken
from shared.framework.evaluator import Explanation
from shared.framework.loading import load_frameworks
from shared.framework.profile import Framework
from shared.messages.binding import BindingOrders, BindingOutcome, Evict
from shared.messages.codec import M, copy
from shared.messages.evaluation import Ties
from shared.messages.explaining import ExplainPod, PodExplained, ShardExplained
from shared.messages.preemption import Candidates
from shared.messages.queue import POD_GONE, ForgottenPod, Gang, GangGroup
from shared.messages.recording import Recorded
from shared.messages.rounds import ClassAnswer, ClassAsk, Proposals
from shared.messages.state import Delta, Heartbeat, NeedDeltas, OthersChanged
from shared.model.objects import ClusterObject, Node, Pod, dec_hook, encode_msgpack
from shared.plugins.devices.queued_claims import ClaimUsers
from shared.plugins.volumes.own_claims import ClaimsOnNodes
from shared.store.schema import Persist
from testing.inprocess.batches import batch_of, nominated

Fate = Callable[[object], Sequence[float]]
"""For a message: the delay of each of its copies in seconds; no copy means that it is lost."""

Outcome = cycle.Outcome
P = TypeVar("P", ClassAsk, ClassAnswer)


def reliable(message: object) -> Sequence[float]:
    return (0.0,)


class Pipeline:
    def __init__(
        self,
        frameworks: Mapping[str, Framework] | None = None,
        checks: Mapping[str, ProfileFilters] | None = None,
        *,
        shards: int = 1,
        round_size: int = 256,
        ties: Ties | None = None,
        fate: Fate = reliable,
        binds: bool = True,
        hints: bool = False,
    ) -> None:
        """One worker per shard. `checks`: what the snapshot verifies for each profile; everything by default.

        `binds`: decided pods are bound, and the watch shows it.
        """
        frameworks = load_frameworks(None) if frameworks is None else frameworks
        self.now = 0.0
        self.snapshot = SnapshotCore(epoch=1, filters=checks)
        self.cycle = CycleCore(1, frameworks, round_size=round_size, ties=ties, hints=hints)
        self.workers = {
            f"worker-{i}": WorkerCore(f"worker-{i}", frozenset({i}), shards, frameworks) for i in range(shards)
        }
        self.outcomes: dict[str, Outcome] = {}
        self.hints: dict[str, str] = {}
        """By uid, what would help a pod that fits nowhere."""
        self.problems: list[FlotillaError] = []
        self.recorded: list[Recorded] = []
        """What the cycle has sent about its decisions, if it was asked to."""
        self._frameworks = frameworks
        self._fate = fate
        self._binds = binds
        self._pods: dict[str, Pod] = {}
        self._claim_users = ClaimUsers()
        self._shown: dict[str, Pod] = {}
        self._mail: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._questions = 0
        self._explained: dict[int, PodExplained] = {}
        for core in self.workers.values():
            self._carry_out_worker(core, core.start(self.now))
        self._to_cycle(cycle.Workers({name: core.shards for name, core in self.workers.items()}, shards))
        self.settle()

    def observe(self, event: snapshot.Event) -> None:
        """An event from the watch or a binder."""
        match event:
            case snapshot.PodSeen(pod=pod):
                self._shown[pod.uid] = pod
            case snapshot.PodDeleted(uid=uid):
                self._shown.pop(uid, None)
        self._carry_out_snapshot(self.snapshot.handle(event, self.now))

    def tell_time(self, unix_time: float) -> None:
        """The time of day, as in the snapshot's heartbeats."""
        heartbeat = msgspec.structs.replace(self.snapshot.heartbeat(), at=unix_time)
        for name in self.workers:
            self._send(heartbeat, partial(self._to_worker, name))

    def add_nodes(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            self.observe(snapshot.NodeSeen(node))

    def add_pods(self, pods: Iterable[Pod]) -> None:
        """Pods that are bound or nominated already."""
        for pod in pods:
            self.observe(snapshot.PodSeen(pod))

    def add_objects(self, objects: Iterable[ClusterObject]) -> None:
        """Objects other than nodes and pods."""
        for obj in objects:
            self.observe(snapshot.ObjectSeen(obj))

    def submit(self, pods: Sequence[Pod], seq: int = 0, gang: Gang | None = None) -> None:
        """Pods to schedule, in queue order. `seq`: workers must not evaluate them on an older state. `gang`: of all."""
        for pod in pods:
            if pod.uid not in self._pods:
                self._claim_users.add(pod)
            self._pods[pod.uid] = pod
        self._shown.update((pod.uid, pod) for pod in pods)
        gangs = None if gang is None else dict.fromkeys((pod.uid for pod in pods), gang)
        objects = self.snapshot.cluster.objects.current
        on_nodes = self._claims_on_nodes() if any(pod.spec.volumes for pod in pods) else None
        self._to_cycle(batch_of(pods, seq, gangs, objects, self._claim_users, on_nodes))

    def submit_tree(self, key: str, groups: Sequence[GangGroup], pods: Mapping[int, Sequence[Pod]]) -> None:
        """A gang that is a tree of groups. `pods`: by the number of their group; they have no claims."""
        everyone = [pod for of in pods.values() for pod in of]
        self._pods.update((pod.uid, pod) for pod in everyone)
        self._shown.update((pod.uid, pod) for pod in everyone)
        gangs = {pod.uid: Gang(key, len(everyone), group=number) for number, of in pods.items() for pod in of}
        whole = Gang(key, len(everyone), groups=tuple(groups))
        self._to_cycle(msgspec.structs.replace(batch_of(everyone, gangs=gangs), gangs={key: whole}))

    def _claims_on_nodes(self) -> ClaimsOnNodes:
        used = ClaimsOnNodes()
        for uid, placement in self.snapshot.cluster.pods.items():
            used.put(uid, {f"{placement.load.namespace}/{claim}" for claim in placement.load.claims})
        return used

    def catch_workers_up(self) -> None:
        """Workers see all decisions that are made, also those that no worker waits for."""
        self._send(NeedDeltas(self.cycle.epoch), self.observe)
        self.settle()

    def explain(self, ask: ClassAsk) -> list[tuple[ClassAnswer, Explanation]]:
        """Every worker's current evaluation of a pod, asked and answered as in messages."""
        asked = _as_received(ask)
        explained = [core.explain(asked) for core in self.workers.values()]
        return [(_as_received(answer), explanation) for answer, explanation in explained]

    def explain_pod(self, request: ExplainPod) -> PodExplained:
        """The cycle's answer to this question, asked and answered as in messages."""
        self._questions += 1
        self._to_cycle(cycle.ExplanationAsked(self._questions, copy(request)))
        self.settle()
        return self._explained.pop(self._questions)

    def restart_worker(self, name: str) -> None:
        """A worker crashes and restarts empty."""
        old = self.workers[name]
        core = WorkerCore(name, old.shards, old.shard_count, self._frameworks)
        self.workers[name] = core
        self._carry_out_worker(core, core.start(self.now))

    # Time

    def settle(self, *, most: int = 1_000_000) -> None:
        """Run until no message is in transit and no deadline is left."""
        for _ in range(most):
            if not self.step():
                return
        raise InvariantBroken(f"not settled after {most} steps")

    def step(self) -> bool:
        """Handle the next delivery or deadline; False if there is none."""
        arrived = bool(self._mail) and self._mail[0][0] <= self.now
        due = None if arrived else min((at for at in self._deadlines() if at is not None), default=None)
        if self._mail and (due is None or self._mail[0][0] <= due):
            at, _, deliver = heapq.heappop(self._mail)
            self.now = max(self.now, at)
            deliver()
            return True
        if due is None:
            return False
        self.now = max(self.now, due)
        self._to_cycle(cycle.Tick())
        for name in self.workers:
            self._to_worker(name, worker.Tick())
        if self._binds:
            self._carry_out_snapshot(self.snapshot.handle(snapshot.Tick(), self.now))
        return True

    def _deadlines(self) -> Iterable[float | None]:
        yield self.cycle.next_deadline()
        yield from (core.next_deadline() for core in self.workers.values())
        if self._binds:
            yield self.snapshot.next_deadline()

    # Effects

    def _send(self, message: M, deliver: Callable[[M], None]) -> None:
        for delay in self._fate(message):
            arrive: Callable[[], None] = partial(deliver, copy(message))
            heapq.heappush(self._mail, (self.now + delay, next(self._order), arrive))

    def _carry_out_cycle(self, effects: Iterable[cycle.Effect]) -> None:
        for effect in effects:
            match effect:
                case cycle.Ask(worker=name, message=propose):
                    self._send(propose, partial(self._to_worker, name))
                case cycle.SendCommit(message=commit):
                    self._send(commit, self.observe)
                case cycle.SendDeltas():
                    self._send(NeedDeltas(self.cycle.epoch), self.observe)
                case AskExtenders() | AskForExplanation() | AskAboutVictims():
                    raise InvariantBroken("the cycle called extenders, but none is configured")
                case cycle.Answered(number=number):
                    self._explained[number] = copy(self.cycle.explanations.explained(effect, self.now, float))
                case cycle.WorkerFault(worker=name, reason=reason):
                    raise InvariantBroken(f"{name} is blamed: {reason}")
                case cycle.EndTerm(why=why):
                    raise InvariantBroken(why)
                case cycle.TermConfirmed():
                    pass
                case cycle.Hinted(uid=uid, text=text):
                    self.hints[uid] = text
                case cycle.Record(message=recorded):
                    self._send(recorded, self.recorded.append)
                case outcome:
                    self.outcomes[outcome.uid] = outcome
                    if self._binds:
                        self._on_outcome(outcome)

    def _carry_out_worker(self, core: WorkerCore, effects: Iterable[worker.Effect]) -> None:
        for effect in effects:
            match effect:
                case worker.Reload():
                    state = self.snapshot.state(core.shards, core.shard_count)
                    self._send(state, partial(self._to_worker, core.name))
                case worker.Answer(message=Proposals() | Candidates() | ShardExplained() as answer):
                    self._send(answer, self._to_cycle)

    def _to_cycle(self, message: cycle.Event) -> None:
        self._carry_out_cycle(self.cycle.handle(message, self.now))

    def _to_worker(self, name: str, message: worker.Event) -> None:
        core = self.workers[name]
        self._carry_out_worker(core, core.handle(message, self.now))

    def _carry_out_snapshot(self, effects: Iterable[snapshot.Effect]) -> None:
        for effect in effects:
            match effect:
                case Delta() as delta:
                    for name in self.workers:
                        self._send(delta, partial(self._to_worker, name))
                case Heartbeat() as heartbeat:
                    for name in self.workers:
                        self._send(heartbeat, partial(self._to_worker, name))
                    self._send(heartbeat, self._to_cycle)
                case snapshot.Reply(message=committed):
                    self._send(committed, self._to_cycle)
                case OthersChanged():
                    self._send(effect, self._to_cycle)
                case snapshot.DispatchOrders(attempts=attempts):
                    if self._binds:
                        orders = [order for each in attempts if (order := self.snapshot.order(each, self.now))]
                        self._send(BindingOrders(self.snapshot.epoch, orders), self._bind_all)
                case snapshot.Fence(uid=uid, attempt=attempt):
                    self._look_up(uid, attempt)
                case snapshot.FenceClaims(entry=held):
                    self.observe(snapshot.ClaimsFenced(held.uid, {}))
                case snapshot.Problem(error=error):
                    self.problems.append(error)
                case snapshot.WorkerFault(worker=name, reason=reason):
                    raise InvariantBroken(f"{name} is blamed: {reason}")
                case ForgottenPod() as forgotten:
                    self._on_forgotten(forgotten)
                case Persist() | Evict():
                    pass  # one process: nothing is persisted

    def _bind_all(self, orders: BindingOrders) -> None:
        for order in orders.orders:
            self._bind(order.uid, order.attempt, order.node)

    def _bind(self, uid: str, attempt: int, node: str) -> None:
        self.observe(snapshot.BindingReport(BindingOutcome(uid, attempt)))
        self.observe(snapshot.PodSeen(bound(self._pods[uid], node)))

    def _look_up(self, uid: str, attempt: int) -> None:
        entry = self.snapshot.ledger.get(uid)
        if entry is None:
            self.observe(snapshot.LookedUp(uid, attempt, None, gone=uid not in self._shown))
        else:
            self._bind(uid, attempt, entry.node)

    def _on_outcome(self, outcome: Outcome) -> None:
        """Write a nomination into the pod's status."""
        if isinstance(outcome, cycle.Unschedulable) and outcome.preemption is not None:
            pod, node = self._pods[outcome.uid], outcome.preemption.nominated
            if node is not None and node != pod.status.nominated_node_name:
                self._pods[outcome.uid] = nominated(pod, node)
                self.observe(snapshot.PodSeen(self._pods[outcome.uid]))

    def _on_forgotten(self, forgotten: ForgottenPod) -> None:
        if not forgotten.reason.startswith(POD_GONE):
            self.submit([nominated(self._pods[forgotten.uid], "")])


def bound(pod: Pod, node: str) -> Pod:
    """The pod after its binding."""
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=node))


def _as_received(part: P) -> P:
    """A part of a message, encoded and decoded."""
    return msgspec.msgpack.decode(encode_msgpack(part), type=type(part), dec_hook=dec_hook)
