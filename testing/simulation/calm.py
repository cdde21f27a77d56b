"""What must not happen where nothing goes wrong: time is nobody's only reason to move on."""

from services.queue.core import QueueCore
from services.queue.scheduling.nominator import PREEMPTION_TIMEOUT
from services.queue.scheduling.queued_pod_info import PodState
from services.queue.scheduling.scheduling_queue import OVERDUE, TIME_LIMIT


def moved_by_time(queue: QueueCore, now: float) -> list[str]:
    """Moves that time has made, and waits that are about to end so; to be looked at now and then."""
    counters = queue.counters
    late = {why: sum(counters.incoming[state, why] for state in PodState) for why in (TIME_LIMIT, OVERDUE)}
    wrong = [f"{count} pods were moved for no reason but time: {why}" for why, count in late.items() if count]
    if counters.scheduled_after_flush:
        wrong.append(f"{counters.scheduled_after_flush} pods were bound after the time limit had moved them")
    due = queue._queue.preemptions.next_deadline()
    if due is not None and due < now + PREEMPTION_TIMEOUT / 2:
        wrong.append("nobody tells of the end of a preemption")
    return wrong
