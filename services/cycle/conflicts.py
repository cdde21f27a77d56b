"""What a commit was answered: whose fault conflicts are, and who has had too many of them in a row."""

from collections.abc import Collection, Iterator, Mapping

from flotilla.results import Status, error
from services.cycle.events import WorkerFault
from services.cycle.gang import decided_anew
from services.cycle.walk import QueuedPod, Walk
from shared.messages.state import Commit, Committed, Decision, Nominate

MOST_IN_A_ROW = 16
"""Conflicts after which a pod goes back to the queue and backs off, so that nobody waits behind it for ever."""
MOST_COUNTED = 1 << 12
CONFLICTS = error(f"what was decided could not stand {MOST_IN_A_ROW} times in a row")


def faults_of(commit: Commit, committed: Committed) -> Iterator[WorkerFault]:
    """At most one fault per worker and commit."""
    at_fault = {conflict.uid: conflict for conflict in committed.conflicts if conflict.fault}
    blamed: set[str] = set()
    asked: tuple[Decision | Nominate, ...] = (*commit.decisions, *commit.nominations) if at_fault else ()
    for each in asked:
        conflict = at_fault.get(each.uid)
        if conflict is not None and each.worker and each.worker not in blamed:
            blamed.add(each.worker)
            yield WorkerFault(each.worker, conflict.fault, conflict.reason, counted=True)


class Conflicts:
    """How many each pod, or gang, has had in a row."""

    def __init__(self) -> None:
        self._lost: dict[str, int] = {}

    def again(
        self, result: Walk, lost: Mapping[str, QueuedPod], held: Collection[str]
    ) -> tuple[dict[str, QueuedPod], list[tuple[QueuedPod, Status]]]:
        """Who is decided anew at once after a round in which these were lost, and who is not."""
        one_of_each = {_key(queued): queued for queued in lost.values()}
        tired = {key for key, queued in one_of_each.items() if self.lost(queued, held)}
        out = {uid for uid, queued in lost.items() if _key(queued) in tired}
        out |= {queued.pod.uid for queued, _ in result.withheld if _key(queued) in tired}
        again = decided_anew(result, lost)
        failed = [(queued, CONFLICTS) for uid, queued in again.items() if uid in out]
        return {uid: queued for uid, queued in again.items() if uid not in out}, failed

    def lost(self, queued: QueuedPod, held: Collection[str]) -> bool:
        """True if it is not to be tried again at once. `held`: the pods that are still with the cycle."""
        key = _key(queued)
        self._lost[key] = self._lost.get(key, 0) + 1
        if len(self._lost) > MOST_COUNTED:
            self._lost = {of: count for of, count in self._lost.items() if of in held or of == key}
        if self._lost[key] < MOST_IN_A_ROW:
            return False
        del self._lost[key]
        return True

    def won(self, queued: QueuedPod) -> None:
        self._lost.pop(_key(queued), None)


def _key(queued: QueuedPod) -> str:
    return queued.pod.uid if queued.gang is None else queued.gang.key
