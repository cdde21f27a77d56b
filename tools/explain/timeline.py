"""What happened to a pod, from its creation to its node, as each service that had it remembers.

    created             the API server
    queued, attempts    the queue, also for a while after the pod has left it
    decided             the cycle's journal
    permits, bound      the binder that had the pod's last attempt

Times are those of the services' own clocks. A service that restarted has forgotten its part.
"""

import calendar
import time
from collections.abc import Iterator, Sequence

import msgspec

from shared.bus.subjects import BINDER_LIST, CYCLE_EXPLAIN, QUEUE_LIST
from shared.errors import ClusterError
from shared.explain.words import count, listed
from shared.messages.binding import AttemptFound, FindAttempt, Step
from shared.messages.explaining import EVICTED, FAILED, NOMINATED, PLACED, ExplainPod, PodExplained, Remembered
from shared.messages.inspection import ListQueue, Move, QueueListed
from tools.cli.service_client import ServiceClient

AT_ONCE = 1.0
"""Seconds by which a binder's first step may seem to be before the decision: the cycle notes a decision when the
snapshot has answered, which has sent the order by then.
"""
BINDERS_PATIENCE = 0.5
"""Seconds to wait for the binder that knows the pod; none may."""
MOVES = {
    "active": "queued",
    "backoff": "backs off",
    "error-backoff": "backs off after an error",
    "gated": "held",
    "in-flight": "attempt",
    "binding": "decided",
}
OBVIOUS = ("popped", "UnschedulablePodAdd")
"""Reasons of moves that say no more than the move."""
STEPS = {
    "waiting": "waits for permits",
    "preparing": "PreBind",
    "paused": "PreBind waits",
    "binding": "the call that binds",
    "looking-up": "whether it is bound is looked up",
    "bound": "bound",
    "failed": "binding failed",
    "expired": "binding took too long",
}


class Happened(msgspec.Struct, frozen=True, omit_defaults=True):
    """`at`: Unix time."""

    at: float
    what: str
    why: str = ""


async def timeline(client: ServiceClient, namespace: str, name: str, uid: str = "") -> list[Happened]:
    """Oldest first. Services that do not answer leave their part out."""
    queued = await client.request("queue", QUEUE_LIST, ListQueue(namespace=namespace, name=name), QueueListed)
    pod, left = queued.pods[-1] if queued.pods else None, queued.left
    if pod is not None:
        uid, created, moves = pod.uid, pod.created, pod.history
    elif left is not None and uid in ("", left.uid):
        uid, created, moves = left.uid, left.created, left.history
    else:
        created, moves = None, ()
    journal = await client.request("cycle", CYCLE_EXPLAIN, ExplainPod(namespace, name, uid), PodExplained)
    same = journal.journal if uid in ("", journal.uid) else ()
    return arranged(created, moves, same, await _attempt(client, uid or journal.uid))


async def _attempt(client: ServiceClient, uid: str) -> AttemptFound | None:
    if not uid:
        return None
    try:
        return await client.request("binders", BINDER_LIST, FindAttempt(uid), AttemptFound, BINDERS_PATIENCE)
    except ClusterError:
        return None


def arranged(
    created: str | None, moves: Sequence[Move], journal: Sequence[Remembered], attempt: AttemptFound | None
) -> list[Happened]:
    """If the journal has the decision, the queue's move to the binder is left out."""
    decided = any(each.kind == PLACED for each in journal)
    found = [Happened(float(at), "created") for at in (_seconds(created),) if at is not None]
    found += (_moved(each) for each in moves if not (decided and each.state == "binding"))
    steps = [] if attempt is None else list(_steps(attempt))
    for each in journal:
        happened = _remembered(each)
        if each.kind == PLACED and steps and 0.0 < each.at - steps[0].at < AT_ONCE:
            happened = msgspec.structs.replace(happened, at=steps[0].at)
        found.append(happened)
    found += steps
    return sorted(found, key=lambda each: each.at)


def _seconds(text: str | None) -> int | None:
    try:
        return None if text is None else calendar.timegm(time.strptime(text[:19], "%Y-%m-%dT%H:%M:%S"))
    except ValueError:
        return None


def _moved(move: Move) -> Happened:
    if move.state == "done":
        return Happened(move.at, "left the queue", "seen on its node" if move.why == "bound" else move.why)
    return Happened(move.at, MOVES.get(move.state, move.state), "" if move.why in OBVIOUS else move.why)


def _remembered(each: Remembered) -> Happened:
    if each.kind == PLACED:
        gang = f", with its gang {each.gang}" if each.gang else ""
        fitted = f"the best of {each.feasible:,} on which it fitted, of {count(each.nodes, 'node')}"
        return Happened(each.at, f"decided: {each.node}", f"attempt {each.attempt}, {fitted}{gang}")
    if each.kind == NOMINATED:
        return Happened(
            each.at, f"nominated to {each.node}", f"for it go {listed(list(each.victims), 5)}" if each.victims else ""
        )
    if each.kind == EVICTED:
        return Happened(each.at, f"preempted on {each.node}", f"by {each.preemptor}")
    return Happened(each.at, "failed" if each.kind == FAILED else each.kind, each.message)


def _steps(attempt: AttemptFound) -> Iterator[Happened]:
    """Each state once, as long as the next step is of the same one."""
    last = ""
    for step in attempt.steps:
        if step.state != last and step.state in STEPS:
            yield Happened(step.at, STEPS[step.state], _why(step, attempt))
        last = step.state


def _why(step: Step, attempt: AttemptFound) -> str:
    if step.state in ("failed", "expired"):
        return attempt.reason
    return f"by {attempt.binder}" if step.state == "bound" else ""
