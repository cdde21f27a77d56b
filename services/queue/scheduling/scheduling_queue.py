"""The scheduling queue: every pod in exactly one state, and the rules by which pods move from state to state."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import floor

import msgspec

from services.queue.group_conditions import GroupConditions
from services.queue.pod_conditions import UnconfirmedConditions
from services.queue.scheduling.claims_ahead import ClaimsAhead
from services.queue.scheduling.cluster_event import ClusterChange, anything, freed_room, pod_events
from services.queue.scheduling.counters import (
    ACTIVATED,
    ADDED,
    ATTEMPT_FAILED,
    BACKOFF_COMPLETE,
    CYCLE_CHANGED,
    DECISION_LOST,
    OVERDUE,
    POPPED_FROM_BACKOFF,
    PREEMPTION_OVER,
    REGROUPED,
    TIME_LIMIT,
    UPDATED,
    Counters,
)
from services.queue.scheduling.group_claims import left_alone
from services.queue.scheduling.in_flight_events import InFlightEvents
from services.queue.scheduling.left_pods import LeftPods
from services.queue.scheduling.nominator import PREEMPTION, Nominator, PendingPreemptions
from services.queue.scheduling.pod_groups import RELEASED, PodGroups
from services.queue.scheduling.pod_queues import BackoffPolicy
from services.queue.scheduling.pod_states import IN_FLIGHT, WAITING, PodStates
from services.queue.scheduling.queue_plugins import QueuePlugins
from services.queue.scheduling.queued_gang import AttemptResult, QueuedGang
from services.queue.scheduling.queued_pod_info import PodState, QueuedPodInfo, RetryHistory, RetryRecord
from services.queue.scheduling.queueing_hints import QueueingHints, QueueStrategy
from shared.deadlines import earliest
from shared.errors import FlotillaError, InvariantBroken
from shared.framework.profile import Framework
from shared.model.objects import Pod
from shared.plugins.devices.queued_claims import ClaimUsers

FLUSH_INTERVAL = 30.0
"""Seconds between two flushes of pods that have been unschedulable for too long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Seconds. `unschedulable`: until a pod is tried again without an event.

    `in_flight`: until a pod is tried again that cycle has, or that is decided and not seen bound.
    """

    unschedulable: float = 300.0
    in_flight: float = 60.0


class SchedulingQueue:
    def __init__(
        self,
        hints: QueueingHints,
        problems: deque[FlotillaError],
        backoff: BackoffPolicy,
        timeouts: Timeouts,
        records: Mapping[str, RetryRecord],
        groups: PodGroups,
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
        self.groups = groups
        self.group_conditions = GroupConditions(self.groups)
        self.given_up: list[Pod] = []
        """Pods that have lost their nominations in the present event; the reader clears it."""
        self._gang_attempts: list[tuple[QueuedGang, str]] = []
        """Gangs, with their profiles, of which something was reported in the present event."""
        self.claim_users = ClaimUsers()
        self.claims_ahead = ClaimsAhead()
        self.events = InFlightEvents(hints)
        self.states = PodStates(self.groups, self.events, self.counters, timeouts.in_flight)
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
        self._enqueue(info, self._after_backoff(info, now), now, ADDED)

    def restore(self, records: Mapping[str, RetryRecord], now: float) -> None:
        """Takes in the retry records of earlier terms. Pods that are queued already are queued again, by them."""
        self.retries.restore(records)
        for uid in [uid for uid in records if uid in self.pods]:
            info = self.pods[uid]
            self.states.move(info, PodState.DONE, now, "its retry record is read")
            self.counters.set_rejectors(info, (), ())
            self.claim_users.remove(info.pod)
            self.add(info.pod, info.framework, info.seen_at, info.body, now)

    def update(self, info: QueuedPodInfo, pod: Pod, body: msgspec.Raw, now: float) -> ClusterChange | None:
        """Takes in a new version of the pod. Returns the event for other pods if it has lost a nomination."""
        old, state = info.pod, info.state
        sort_key = self.plugins.sort_key(info, self.groups.sorted_as(pod))
        with self.states.taken_out(info, now):
            info.update(pod, body)
            info.sort_key = sort_key
        self.claim_users.remove(old)
        self.claim_users.add(pod)
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
                if self._hints.is_awaited(change := ClusterChange(event, old, pod)):
                    self._add_own_event(info, change)
        lost = nominated and nomination_changed
        return freed_room(old, max_priority=self.groups.priority_of(old)) if lost else None

    def _requeue_updated(self, info: QueuedPodInfo, old: Pod, now: float) -> None:
        """Requeues a waiting pod for the first of its own changes that helps it."""
        for event in pod_events(old, info.pod):
            change = ClusterChange(event, old, info.pod)
            if strategy := self._hints.strategy(info, change):
                self._requeue(info, strategy, now, change.label)
            if info.state not in WAITING:
                return

    def delete(self, info: QueuedPodInfo, now: float, why: str) -> None:
        self.states.move(info, PodState.DONE, now, why)
        self.left.record(info)
        self.counters.set_rejectors(info, (), ())
        del self.pods[info.uid]
        self.claim_users.remove(info.pod)
        self.nominator.delete(info.uid)
        self.preemptions.delete(info.uid)
        self.conditions.delete(info.uid)
        self.retries.delete(info.uid)

    def observe_group(self, before: object, after: object, now: float) -> None:
        """Takes in a change of a group or of an assigned pod. The members of a group stand where its priority says."""
        self.groups.observe(before, after)
        for info in self.groups.pods_that_stand_elsewhere(before, after):
            with self.states.taken_out(info, now):
                info.sort_key = self.plugins.sort_key(info, self.groups.sorted_as(info.pod))

    # Attempts

    def peek(self, now: float) -> QueuedPodInfo | None:
        """The first active pod; if none is active, the first that backs off after a rejection, if it may be popped."""
        first = self.states.active.first()
        if first is None and (early_at := self.early_at()) is not None and early_at <= now:
            return self.states.backoff.first()
        return first

    def early_at(self) -> float | None:
        """When the first pod that backs off after a rejection may be popped."""
        first = self.states.backoff.first()
        return None if first is None else self._backoff_policy.early_at(first)

    def pop_together(self, pods: Sequence[QueuedPodInfo], now: float) -> None:
        """Hands the pods of one entry to cycle."""
        gang = pods[0].gang
        if gang is not None:
            gang.begin_attempt(pods)
        for info in pods:
            self._pop(info, now)

    def _pop(self, info: QueuedPodInfo, now: float) -> None:
        if info.state is PodState.BACKOFF:
            self.counters.incoming[PodState.ACTIVE, POPPED_FROM_BACKOFF] += 1
        self.states.in_flight.start(info, now)
        self.states.move(info, PodState.IN_FLIGHT, now, "popped")
        self.counters.set_rejectors(info, (), ())
        self.preemptions.delete(info.uid)
        self.conditions.delete(info.uid)
        info.attempts += 1
        info.active_at = now if info.active_at is None else info.active_at
        info.popped, info.node = info.pod, ""
        info.has_own_event, info.forgotten = False, None

    def hold(self, info: QueuedPodInfo, plugin: str, now: float) -> None:
        """Gates a pod that was about to be popped and needs other members of its group, with those that have come."""
        for member in [info] if info.gang is None else info.gang.in_order():
            self.states.move(member, PodState.GATED, now, plugin, plugin)
            self._give_up_if_short(member)

    def give_up_nomination(self, info: QueuedPodInfo) -> None:
        """Ends the pod's nomination, if it has one, and its preemption."""
        self.preemptions.delete(info.uid)
        if self.nominator.applied(info.pod).status.nominated_node_name:
            self.nominator.nominate(info.uid, "")
            self.given_up.append(info.pod)

    def _give_up_if_short(self, info: QueuedPodInfo) -> None:
        """A member of an incomplete gang reserves no room."""
        if self.groups.is_short(info.pod):
            self.give_up_nomination(info)

    def settle_groups(self, now: float) -> None:
        """Ends an event: members go to the entries where they belong, held ones are released, attempts are counted."""
        for gang, profile in self._gang_attempts:
            if (result := gang.take_result()) is not None:
                self.counters.gang_attempts[result, profile] += 1
        self._gang_attempts.clear()
        while True:
            if misplaced := self.groups.misplaced():
                for info in misplaced:
                    self._put(info, info.state, now, REGROUPED)
            elif released := self.groups.released():
                for info in released:
                    self._requeue(info, QueueStrategy.AFTER_BACKOFF, now, RELEASED)
            else:
                return

    def take_back_in_flight(self, now: float) -> None:
        """Makes the pods of an earlier cycle active, where they were in queue order."""
        for info in list(self.states.in_flight):
            self._enqueue(info, PodState.ACTIVE, now, CYCLE_CHANGED)

    def take_back(self, info: QueuedPodInfo, now: float, why: str = DECISION_LOST) -> None:
        """Makes a decided pod active. If the decision holds after all, the next one is a conflict, and harmless."""
        if info.state is PodState.BINDING:
            self.nominator.take_from_status(info.pod)
        self._enqueue(info, PodState.ACTIVE, now, why)

    def take_back_bindings(self, assumed: frozenset[str], now: float) -> None:
        """Makes decided pods active, except the assumed ones."""
        for info in [info for info in self.states.binding if info.uid not in assumed]:
            self.take_back(info, now)

    def start_binding(self, info: QueuedPodInfo, node: str, now: float, why: str) -> None:
        self.report_of_gang(info, AttemptResult.SCHEDULED)
        self.states.binding.start(info, now)
        self.states.move(info, PodState.BINDING, now, why)
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
        self.counters.set_rejectors(info, tuple(sorted({*plugins})), tuple(sorted({*pending})))
        self.report_of_gang(info, result)
        self._count_failure(info, bool(plugins or pending), now)
        strategy = self.events.strategy(info) if plugins or pending else QueueStrategy.AFTER_BACKOFF
        if strategy:
            self._requeue(info, strategy, now, ATTEMPT_FAILED)
        else:
            self._put(info, PodState.UNSCHEDULABLE, now, ATTEMPT_FAILED)

    def report_of_gang(self, info: QueuedPodInfo, result: AttemptResult) -> None:
        """Takes in what became of a member, if it is one of a gang that was popped together."""
        gang = self.groups.gang_of(info)
        if gang is not None:
            gang.report(result)
            self._gang_attempts.append((gang, info.framework.name))

    # Events

    def move_all(self, change: ClusterChange, now: float) -> None:
        """Requeues the pods that the change helps; in-flight pods are judged by it when they come back."""
        for info in left_alone(self.groups, change):
            self._requeue(info, QueueStrategy.AFTER_BACKOFF, now, change.label)
        if not self._hints.is_awaited(change):
            return
        for waiting in (self.states.unschedulable, self.states.gated):
            for info, strategy in waiting.helped_by(change, self._hints) if len(waiting) else ():
                before = info.state
                if before not in WAITING and strategy is not QueueStrategy.IMMEDIATELY:
                    continue  # it went with another member of its gang
                self._requeue(info, strategy, now, change.label)
                if before is info.state is PodState.GATED:
                    self.counters.incoming[PodState.GATED, change.label] += 1
        self.events.add(change)

    def activate(self, info: QueuedPodInfo, now: float) -> None:
        """Makes the pod active from any state; an in-flight pod is requeued when its attempt ends."""
        if info.state in IN_FLIGHT:
            self._add_own_event(info, ClusterChange(anything().event, why=ACTIVATED, only_uid=info.uid))
        elif info.state in (PodState.BACKOFF, PodState.ERROR_BACKOFF):
            self._put(info, PodState.ACTIVE, now, ACTIVATED)
        elif info.state is not PodState.ACTIVE:
            self._enqueue(info, PodState.ACTIVE, now, ACTIVATED)

    def end_preemption(self, uid: str, now: float) -> None:
        """Opens the gate of a preemptor whose victims have been evicted, if another event helped it meanwhile."""
        info = self.pods.get(uid)
        if info is not None and info.gating_plugin == PREEMPTION:
            self._requeue(info, QueueStrategy.AFTER_BACKOFF, now, PREEMPTION_OVER)

    def retry(self, info: QueuedPodInfo, now: float, why: str = PREEMPTION_OVER) -> None:
        """Requeues a waiting pod after its back-off, though no event helped it."""
        if info.state in WAITING:
            self._requeue(info, QueueStrategy.AFTER_BACKOFF, now, why)

    # Time

    def flush(self, now: float) -> None:
        """Ends back-offs, time limits and deadlines."""
        for heap in (self.states.backoff, self.states.error_backoff):
            while (info := heap.first()) is not None and not info.backs_off(now):
                self._put(info, PodState.ACTIVE, now, BACKOFF_COMPLETE)
        self._flush_unschedulable(now)
        while (uid := self.preemptions.pop_overdue(now)) is not None:
            if (overdue := self.pods.get(uid)) is not None:
                self.activate(overdue, now)  # perhaps no victim was evicted, and then no event would wake it
        while (info := self.states.in_flight.first()) is not None and info.deadline <= now:
            self._enqueue(info, PodState.ACTIVE, now, OVERDUE)
        while (info := self.states.binding.first()) is not None and info.deadline <= now:
            self.take_back(info, now, OVERDUE)

    def _flush_unschedulable(self, now: float) -> None:
        """Gated pods stay gated, but like kube-scheduler's they are an event for in-flight pods."""
        flush = floor(now / FLUSH_INTERVAL) * FLUSH_INTERVAL
        moved = False
        while (info := self.states.unschedulable.first()) is not None and self._flush_time(info) <= flush:
            moved = info.was_flushed = True
            self._requeue(info, QueueStrategy.AFTER_BACKOFF, now, TIME_LIMIT)
        if self._flushed_at is not None and self._flushed_at < flush and len(self.events):
            for info in self.states.gated:
                if self._flush_time(info) <= flush:
                    moved = info.was_flushed = True
        self._flushed_at = flush
        if moved:
            self.events.add(anything(TIME_LIMIT))

    def _flush_time(self, info: QueuedPodInfo) -> float:
        """The first flush after the pod's time limit."""
        return ((info.queued_at + self._unschedulable_timeout) // FLUSH_INTERVAL + 1) * FLUSH_INTERVAL

    def next_deadline(self) -> float | None:
        times = [
            self.preemptions.next_deadline(),
            self.conditions.next_deadline(),
            self.group_conditions.next_deadline(),
        ]
        if self.groups.has_held:
            times += (self.groups.next_deadline(), self.groups.next_first_event())
        times += [
            info.backoff_ends for info in (self.states.backoff.first(), self.states.error_backoff.first()) if info
        ]
        times += [info.deadline for info in (self.states.in_flight.first(), self.states.binding.first()) if info]
        if (oldest := self.states.unschedulable.first()) is not None:
            times.append(self._flush_time(oldest))
        if self._flushed_at is not None and self.states.gated.first() is not None and len(self.events):
            times.append(self._flushed_at + FLUSH_INTERVAL)
        return earliest(*times)

    # Moves

    def _requeue(self, info: QueuedPodInfo, strategy: QueueStrategy, now: float, why: str) -> None:
        immediately = strategy is QueueStrategy.IMMEDIATELY
        self._enqueue(info, PodState.ACTIVE if immediately else self._after_backoff(info, now), now, why)

    def _after_backoff(self, info: QueuedPodInfo, now: float) -> PodState:
        """The state of a pod that waits for no event: active, unless it or its gang backs off."""
        gang = self.groups.gang_of(info)
        if not (gang or info).backs_off(now) and not info.backs_off(now):
            return PodState.ACTIVE
        is_error = info.errors and not info.rejecting_plugins if gang is None else gang.errors
        return PodState.ERROR_BACKOFF if is_error else PodState.BACKOFF

    def _enqueue(self, info: QueuedPodInfo, state: PodState, now: float, why: str) -> None:
        """Moves the pod to active or a back-off if all gates are open; they are not asked again after the back-off."""
        plugin = self._gate(info)
        if plugin is None:
            self._put(info, state, now, why)
            if state is PodState.ACTIVE and why in (ADDED, UPDATED):
                self.nominator.take_from_status(info.pod)
        elif info.state is not PodState.GATED:
            self.states.move(info, PodState.GATED, now, why, plugin)
            self._give_up_if_short(info)
        elif info.gating_plugin != plugin:
            self.states.gated.discard(info)
            self.counters.set_gating_plugin(info, plugin)
            self.states.gated.add(info)
            self.groups.moved(info, now)

    def _put(self, info: QueuedPodInfo, wanted: PodState, now: float, why: str) -> None:
        """Moves the pod to a state in which it waits for its turn.

        If it has one entry with others, all move to the state of both in which they are popped first.
        """
        gang, state = self.groups.gang_of(info), wanted
        others: list[QueuedPodInfo] = []
        if gang is not None:
            if gang is not info.gang and gang.share_history(info):
                info.sort_key = self.plugins.sort_key(info, self.groups.sorted_as(info.pod))
            state = gang.sooner(wanted)
            others = [] if state is gang.state else [each for each in gang.pods.values() if each is not info]
            gang.state = state
        if state is not info.state:
            self.states.move(info, state, now, why)
        elif gang is not info.gang:
            with self.states.taken_out(info, now):
                pass
        for other in others:
            other.was_flushed = info.was_flushed
            gate = self._gate(other) if other.state is PodState.UNSCHEDULABLE else None
            self.states.move(other, state if gate is None else PodState.GATED, now, why, gate)

    def _gate(self, info: QueuedPodInfo) -> str | None:
        """The plugin that gates the pod; one that raises gates it until the next event that may help."""
        if info.uid in self.preemptions and not self.groups.is_short(info.pod):
            info.gate_reason = ""
            return PREEMPTION
        plugin = self.plugins.gate(info)
        if plugin is None:
            plugin = self.claims_ahead.gate(info)
        if plugin is not None:
            return plugin
        status = self.groups.pre_enqueue(info)
        info.gate_reason = status.message
        return None if status.ok else status.plugin

    def _add_own_event(self, info: QueuedPodInfo, change: ClusterChange) -> None:
        info.has_own_event = True
        self.events.add(change)

    def _count_failure(self, info: QueuedPodInfo, rejected: bool, now: float) -> None:
        """Counts a failed attempt, of a gang once, and begins the back-off."""
        info.was_flushed = False
        gang = self.groups.gang_of(info)
        if gang is not None and gang.has_failed(info):
            gang.share_history(info)
            info.sort_key = self.plugins.sort_key(info, self.groups.sorted_as(info.pod))
        else:
            info.rejections, info.errors = (info.rejections + 1, 0) if rejected else (info.rejections, info.errors + 1)
            self._set_queued_at(info, now)
            info.backoff_until = self._backoff_policy.until(info)
            if gang is not None:
                gang.count_failure(info)
        counts = (info.attempts, info.rejections, info.errors)
        self.retries.set(info.uid, RetryRecord(*counts, info.queued_at, info.backoff_until))

    def _set_queued_at(self, info: QueuedPodInfo, at: float) -> None:
        """Behind all pods of its priority that are queued already."""
        self._sequence += 1
        info.queued_at, info.sequence = at, self._sequence
        info.sort_key = self.plugins.sort_key(info, self.groups.sorted_as(info.pod))

    def validate(self) -> None:
        """Every pod is in one container and knows its state, and all counts and indices agree."""
        self.states.validate(self.pods)
        self.groups.validate()
        self.group_conditions.validate()
        self.nominator.validate(self.pods)
        self.preemptions.validate(self.pods)
        self.conditions.validate()
        users = ClaimUsers()
        for info in self.pods.values():
            users.add(info.pod)
        if users != self.claim_users:
            raise InvariantBroken("the pods that name a claim are counted wrongly")
        self.counters.validate(self.pods.values())
