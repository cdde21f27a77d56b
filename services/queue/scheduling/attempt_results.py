"""What becomes of pods that were handed out: what cycle, the snapshot and binders say of them."""

from collections.abc import Sequence

from services.queue.events import Effect, Notify
from services.queue.happenings import room
from services.queue.places import Place
from services.queue.preempting import Report
from services.queue.scheduling.queued_pod_info import Entry
from services.queue.scheduling.scheduling_queue import Pods
from services.queue.status.pod_conditions import notice_of, unbound_notice
from services.queue.tally import Result
from shared.messages.binding import Evicted
from shared.messages.queue import POD_GONE, ForgottenPod, Outcome, Verdict


class Attempts:
    def __init__(self, pods: Pods) -> None:
        self._pods = pods

    def report(self, outcome: Outcome, snapshot_epoch: int, now: float) -> list[Effect]:
        entry = self._pods.get(outcome.uid)
        if entry is None:
            return []
        if outcome.verdict in (Verdict.DECIDED, Verdict.SUPERSEDED):
            self._on_placed(entry, outcome, snapshot_epoch, now)
            return []
        if entry.place is not Place.IN_FLIGHT:
            return self._of_given_up(entry, outcome)
        notice = Notify(notice_of(entry.pod, outcome, self._pods.nominations.unshown(entry.pod)))
        entry.said, entry.said_at = outcome.message, now
        activated = outcome.preemption and self._await(entry, outcome.preemption, now)
        rejected = outcome.verdict is Verdict.UNSCHEDULABLE
        plugins = outcome.plugins if rejected else ()
        pending = outcome.pending if rejected else ()
        self._end(entry, Result.UNSCHEDULABLE if rejected else Result.ERROR, plugins, pending, now)
        if outcome.nominated is not None:
            self._nominate(entry, outcome.nominated, now)
        if activated:
            self._pods.activate(entry, now)
        return [notice]

    def forget(self, pods: Sequence[ForgottenPod], now: float) -> None:
        """After an error they make room for others before they come back themselves; after a rejection, then."""
        for pod in pods:
            entry = self._pods.get(pod.uid)
            if entry is None or entry.place is not Place.BINDING:
                self._pods.wake(room(), now)
                if entry is not None and entry.place is Place.IN_FLIGHT and not pod.reason.startswith(POD_GONE):
                    entry.tell(now, entry.place, f"forgotten: {pod.reason}")
                    entry.forgotten = pod
            elif pod.reason.startswith(POD_GONE):
                self._pods.wake(room(entry.assumed()), now)
            else:
                entry.tell(now, entry.place, f"forgotten: {pod.reason}")
                self._fail_binding(entry, pod, now)

    def preempted(self, evicted: Evicted, now: float) -> None:
        report = self._pods.preempting.report(evicted)
        if report is Report.DONE:
            self._pods.preempted(evicted.uid, now)
        elif report is Report.FAILED and (entry := self._pods.get(evicted.uid)) is not None:
            self._pods.activate(entry, now)

    # Inside

    def _of_given_up(self, entry: Entry, outcome: Outcome) -> list[Effect]:
        """The attempt counts for nothing here, but room that is kept for the pod is for it to be known."""
        if not outcome.nominated or entry.place is Place.BINDING:
            return []
        self._pods.nominations.say(entry.uid, outcome.nominated)
        return [Notify(notice_of(entry.pod, outcome))]

    def _await(self, entry: Entry, number: int, now: float) -> bool:
        """Whether its preemption is known to have failed already."""
        return self._pods.preempting.begin(entry.uid, number, now) is Report.FAILED

    def _nominate(self, entry: Entry, node: str, now: float) -> None:
        """What it loses is free for others; if its status has never shown it, nothing else will tell them."""
        before = self._pods.nominations.applied(entry.pod)
        self._pods.nominations.say(entry.uid, node)
        if before.status.nominated_node_name not in ("", node, entry.pod.status.nominated_node_name):
            self._pods.wake(room(before, at_most=before.priority, but=entry.uid), now)

    def _on_placed(self, entry: Entry, outcome: Outcome, snapshot_epoch: int, now: float) -> None:
        if entry.place is Place.BINDING:
            return
        if outcome.verdict is Verdict.SUPERSEDED:
            entry.attempts = max(1, entry.attempts - 1)  # nothing was attempted
        forgotten = entry.forgotten
        if entry.place is Place.IN_FLIGHT and forgotten is not None:
            self._pods.decide(entry, outcome.node, now, outcome.verdict)
            self._fail_binding(entry, forgotten, now)
        elif entry.place is Place.IN_FLIGHT and 0 < entry.term < snapshot_epoch:
            self._pods.take_back(entry, now)  # decided by a snapshot that is not there any more, it may be
        else:
            self._pods.decide(entry, outcome.node, now, outcome.verdict)

    def _fail_binding(self, entry: Entry, forgotten: ForgottenPod, now: float) -> None:
        """The place that it had is free again; if it was not wanted there, that is no news to itself."""
        free = entry.assumed()
        rejected = forgotten.rejected and bool(forgotten.plugin)
        if not rejected:
            self._pods.wake(room(free), now)
        plugins = (forgotten.plugin,) if rejected else ()
        entry.said, entry.said_at = forgotten.reason, now
        self._end(entry, Result.UNSCHEDULABLE if rejected else Result.ERROR, plugins, (), now)
        self._pods.nominations.say(entry.uid, "")
        if rejected:
            self._pods.untold.said(unbound_notice(entry.pod, forgotten.reason), now)
            self._pods.wake(room(free, but=entry.uid), now)

    def _end(self, entry: Entry, result: Result, plugins: Sequence[str], pending: Sequence[str], now: float) -> None:
        """A pod that no plugin has rejected rests as after an error: no event would wake it."""
        self._pods.held.tally.attempts[result, entry.framework.name] += 1
        if plugins or pending:
            self._pods.reject(entry, tuple(sorted({*plugins})), tuple(sorted({*pending})), now)
        else:
            self._pods.fail(entry, now)
