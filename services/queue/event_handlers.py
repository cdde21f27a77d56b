"""Handles what the watch shows: pods to schedule, and events that may help rejected pods."""

from collections.abc import Iterator, Mapping
from itertools import chain

from flotilla.events import Action, Resource
from services.queue import events
from services.queue.pod_conditions import unreadable_notice
from services.queue.scheduling.assigned_pod import AssignedPod
from services.queue.scheduling.cluster_event import ASSIGNED_POD_ADDED, ClusterChange, anything, freed_room, label
from services.queue.scheduling.group_changes import says_the_same
from services.queue.scheduling.in_flight_events import DeferredEvents, Position
from services.queue.scheduling.pod_groups import RELEASED
from services.queue.scheduling.queue_plugins import as_problem
from services.queue.scheduling.queued_gang import AttemptResult
from services.queue.scheduling.queued_pod_info import PodState
from services.queue.scheduling.queueing_hints import QueueingHints
from services.queue.scheduling.scheduling_queue import SchedulingQueue
from shared.errors import InvariantBroken
from shared.framework.clusterevents import ClusterEvent
from shared.framework.profile import Framework
from shared.model.devices import ResourceClaim
from shared.model.objects import Pod, key_of
from shared.plugins.volumes.own_claims import ClaimsOnNodes, volume_claims

CLAIM_ADDED = label(ClusterEvent(Resource.RESOURCE_CLAIM, Action.ADD))
FINISHED_PHASES = frozenset({"Succeeded", "Failed"})


class EventHandlers:
    def __init__(self, frameworks: Mapping[str, Framework], queue: SchedulingQueue, hints: QueueingHints) -> None:
        self._frameworks = frameworks
        self._queue = queue
        self._hints = hints
        self._deferred = DeferredEvents()
        self._at: Position | None = None
        self.claims_on_nodes = ClaimsOnNodes()
        self.unreadable: dict[str, str] = {}

    def handle_all(self, watched: events.WatchEvents, now: float) -> list[events.Effect]:
        """A plugin that raises on one pod does not affect the others that came with it."""
        effects: list[events.Effect] = []
        self._at = watched.at
        try:
            for event in chain.from_iterable(map(self._singly, watched.events)):
                try:
                    effects += self.handle(event, now)
                except InvariantBroken:
                    raise
                except Exception as cause:
                    what = f"Pod {event.pod.key}" if isinstance(event, events.PodPending) else str(event)
                    effects.append(events.Problem(as_problem(f"{what}: cannot be queued", cause)))
        finally:
            self._at = None
        return effects

    def handle(self, event: events.WatchEvent, now: float) -> list[events.Effect]:
        match event:
            case ClusterChange():
                self._note_claims(event)
                self._queue.observe_group(event.told_before, event.told_now, now)
                if self._hints.is_awaited(event) and not says_the_same(event.told_before, event.told_now):
                    self._move_all(event, now)
            case events.PodBound(uid=uid):
                return self._on_left(uid, now, bound=True)
            case events.PodsBound(pods=pods) if self._is_awaited_by_none():
                for pod in pods:
                    self._queue.groups.assigned(pod.uid, pod.parts.group, pod.name, pod.node)
                    self._forget(pod.uid)
                    self._queue.retries.delete(pod.uid)
            case events.PodsBound():
                return [effect for each in self._singly(event) for effect in self.handle(each, now)]
            case events.PodPending():
                return self._on_pending(event, now)
            case events.PodGone(uid=uid, finished=finished):
                if finished:
                    self._queue.groups.finished(uid)
                return self._on_left(uid, now, bound=False)
            case events.PodStale():
                return [event]
            case events.GroupUnreadable(ref=ref, problem=problem):
                self._queue.groups.set_unreadable(ref, problem)
            case events.PodUnreadable():
                return self._on_unreadable(event, now)
        return []

    def _is_awaited_by_none(self) -> bool:
        """Whether no pod waits for an event, nor may one come that is judged by the state before."""
        return self._at is None and not self._queue.pods

    def _singly(self, event: events.WatchEvent) -> Iterator[events.WatchEvent]:
        """The event; of pods on nodes, as events that may help others, unless there are none."""
        if not isinstance(event, events.PodsBound) or self._is_awaited_by_none():
            yield event
            return
        for pod in event.pods:
            yield ClusterChange(ASSIGNED_POD_ADDED, None, pod)
            yield events.PodBound(pod.uid)

    def on_listing_complete(self, at: Position) -> None:
        """Requeues every pod once the snapshot has absorbed the listing: until then pods are judged by older state."""
        self._deferred.add(anything(), at)

    def on_absorbed(self, position: Position, now: float) -> None:
        gated = self._queue.claims_ahead.absorb(position)
        for change in self._deferred.absorb(position):
            self._queue.move_all(change, now)
        for uid in gated:  # those that no hint has let go: they wait for no other event
            info = self._queue.pods.get(uid)
            if info is not None and info.state is PodState.GATED:
                self._queue.retry(info, now, CLAIM_ADDED)

    def _on_pending(self, event: events.PodPending, now: float) -> list[events.Effect]:
        pod = event.pod
        framework = self._frameworks.get(pod.spec.scheduler_name)
        if framework is None:
            self._queue.groups.others.add_foreign(pod)
            return []
        if pod.metadata.deletion_timestamp is not None or pod.status.phase in FINISHED_PHASES:
            return self._on_left(pod.uid, now, bound=False)
        self.unreadable.pop(pod.uid, None)
        info = self._queue.pods.get(pod.uid)
        version = pod.metadata.resource_version
        if info is None:
            self._queue.add(pod, framework, event.seen_at, event.body, now)
        elif version == "" or version != info.pod.metadata.resource_version:
            lost_nomination = self._queue.update(info, pod, event.body, now)
            if lost_nomination is not None:
                self._move_all(lost_nomination, now)
        return []

    def _on_left(self, uid: str, now: float, *, bound: bool) -> list[events.Effect]:
        self._forget(uid)
        info = self._queue.pods.get(uid)
        if info is None:
            self._queue.retries.delete(uid)
            return []
        before, pod, profile, gang = info.state, info.pod, info.framework.name, info.gang
        self._queue.delete(info, now, "bound" if bound else "gone")
        if gang is not None and not bound and (rest := next(iter(gang.pods.values()), None)) is not None:
            self._queue.retry(rest, now, RELEASED)  # the gang asks for less, and may preempt without this member
        if bound and info.attempts:
            self._queue.counters.attempts[AttemptResult.SCHEDULED, profile] += 1
            self._queue.counters.scheduled_after_flush += info.was_flushed
        elif not bound and before is PodState.BINDING:
            self._move_all(freed_room(info.assumed()), now)
        elif not bound and pod.status.nominated_node_name:
            self._move_all(freed_room(pod, max_priority=self._queue.groups.priority_of(pod)), now)
        return [events.PodEnded(uid, pod.key, profile, bound, info.attempts, info.seen_at, info.active_at, now)]

    def _forget(self, uid: str) -> None:
        """A pod that may not be queued does not wait any more."""
        self.unreadable.pop(uid, None)
        self._queue.groups.others.forget(uid)

    def _on_unreadable(self, event: events.PodUnreadable, now: float) -> list[events.Effect]:
        """Notifies the owner once of each problem."""
        if event.scheduler not in self._frameworks:
            return []
        is_known = self.unreadable.get(event.uid) == event.problem
        effects = self._on_left(event.uid, now, bound=False)
        self.unreadable[event.uid] = event.problem
        if not is_known:
            effects.append(unreadable_notice(event))
        return effects

    def _note_claims(self, change: ClusterChange) -> None:
        match change.told_now:
            case ResourceClaim() as claim if change.told_before is None and self._at is not None:
                self._queue.claims_ahead.add(key_of(claim), self._at)
            case None if isinstance(change.told_before, ResourceClaim):
                self._queue.claims_ahead.remove(key_of(change.told_before))
            case AssignedPod(uid=uid, parts=parts):
                self.claims_on_nodes.put(uid, parts.claims)
            case Pod() as pod if pod.spec.node_name:
                self.claims_on_nodes.put(pod.uid, volume_claims(pod))
            case _ if isinstance(change.told_before, Pod | AssignedPod):
                self.claims_on_nodes.put(change.told_before.uid, ())

    def _move_all(self, change: ClusterChange, now: float) -> None:
        """Defers the event until the snapshot has applied the change."""
        if self._at is None or not self._deferred.add(change, self._at):
            self._queue.move_all(change, now)
