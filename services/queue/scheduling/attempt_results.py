"""What cycle, the snapshot and binders report on pods that were handed out, and the dialogue with cycle."""

from collections.abc import Sequence

from msgspec.structs import replace

from services.queue.events import Effect
from services.queue.pod_conditions import (
    ERROR_REASON,
    binding_rejected_notice,
    claim_releases,
    failure_notice,
    hint_notice,
    nomination_cleared_notice,
)
from services.queue.scheduling.cluster_event import freed_devices, freed_room
from services.queue.scheduling.counters import PREEMPTION_OVER
from services.queue.scheduling.group_claims import waiting_pods
from services.queue.scheduling.nominator import Eviction
from services.queue.scheduling.queued_gang import AttemptResult
from services.queue.scheduling.queued_pod_info import PodState, QueuedPodInfo
from services.queue.scheduling.scheduling_queue import SchedulingQueue
from shared.cluster.objects import ClusterObjects
from shared.devices.pod_claims import may_claim
from shared.errors import ProtocolError
from shared.messages.binding import Evicted
from shared.messages.queue import POD_GONE, Batch, ForgottenPod, Hint, Outcome, Take, Verdict
from shared.model.objects import group_of
from shared.terms import Heard, Newest

_HINTED = frozenset({PodState.UNSCHEDULABLE, PodState.BACKOFF})


class CycleSession:
    """The messages of the cycle of one epoch: its last batch, its waiting Take, the Outcomes it has sent."""

    def __init__(self) -> None:
        self.begin(0)

    def begin(self, epoch: int) -> None:
        self.epoch = epoch
        self.last_batch: Batch | None = None
        self.waiting: Take | None = None
        self.wait_ends = 0.0
        self._outcomes = Newest(0)
        """Number of the last Outcomes."""

    def repeated(self, take: Take) -> Batch | None:
        """The batch that this Take was answered with before. Raises ProtocolError if the Take is old or malformed."""
        if take.most < 1:
            raise ProtocolError(f"take {take.number} of epoch {take.epoch}: most: must be at least 1, not {take.most}")
        if self.last_batch is not None and take.number == self.last_batch.number:
            return self.last_batch
        known = [message.number for message in (self.last_batch, self.waiting) if message is not None]
        if take.number < (newest := max(known, default=take.number)):
            raise ProtocolError(f"take {take.number} of epoch {take.epoch}: number: {newest} has come already")
        return None

    def is_first(self, take: Take) -> bool:
        """Whether this Take arrives for the first time, unless it is `repeated`."""
        return self.waiting is None or take.number != self.waiting.number

    def wait(self, take: Take, until: float) -> None:
        self.waiting, self.wait_ends = take, until

    def answer(self, batch: Batch) -> None:
        self.last_batch, self.waiting = batch, None

    def is_new(self, number: int, now: float) -> bool:
        """Whether the Outcomes of this number arrive for the first time. Raises ProtocolError if they are old."""
        before = self._outcomes.position
        heard = self._outcomes.hear(number, now)
        if heard is Heard.OLD:
            raise ProtocolError(f"outcomes {number} of epoch {self.epoch}: number: {before} has come already")
        return number != before


class AttemptResults:
    def __init__(self, queue: SchedulingQueue, objects: ClusterObjects) -> None:
        self._queue = queue
        self._objects = objects

    def on_outcome(self, outcome: Outcome, snapshot_epoch: int, now: float) -> list[Effect]:
        queue, info = self._queue, self._queue.pods.get(outcome.uid)
        if info is None:
            return []
        if outcome.verdict in (Verdict.DECIDED, Verdict.SUPERSEDED):
            self._on_decided(info, outcome, snapshot_epoch, now)
            return []
        if info.state is not PodState.IN_FLIGHT:
            return self._on_late_rejection(info, outcome)
        queue.group_conditions.failed(info.pod, outcome)
        notice = failure_notice(info.pod, outcome, queue.nominator.unshown(info.pod))
        if outcome.deallocate or outcome.delete:
            waiting = waiting_pods(queue.groups, info.pod)
            releases = claim_releases(info.pod, outcome, self._objects.devices.claims, waiting)
            notice = replace(notice, releases=releases)
        preemption_failed = (
            outcome.preemption != 0 and queue.preemptions.start(info.uid, outcome.preemption, now) is Eviction.FAILED
        )
        if outcome.verdict is Verdict.UNSCHEDULABLE:
            queue.end_attempt(info, AttemptResult.UNSCHEDULABLE, outcome.message, now, outcome.plugins, outcome.pending)
        else:
            queue.end_attempt(info, AttemptResult.ERROR, outcome.message, now)
        if outcome.nominated is not None:
            self._nominate(info, outcome.nominated, now)
            if outcome.nominated:
                queue.report_of_gang(info, AttemptResult.WAITING_ON_PREEMPTION)
        if preemption_failed:
            self._on_failed_eviction(info, now)
        return [notice]

    def on_hints(self, hints: Sequence[Hint]) -> list[Effect]:
        """For pods that still wait."""
        found = ((self._queue.pods.get(hint.uid), hint.text) for hint in hints)
        return [hint_notice(info.pod, text) for info, text in found if info is not None and info.state in _HINTED]

    def on_forgotten(self, pods: Sequence[ForgottenPod], now: float) -> None:
        for pod in pods:
            info = self._queue.pods.get(pod.uid)
            is_gone = pod.reason.startswith(POD_GONE)
            if info is not None and not is_gone and info.state in (PodState.IN_FLIGHT, PodState.BINDING):
                info.record(now, info.state, f"forgotten: {pod.reason}")
            if info is None or info.state is not PodState.BINDING:
                self._queue.move_all(freed_room(), now)
                if info is not None and info.state is PodState.IN_FLIGHT and not is_gone:
                    info.forgotten = pod
            elif is_gone:
                self._queue.move_all(freed_room(info.assumed()), now)
            else:
                self._fail_binding(info, pod, now)
            if info is None or may_claim(info.pod):
                self._queue.move_all(freed_devices(), now)

    def on_evicted(self, evicted: Evicted, now: float) -> None:
        eviction = self._queue.preemptions.report(evicted)
        if eviction is Eviction.DONE:
            self._queue.end_preemption(evicted.uid, now)
        elif eviction is Eviction.FAILED and (info := self._queue.pods.get(evicted.uid)) is not None:
            self._on_failed_eviction(info, now)

    def _on_failed_eviction(self, info: QueuedPodInfo, now: float) -> None:
        """Retries a pod at once, as kube-scheduler does; a gang backs off and reserves no room meanwhile."""
        queue, gang = self._queue, self._queue.groups.gang_of(info)
        if gang is None:
            queue.activate(info, now)
            return
        gang.fail_after_all()
        for member in [member for member in gang.pods.values() if member.state is PodState.BACKOFF]:
            queue.states.move(member, PodState.ERROR_BACKOFF, now, PREEMPTION_OVER)
        ref = group_of(info.pod)
        group = None if ref is None else queue.groups.get(ref)
        members = gang.pods | (group.pods if group is not None else {})
        for member in members.values():
            queue.give_up_nomination(member)
        queue.retry(info, now)

    def _on_late_rejection(self, info: QueuedPodInfo, outcome: Outcome) -> list[Effect]:
        """Ignores an attempt that was taken back, except for its nomination: the node is reserved for the pod."""
        if not outcome.nominated or info.state is PodState.BINDING:
            return []
        self._queue.nominator.nominate(info.uid, outcome.nominated)
        return [failure_notice(info.pod, outcome)]

    def _nominate(self, info: QueuedPodInfo, node: str, now: float) -> None:
        """Frees the node of a lost nomination: the watch reports no loss of one that the status never showed."""
        before = self._queue.nominator.applied(info.pod)
        self._queue.nominator.nominate(info.uid, node)
        if before.status.nominated_node_name not in ("", node, info.pod.status.nominated_node_name):
            priority = self._queue.groups.priority_of(before)
            freed = freed_room(before, max_priority=priority, except_uid=info.uid)
            self._queue.move_all(freed, now)

    def _on_decided(self, info: QueuedPodInfo, outcome: Outcome, snapshot_epoch: int, now: float) -> None:
        if info.state is PodState.BINDING:
            return
        if outcome.verdict is Verdict.SUPERSEDED:
            info.attempts = max(1, info.attempts - 1)  # nothing was attempted
        in_flight = info.state is PodState.IN_FLIGHT
        forgotten = info.forgotten if in_flight else None
        if in_flight and forgotten is None and info.snapshot_epoch not in (0, snapshot_epoch):
            self._queue.take_back(info, now)  # the decision may have been lost with the earlier snapshot
            return
        self._queue.start_binding(info, outcome.node, now, outcome.verdict)
        if forgotten is not None:
            self._fail_binding(info, forgotten, now)

    def _fail_binding(self, info: QueuedPodInfo, forgotten: ForgottenPod, now: float) -> None:
        """Frees the pod's room: after an error before the pod itself comes back, after a rejection for others only."""
        pod = info.assumed()
        if forgotten.rejected and forgotten.plugin:
            self._queue.end_attempt(info, AttemptResult.UNSCHEDULABLE, forgotten.reason, now, (forgotten.plugin,))
            self._queue.nominator.nominate(info.uid, "")
            self._queue.conditions.written(binding_rejected_notice(info.pod, forgotten.reason), now)
            self._queue.move_all(freed_room(pod, except_uid=info.uid), now)
        else:
            self._queue.move_all(freed_room(pod), now)
            self._queue.end_attempt(info, AttemptResult.ERROR, forgotten.reason, now)
            self._queue.nominator.nominate(info.uid, "")
            self._queue.conditions.binder_wrote(info.uid, ERROR_REASON, now)
            if self._queue.nominator.unshown(info.pod) is not None:
                self._queue.conditions.written(nomination_cleared_notice(info.pod), now)
