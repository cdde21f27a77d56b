"""A pipeline with the queue's core, which hands out pods and receives their outcomes. Victims are evicted."""

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import msgspec

from flotilla.events import Action, Resource
from services.cycle.queue_client import outcome_of
from services.queue import events as queue
from services.queue.core import QueueCore
from services.queue.scheduling.cluster_event import ClusterChange
from services.snapshot import events as snapshot
from shared.framework.clusterevents import ClusterEvent
from shared.framework.loading import load_frameworks
from shared.framework.profile import Framework
from shared.messages.binding import BindingOutcome, Evict, Evicted, Notice
from shared.messages.evaluation import Ties
from shared.messages.queue import Absorbed, Batch, Forgotten, ForgottenPod, Gang, Outcomes, Take
from shared.model.objects import Pod
from testing.inprocess.batches import nominated, pods_in, terminating
from testing.inprocess.pipeline import Fate, Outcome, Pipeline, reliable

LEFT = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)
MOST = 256
PREEMPTION = "DefaultPreemption"


class QueuePipeline(Pipeline):
    """The queue's notices write nominations into pods' statuses, as binders do.

    Victims terminate at once and are gone after `grace` seconds.
    """

    def __init__(
        self,
        frameworks: Mapping[str, Framework] | None = None,
        *,
        shards: int = 1,
        round_size: int = 256,
        ties: Ties | None = None,
        fate: Fate = reliable,
        grace: float = 1.0,
    ) -> None:
        frameworks = load_frameworks(None) if frameworks is None else frameworks
        self.queue = QueueCore(frameworks)
        self._taken = self._reported = self._versions = 0
        self._takes = False
        self._grace = grace
        super().__init__(frameworks, shards=shards, round_size=round_size, ties=ties, fate=fate)

    def observe(self, event: snapshot.Event) -> None:
        super().observe(event)
        if isinstance(event, snapshot.PodDeleted):
            self._tell_queue(queue.WatchEvents([queue.PodGone(event.uid)]))

    def submit(self, pods: Sequence[Pod], seq: int = 0, gang: Gang | None = None) -> None:
        """Add new pods to the queue, which decides their order and which of them are gangs."""
        self._tell_queue(queue.WatchEvents([self._pending(pod) for pod in pods]))

    def run_for(self, seconds: float) -> None:
        """Run for a while: the queue always has deadlines, so the pipeline never settles."""
        end = self.now + seconds
        while self.now < end and self.step():
            pass

    def _pending(self, pod: Pod) -> queue.PodPending:
        self._versions += 1
        metadata = msgspec.structs.replace(pod.metadata, resource_version=str(self._versions))
        pod = msgspec.structs.replace(pod, metadata=metadata)
        self._pods[pod.uid] = self._shown[pod.uid] = pod
        return queue.PodPending(pod, self.now)

    # The queue

    def _tell_queue(self, *events: queue.Event) -> None:
        """Tell the queue which state the snapshot has applied, then the events; ask for pods if there are any."""
        epoch, seq = self.snapshot.epoch, self.snapshot.seq
        for event in (Absorbed(epoch, seq, 0, 0), *events):
            self._carry_out_queue(self.queue.handle(event, self.now))
        contents = self.queue.contents()
        if not self._takes and (contents.active or contents.backoff):
            self._takes = True
            self._taken += 1
            self._carry_out_queue(self.queue.handle(Take(self.cycle.epoch, self._taken, MOST), self.now))

    def _carry_out_queue(self, effects: Iterable[queue.Effect]) -> None:
        for effect in effects:
            match effect:
                case queue.SendBatch(batch=batch):
                    self._takes = False
                    if batch.pods:
                        self._later(0.0, partial(self._hand_out, batch))
                case Notice() as notice if notice.nominated is not None and notice.uid in self._shown:
                    pending = self._pending(nominated(self._pods[notice.uid], notice.nominated))
                    self.observe(snapshot.PodSeen(pending.pod))
                    self._later(0.0, partial(self._tell_queue, pending))

    def _hand_out(self, batch: Batch) -> None:
        self._pods.update((pod.uid, pod) for pod in pods_in(batch))
        self._carry_out_cycle(self.cycle.handle(batch, self.now))
        self._tell_queue()

    def _on_outcome(self, outcome: Outcome) -> None:
        self._reported += 1
        reported = outcome_of(outcome, bool(self._pods[outcome.uid].status.nominated_node_name))
        self._tell_queue(Outcomes(self.cycle.epoch, self._reported, [reported]))

    def _on_forgotten(self, forgotten: ForgottenPod) -> None:
        self._tell_queue(Forgotten(self.snapshot.epoch, [forgotten]))

    def _bind(self, uid: str, attempt: int, node: str) -> None:
        super()._bind(uid, attempt, node)
        self._tell_queue(queue.WatchEvents([queue.PodBound(uid)]))

    # Making way

    def _carry_out_snapshot(self, effects: Iterable[snapshot.Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Evict):
                self._send(effect, self._evict)
            else:
                super()._carry_out_snapshot([effect])

    def _evict(self, evict: Evict) -> None:
        for loser in evict.denominated:
            if loser.uid in self._shown and not self._shown[loser.uid].spec.node_name:
                pending = self._pending(nominated(self._pods[loser.uid], ""))
                self.observe(snapshot.PodSeen(pending.pod))
                self._tell_queue(queue.WatchEvents([pending]))
        for victim in evict.victims:
            pod = self._shown.get(victim.uid)
            if pod is None or pod.metadata.deletion_timestamp is not None:
                continue
            if pod.spec.node_name:
                self.observe(snapshot.PodSeen(terminating(pod, str(self.now))))
                self._later(self._grace, partial(self._go, victim.uid))
            elif victim.attempt:
                version = pod.metadata.resource_version
                failed = BindingOutcome(victim.uid, victim.attempt, "preempted", PREEMPTION, True, version=version)
                self.observe(snapshot.BindingReport(failed))
        self._send(Evicted(evict.uid, evict.attempt), self._tell_queue)

    def _go(self, uid: str) -> None:
        pod = self._shown.get(uid)
        if pod is not None:
            self.observe(snapshot.PodDeleted(uid))
            self._tell_queue(queue.WatchEvents([ClusterChange(LEFT, pod)]))

    # Time

    def _later(self, delay: float, happen: Callable[[], None]) -> None:
        heapq.heappush(self._mail, (self.now + delay, next(self._order), happen))

    def _deadlines(self) -> Iterable[float | None]:
        yield from super()._deadlines()
        yield self.queue.next_deadline()

    def step(self) -> bool:
        went_on = super().step()
        due = self.queue.next_deadline()
        if due is not None and due <= self.now:
            self._tell_queue(queue.Tick())
        return went_on
