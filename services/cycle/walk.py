"""The walk through a round's pods: in order, each takes the best that is still there to be had."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from services.cycle.footprints import Written
from services.cycle.race import NoRung, Race, Rung
from shared.cluster.load import PodLoad
from shared.framework.status import Status
from shared.model.objects import Pod


@dataclass(frozen=True, slots=True)
class QueuedPod:
    """A pod that is to be decided, with what the cycle works out about it once.

    `size`: the bytes it takes in a commit, where it goes along.
    """

    pod: Pod
    class_id: str
    load: PodLoad
    profile: str
    size: int = 0


@dataclass(frozen=True, slots=True)
class Unfit:
    """No node is feasible for a class, and why: how many nodes there are, and the message that says it."""

    message: str
    plugins: tuple[str, ...]


@dataclass(slots=True)
class Walk:
    """How a round went. Every pod of it is in exactly one of these lists; `order` names all, in queue order."""

    order: list[str]
    decided: list[tuple[QueuedPod, Rung]] = field(default_factory=list)
    unfit: list[tuple[QueuedPod, Unfit]] = field(default_factory=list)
    failed: list[tuple[QueuedPod, Status]] = field(default_factory=list)
    deferred: list[QueuedPod] = field(default_factory=list)


Verdict = Race | Unfit | Status | None
"""Of a class: where its pods can go, that they can go nowhere, that a plugin failed, or that it must be asked again."""


def walk(pods: Sequence[QueuedPod], verdicts: Mapping[str, Verdict]) -> Walk:
    """Once a pod had to be deferred, none of lower priority is decided before it: it might take its place."""
    result = Walk([queued.pod.uid for queued in pods])
    written = Written()
    held_priority: int | None = None
    for queued in pods:
        verdict = verdicts[queued.class_id]
        rung: Rung | NoRung = NoRung.STALE
        if isinstance(verdict, Unfit):
            result.unfit.append((queued, verdict))
            continue
        if isinstance(verdict, Status):
            result.failed.append((queued, verdict))
            continue
        if verdict is not None and (held_priority is None or queued.pod.priority >= held_priority):
            rung = verdict.take(written)
        if isinstance(rung, Rung):
            written.add(queued.class_id, rung.node)
            result.decided.append((queued, rung))
        else:
            # Exhausted, too, waits: why there is no room any more has to be counted anew.
            result.deferred.append(queued)
            held_priority = queued.pod.priority if held_priority is None else max(held_priority, queued.pod.priority)
    return result
