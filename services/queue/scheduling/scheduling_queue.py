"""The scheduling queue: every pod in exactly one state, and the rules by which pods move from state to state."""

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import count
from math import floor

import msgspec

from services.queue.group_conditions import GroupConditions
from services.queue.pod_conditions import UnconfirmedConditions
from services.queue.scheduling.cluster_event import ClusterChange, anything, freed_room, pod_events
from services.queue.scheduling.in_flight_events import InFlightEvents
from services.queue.scheduling.left_pods import LeftPods
from services.queue.scheduling.nominator import PREEMPTION, Nominator, PendingPreemptions
from services.queue.scheduling.pod_groups import RELEASED, PodGroups
from services.queue.scheduling.pod_queues import BackoffPolicy, DeadlineQueue, PodContainer, PodHeap, UnschedulablePods
from services.queue.scheduling.queue_plugins import QueuePlugins
from services.queue.scheduling.queued_pod_info import TRANSITIONS, PodState, QueuedPodInfo, RetryHistory, RetryRecord
from services.queue.scheduling.queueing_hints import QueueingHints, QueueStrategy
from shared.errors import FlotillaError, InvariantBroken
from shared.framework.profile import Framework
from shared.model.objects import Pod, PodGroup
from shared.plugins.devices.queued_claims import ClaimUsers

FLUSH_INTERVAL = 30.0
"""Seconds between two flushes of pods that have been unschedulable for too long."""
IN_FLIGHT = frozenset({PodState.IN_FLIGHT, PodState.BINDING})
"""With cycle or a binder: events are collected until the pod comes back."""
WAITING = frozenset({PodState.UNSCHEDULABLE, PodState.GATED})

# Reasons for moves, as kube-scheduler's metrics call them; the last four are our own.
ADDED = "UnschedulablePodAdd"
UPDATED = "UnschedulablePodUpdate"
ATTEMPT_FAILED = "ScheduleAttemptFailure"
BACKOFF_COMPLETE = "BackoffComplete"
POPPED_FROM_BACKOFF = "PopFromBackoffQ"
TIME_LIMIT = "UnschedulableTimeout"
ACTIVATED = "ForceActivate"
OVERDUE = "Overdue"
CYCLE_CHANGED = "CycleChanged"
DECISION_LOST = "DecisionLost"
PREEMPTION_OVER = "PreemptionOver"


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Seconds. `unschedulable`: until a pod is tried again without an event.

    `in_flight`: until a pod is tried again that cycle has, or that is decided and not seen bound.
    """

    unschedulable: float = 300.0
    in_flight: float = 60.0


class AttemptResult(StrEnum):
    SCHEDULED = "scheduled"
    UNSCHEDULABLE = "unschedulable"
    ERROR = "error"


class Counters:
    """Sums since the start, for metrics."""

    def __init__(self) -> None:
        self.incoming: Counter[tuple[PodState, str]] = Counter()
        """By state and reason, the pods that came."""
        self.attempts: Counter[tuple[AttemptResult, str]] = Counter()
        """By result and profile."""
        self.rejecting: Counter[tuple[str, str]] = Counter()
        """By plugin and profile, the pods that it rejected and that have not been tried since."""
        self.scheduled_after_flush = 0
        self.refused = 0
        """Messages that were not accepted."""


class SchedulingQueue:
    def __init__(
        self,
        hints: QueueingHints,
        problems: deque[FlotillaError],
        backoff: BackoffPolicy,
        timeouts: Timeouts,
        records: Mapping[str, RetryRecord],
        stopwatch: Callable[[], float] | None = None,
    ) -> None:
        """`records`: of pods whose last attempt failed before a restart."""
        self.pods: dict[str, QueuedPodInfo] = {}
        self.counters = Counters()
        self.retries = RetryHistory(records)
        self.nominator = Nominator()
        self.preemptions = PendingPreemptions()
        self.conditions = UnconfirmedConditions()
        self.left = LeftPods()
        self.groups = PodGroups()
        self.group_conditions = GroupConditions(self.groups)
        self.claim_users = ClaimUsers()
        self.events = InFlightEvents(hints)
        numbers = count(1)
        self._active = PodHeap(lambda info: info.sort_key, numbers)
        self._backoff = PodHeap(lambda info: (info.backoff_until, info.sort_key), numbers)
        self._error_backoff = PodHeap(lambda info: (info.backoff_until, info.sort_key), numbers)
        self._unschedulable = UnschedulablePods()
        self._gated = UnschedulablePods()
        self._in_flight = DeadlineQueue(timeouts.in_flight)
        self._binding = DeadlineQueue(timeouts.in_flight)
        self.by_state: Mapping[PodState, PodContainer] = {
            PodState.ACTIVE: self._active,
            PodState.BACKOFF: self._backoff,
            PodState.ERROR_BACKOFF: self._error_backoff,
            PodState.UNSCHEDULABLE: self._unschedulable,
            PodState.GATED: self._gated,
            PodState.IN_FLIGHT: self._in_flight,
            PodState.BINDING: self._binding,
        }
        self._hints = hints
        self.plugins = QueuePlugins(hints.objects, problems, stopwatch)
        self._backoff_policy = backoff
        self._unschedulable_timeout = timeouts.unschedulable
        self._sequence = 0
        self._flushed_at: float | None = None

    # Pods

    def add(self, pod: Pod, framework: Framework, seen_at: float, body: msgspec.Raw, now: float) -> None:
        info = QueuedPodInfo(pod.uid, pod, framework, seen_at, body)
        self.conditions.delete(pod.uid)
        record = self.retries.get(pod.uid)
        self._set_queued_at(info, seen_at if record is None else record.queued_at)
        self.pods[pod.uid] = info
        self.claim_users.add(pod)
        if record is not None:
            self.nominator.take_from_status(pod)
            info.attempts, info.rejections, info.errors = record.attempts, record.rejections, record.errors
            info.backoff_until = self._backoff_policy.restored(record.backoff_until, now)
        backoff = PodState.ERROR_BACKOFF if info.errors else PodState.BACKOFF
        self._enqueue(info, backoff if info.backs_off(now) else PodState.ACTIVE, now, ADDED)

    def restore(self, records: Mapping[str, RetryRecord], now: float) -> None:
        """Takes in the retry records of earlier terms. Pods that are queued already are queued again, by them."""
        self.retries.restore(records)
        for uid in [uid for uid in records if uid in self.pods]:
            info = self.pods[uid]
            self.move(info, PodState.DONE, now, "its retry record is read")
            self._set_rejectors(info, (), ())
            self.claim_users.remove(info.pod)
            self.add(info.pod, info.framework, info.seen_at, info.body, now)

    def update(self, info: QueuedPodInfo, pod: Pod, body: msgspec.Raw, now: float) -> ClusterChange | None:
        """Takes in a new version of the pod. Returns the event for other pods if it has lost a nomination."""
        old, state = info.pod, info.state
        sort_key = self.plugins.sort_key(info, self.groups.sorted_as(pod))
        if state in WAITING:
            self.by_state[state].discard(info)
        info.update(pod, body)
        self.claim_users.remove(old)
        self.claim_users.add(pod)
        info.sort_key = sort_key
        if state in WAITING:
            self.by_state[state].add(info)
        elif isinstance(heap := self.by_state[state], PodHeap):
            heap.update(info)
        self.groups.moved(info, now)
        if state is PodState.BINDING:
            return None
        nominated = old.status.nominated_node_name
        nomination_changed = nominated != pod.status.nominated_node_name
        if state is not PodState.IN_FLIGHT:
            self.nominator.update(old, pod)
        elif nomination_changed:  # until the attempt ends with another one
            self.nominator.take_from_status(pod)
        if state in WAITING:
            self._requeue_updated(info, old, now)
        elif state is PodState.IN_FLIGHT:
            for event in pod_events(old, pod):
                if self._hints.is_awaited(event):
                    self._add_own_event(info, ClusterChange(event, old, pod))
        return freed_room(old, max_priority=old.priority) if nominated and nomination_changed else None

    def _requeue_updated(self, info: QueuedPodInfo, old: Pod, now: float) -> None:
        """Requeues a waiting pod for the first of its own changes that helps it."""
        for event in pod_events(old, info.pod):
            change = ClusterChange(event, old, info.pod)
            if strategy := self._hints.strategy(info, change):
                self._requeue(info, strategy, now, change.label)
            if info.state not in WAITING:
                return

    def delete(self, info: QueuedPodInfo, now: float, why: str) -> None:
        self.move(info, PodState.DONE, now, why)
        self.left.record(info)
        self._set_rejectors(info, (), ())
        del self.pods[info.uid]
        self.claim_users.remove(info.pod)
        self.nominator.delete(info.uid)
        self.preemptions.delete(info.uid)
        self.conditions.delete(info.uid)
        self.retries.delete(info.uid)

    def observe_group(self, before: object, now: object) -> None:
        """Takes in a change of a group or of an assigned pod. The members of a group stand where its priority says."""
        self.groups.observe(before, now)
        if not isinstance(now, PodGroup) or (isinstance(before, PodGroup) and before.priority == now.priority):
            return
        group = self.groups.get(now.ref)
        for info in [] if group is None or (now.priority is None and before is None) else list(group.pods.values()):
            self._rekey(info)

    def _rekey(self, info: QueuedPodInfo) -> None:
        container = self.by_state[info.state]
        if info.state in WAITING:
            container.discard(info)
        info.sort_key = self.plugins.sort_key(info, self.groups.sorted_as(info.pod))
        if info.state in WAITING:
            container.add(info)
        elif isinstance(container, PodHeap):
            container.update(info)

    # Attempts

    def peek(self) -> QueuedPodInfo | None:
        """The first active pod; if none is active, the first that backs off after a rejection."""
        return self._active.first() or self._backoff.first()

    def pop(self, info: QueuedPodInfo, now: float) -> None:
        """Hands the pod to cycle."""
        if info.state is not PodState.ACTIVE:
            why = POPPED_FROM_BACKOFF if info.state is PodState.BACKOFF else ACTIVATED
            self.counters.incoming[PodState.ACTIVE, why] += 1
        self._in_flight.start(info, now)
        self.move(info, PodState.IN_FLIGHT, now, "popped")
        self._set_rejectors(info, (), ())
        self.preemptions.delete(info.uid)
        self.conditions.delete(info.uid)
        info.attempts += 1
        info.active_at = now if info.active_at is None else info.active_at
        info.popped, info.node = info.pod, ""
        info.has_own_event, info.forgotten = False, None

    def hold(self, info: QueuedPodInfo, plugin: str, now: float) -> None:
        """Gates a pod that was about to be popped and needs other members of its group."""
        self.move(info, PodState.GATED, now, plugin, plugin)

    def release_groups(self, now: float) -> None:
        while released := self.groups.released():
            for info in released:
                self._requeue(info, QueueStrategy.AFTER_BACKOFF, now, RELEASED)

    def take_back_in_flight(self, now: float) -> None:
        """Makes the pods of an earlier cycle active, where they were in queue order."""
        for info in list(self._in_flight):
            self._enqueue(info, PodState.ACTIVE, now, CYCLE_CHANGED)

    def take_back(self, info: QueuedPodInfo, now: float, why: str = DECISION_LOST) -> None:
        """Makes a decided pod active. If the decision holds after all, the next one is a conflict, and harmless."""
        if info.state is PodState.BINDING:
            self.nominator.take_from_status(info.pod)
        self._enqueue(info, PodState.ACTIVE, now, why)

    def take_back_bindings(self, assumed: frozenset[str], now: float) -> None:
        """Makes decided pods active, except the assumed ones."""
        for info in [info for info in self._binding if info.uid not in assumed]:
            self.take_back(info, now)

    def start_binding(self, info: QueuedPodInfo, node: str, now: float, why: str) -> None:
        self._binding.start(info, now)
        self.move(info, PodState.BINDING, now, why)
        self.nominator.delete(info.uid)
        self.conditions.delete(info.uid)
        info.node = node

    def end_attempt(
        self,
        info: QueuedPodInfo,
        result: AttemptResult,
        message: str,
        now: float,
        plugins: Sequence[str] = (),
        pending: Sequence[str] = (),
    ) -> None:
        """Requeues a pod whose attempt failed, or leaves it unschedulable if no event since it was popped helps it.

        A pod that no plugin rejected backs off as after an error: no event would wake it.
        """
        info.last_failure, info.failed_at = message, now
        self.counters.attempts[result, info.framework.name] += 1
        self._set_rejectors(info, tuple(sorted({*plugins})), tuple(sorted({*pending})))
        if plugins or pending:
            info.rejections += 1
            info.errors = 0
        else:
            info.errors += 1
        self._start_backoff(info, now)
        strategy = self.events.strategy(info) if plugins or pending else QueueStrategy.AFTER_BACKOFF
        if strategy:
            self._requeue(info, strategy, now, ATTEMPT_FAILED)
        else:
            self.move(info, PodState.UNSCHEDULABLE, now, ATTEMPT_FAILED)

    # Events

    def move_all(self, change: ClusterChange, now: float) -> None:
        """Requeues the pods that the change helps; in-flight pods are judged by it when they come back."""
        if not self._hints.is_awaited(change.event):
            return
        for waiting in (self._unschedulable, self._gated):
            for info, strategy in waiting.helped_by(change, self._hints) if len(waiting) else ():
                before = info.state
                self._requeue(info, strategy, now, change.label)
                if before is info.state is PodState.GATED:
                    self.counters.incoming[PodState.GATED, change.label] += 1
        self.events.add(change)

    def activate(self, info: QueuedPodInfo, now: float) -> None:
        """Makes the pod active from any state; an in-flight pod is requeued when its attempt ends."""
        if info.state in IN_FLIGHT:
            self._add_own_event(info, ClusterChange(anything().event, why=ACTIVATED, only_uid=info.uid))
        elif info.state in (PodState.BACKOFF, PodState.ERROR_BACKOFF):
            self.move(info, PodState.ACTIVE, now, ACTIVATED)
        elif info.state is not PodState.ACTIVE:
            self._enqueue(info, PodState.ACTIVE, now, ACTIVATED)

    def end_preemption(self, uid: str, now: float) -> None:
        """Opens the gate of a preemptor whose victims have been evicted, if another event helped it meanwhile."""
        info = self.pods.get(uid)
        if info is not None and info.gating_plugin == PREEMPTION:
            self._requeue(info, QueueStrategy.AFTER_BACKOFF, now, PREEMPTION_OVER)

    # Time

    def flush(self, now: float) -> None:
        """Ends back-offs, time limits and deadlines."""
        for heap in (self._backoff, self._error_backoff):
            while (info := heap.first()) is not None and not info.backs_off(now):
                self.move(info, PodState.ACTIVE, now, BACKOFF_COMPLETE)
        self._flush_unschedulable(now)
        while (uid := self.preemptions.pop_overdue(now)) is not None:
            if (overdue := self.pods.get(uid)) is not None:
                self.activate(overdue, now)  # perhaps no victim was evicted, and then no event would wake it
        while (info := self._in_flight.first()) is not None and info.deadline <= now:
            self._enqueue(info, PodState.ACTIVE, now, OVERDUE)
        while (info := self._binding.first()) is not None and info.deadline <= now:
            self.take_back(info, now, OVERDUE)

    def _flush_unschedulable(self, now: float) -> None:
        """Gated pods stay gated, but like kube-scheduler's they are an event for in-flight pods."""
        flush = floor(now / FLUSH_INTERVAL) * FLUSH_INTERVAL
        moved = False
        while (info := self._unschedulable.first()) is not None and self._flush_time(info) <= flush:
            moved = info.was_flushed = True
            self._requeue(info, QueueStrategy.AFTER_BACKOFF, now, TIME_LIMIT)
        if len(self.events) and self._flushed_at is not None and self._flushed_at < flush:
            for info in self._gated:
                if self._flush_time(info) <= flush:
                    moved = info.was_flushed = True
        self._flushed_at = flush
        if moved:
            self.events.add(anything(TIME_LIMIT))

    def _flush_time(self, info: QueuedPodInfo) -> float:
        """The first flush after the pod's time limit."""
        return ((info.queued_at + self._unschedulable_timeout) // FLUSH_INTERVAL + 1) * FLUSH_INTERVAL

    def next_deadline(self) -> float | None:
        times = [self.preemptions.next_deadline(), self.conditions.next_deadline()]
        times += [self.groups.next_deadline(), self.groups.next_first_event(), self.group_conditions.next_deadline()]
        times += [info.backoff_ends for info in (self._backoff.first(), self._error_backoff.first()) if info]
        times += [info.deadline for info in (self._in_flight.first(), self._binding.first()) if info]
        if (oldest := self._unschedulable.first()) is not None:
            times.append(self._flush_time(oldest))
        if len(self.events) and len(self._gated) and self._flushed_at is not None:
            times.append(self._flushed_at + FLUSH_INTERVAL)
        return min((time for time in times if time is not None), default=None)

    # Moves

    def move(
        self, info: QueuedPodInfo, state: PodState, now: float, why: str, gating_plugin: str | None = None
    ) -> None:
        """The one way from state to state, along TRANSITIONS."""
        before = info.state
        if state not in TRANSITIONS[before]:
            raise InvariantBroken(f"pod {info.pod.key}: {before} to {state} ({why}); before: {info.history()}")
        if before is not PodState.NEW:
            self.by_state[before].discard(info)
        if gating_plugin is not None or info.gating_plugin is not None:
            self._set_gating_plugin(info, gating_plugin)
        if (before in IN_FLIGHT) is not (state in IN_FLIGHT):
            self.events.end(info.uid) if before in IN_FLIGHT else self.events.start(info.uid)
        info.state = state
        info.record(now, state, why)
        if before is PodState.NEW or info.uid in self.groups:
            self.groups.moved(info, now)
        if state is PodState.DONE:
            return
        if state is PodState.ACTIVE and info.active_at is None:
            info.active_at = now
        self.counters.incoming[state, why] += 1
        self.by_state[state].add(info)

    def _requeue(self, info: QueuedPodInfo, strategy: QueueStrategy, now: float, why: str) -> None:
        if strategy is QueueStrategy.IMMEDIATELY or not info.backs_off(now):
            self._enqueue(info, PodState.ACTIVE, now, why)
        else:
            rejected = info.unschedulable_plugins or info.pending_plugins
            self._enqueue(info, PodState.BACKOFF if rejected else PodState.ERROR_BACKOFF, now, why)

    def _enqueue(self, info: QueuedPodInfo, state: PodState, now: float, why: str) -> None:
        """Moves the pod to active or a back-off if all gates are open; they are not asked again after the back-off."""
        plugin = self._gate(info)
        if plugin is None:
            self.move(info, state, now, why)
            if state is PodState.ACTIVE and why in (ADDED, UPDATED):
                self.nominator.take_from_status(info.pod)
        elif info.state is not PodState.GATED:
            self.move(info, PodState.GATED, now, why, plugin)
        elif info.gating_plugin != plugin:
            self._gated.discard(info)
            self._set_gating_plugin(info, plugin)
            self._gated.add(info)
            self.groups.moved(info, now)

    def _gate(self, info: QueuedPodInfo) -> str | None:
        """The plugin that gates the pod; one that raises gates it until the next event that may help."""
        if info.uid in self.preemptions:
            info.gate_reason = ""
            return PREEMPTION
        plugin = self.plugins.gate(info)
        if plugin is not None:
            return plugin
        status = self.groups.pre_enqueue(info)
        info.gate_reason = status.message
        return None if status.ok else status.plugin

    def _set_gating_plugin(self, info: QueuedPodInfo, plugin: str | None) -> None:
        """The gating plugin counts as one that rejected the pod, also after its gate has opened."""
        info.gating_plugin = plugin
        if plugin and plugin not in info.unschedulable_plugins:
            if plugin not in info.pending_plugins:
                self.counters.rejecting[plugin, info.framework.name] += 1
            info.unschedulable_plugins = (*info.unschedulable_plugins, plugin)

    def _set_rejectors(self, info: QueuedPodInfo, plugins: tuple[str, ...], pending: tuple[str, ...]) -> None:
        for plugin in info.rejecting_plugins:
            self.counters.rejecting[plugin, info.framework.name] -= 1
        info.unschedulable_plugins, info.pending_plugins = plugins, pending
        for plugin in info.rejecting_plugins:
            self.counters.rejecting[plugin, info.framework.name] += 1

    def _add_own_event(self, info: QueuedPodInfo, change: ClusterChange) -> None:
        info.has_own_event = True
        self.events.add(change)

    def _start_backoff(self, info: QueuedPodInfo, now: float) -> None:
        info.was_flushed = False
        self._set_queued_at(info, now)
        info.backoff_until = self._backoff_policy.until(info)
        counts = (info.attempts, info.rejections, info.errors)
        self.retries.set(info.uid, RetryRecord(*counts, info.queued_at, info.backoff_until))

    def _set_queued_at(self, info: QueuedPodInfo, at: float) -> None:
        """Behind all pods of its priority that are queued already."""
        self._sequence += 1
        info.queued_at, info.sequence = at, self._sequence
        info.sort_key = self.plugins.sort_key(info, self.groups.sorted_as(info.pod))

    def validate(self) -> None:
        """Every pod is in one container and knows its state, and all counts and indices agree."""
        for state, container in self.by_state.items():
            container.validate()
            pods = list(container)
            if len(pods) != len(container):
                raise InvariantBroken(f"{len(pods)} pods are {state}, counted as {len(container)}")
            for info in pods:
                if info.state is not state or self.pods.get(info.uid) is not info:
                    raise InvariantBroken(f"pod {info.pod.key} is in the container of {state}: {info.history()}")
                if (info.gating_plugin is not None) != (state is PodState.GATED):
                    raise InvariantBroken(f"pod {info.pod.key}: {state}, gate {info.gating_plugin}: {info.history()}")
        if sum(map(len, self.by_state.values())) != len(self.pods):
            raise InvariantBroken(f"{len(self.pods)} pods are known, but not as many are in the containers")
        self.groups.validate()
        self.group_conditions.validate()
        self.events.validate({info.uid for state in IN_FLIGHT for info in self.by_state[state]})
        self.nominator.validate(self.pods)
        self.preemptions.validate(self.pods)
        self.conditions.validate()
        users = ClaimUsers()
        for info in self.pods.values():
            users.add(info.pod)
        if users != self.claim_users:
            raise InvariantBroken("the pods that name a claim are counted wrongly")
        due = Counter((plugin, info.framework.name) for info in self.pods.values() for plugin in info.rejecting_plugins)
        if +self.counters.rejecting != due or min(self.counters.rejecting.values(), default=0) < 0:
            raise InvariantBroken("pods are counted wrongly by the plugins that rejected them")
