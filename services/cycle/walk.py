"""The walk through a round's pods: in order, each takes the best that is still there to be had."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from flotilla.results import Status, error
from services.cycle.domainrace import DomainRace, Trackers
from services.cycle.footprints import Written
from services.cycle.gangvolumes import Promised
from services.cycle.race import NoRung, Race, Rung
from shared.framework.plugin import Tracker
from shared.messages.queue import Gang
from shared.model.load import PodLoad
from shared.model.objects import Pod


@dataclass(frozen=True, slots=True)
class QueuedPod:
    """A pod that is to be decided, with what the cycle works out about it once.

    `size`: the bytes it takes in a commit, where it goes along. `gang`: what it is placed together with, or not at all.
    `asks`: the requests that must be free for it, where its status makes its load another.
    """

    pod: Pod
    class_id: str
    load: PodLoad
    profile: str
    size: int = 0
    gang: Gang | None = None
    asks: dict[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Unfit:
    """No node is feasible for a class, and why: the message that says it, and the plugins that see to it.

    `nodes`: how many there are. `summaries`: the merged ones by which that was found; `potential`: how many nodes were
    rejected with a status that pods making way may change. `refused`: where extenders were asked, the feasible nodes
    that they rejected.
    """

    message: str
    plugins: tuple[str, ...]
    nodes: int = 0
    summaries: dict[str, object] = field(default_factory=dict)
    potential: int = 0
    refused: dict[str, Status] | None = None

    def also(self, message: str) -> "Unfit":
        """With more to be said."""
        return replace(self, message=f"{self.message} {message}") if message else self


@dataclass(slots=True)
class Walk:
    """How a round went. Every pod of it is in exactly one of these lists; `order` names all, in queue order.

    `withheld`: members of a gang of which enough are decided, and no node is feasible for these; that holds only if the
    others are committed.
    """

    order: list[str]
    decided: list[tuple[QueuedPod, Rung]] = field(default_factory=list)
    unfit: list[tuple[QueuedPod, Unfit]] = field(default_factory=list)
    failed: list[tuple[QueuedPod, Status]] = field(default_factory=list)
    deferred: list[QueuedPod] = field(default_factory=list)
    withheld: list[tuple[QueuedPod, Unfit]] = field(default_factory=list)


Verdict = Race | DomainRace | Unfit | Status | None
"""Of a class: where its pods can go, that they can go nowhere, that a plugin failed, or that it must be asked again."""


NOTHING_OFFERED = error("some node is feasible, and none is offered")


def walk(
    pods: Sequence[QueuedPod],
    verdicts: Mapping[str, Verdict],
    trackers: Mapping[str, Trackers] | None = None,
    promised: Promised | None = None,
) -> Walk:
    """Once a pod had to be deferred, none of lower priority is decided before it: it might take its place.

    `trackers`: those of every class, in a round in which decisions matter beyond the nodes that they fill. A class that
    finds no node, though by now a decision has changed that, waits as well.
    `promised`: the claims and volumes of a gang, whose decisions must not contradict each other.
    """
    trackers = trackers or {}
    result = Walk([queued.pod.uid for queued in pods])
    written = Written()
    listening: dict[str, list[Tracker]] = {}
    held_priority: int | None = None
    for queued in pods:
        verdict = verdicts[queued.class_id]
        rung: Rung | NoRung = NoRung.STALE
        if isinstance(verdict, Unfit) and not _is_touched(trackers, queued.class_id):
            result.unfit.append((queued, verdict))
            continue
        if isinstance(verdict, Status):
            result.failed.append((queued, verdict))
            continue
        if isinstance(verdict, Race | DomainRace) and (held_priority is None or queued.pod.priority >= held_priority):
            rung = verdict.take(written)
            if isinstance(rung, NoRung) and not written:
                result.failed.append((queued, NOTHING_OFFERED))  # it would be the same in the next round
                continue
            if promised is not None and isinstance(rung, Rung) and not promised.allows(queued.class_id, rung):
                rung = NoRung.STALE
        if isinstance(rung, Rung):
            written.add(queued.class_id, rung.node)
            if rung.place is not None:
                concerned = listening.get(queued.class_id)
                if concerned is None:
                    concerned = [tracker for each in trackers.values() for tracker in each.concerned(queued.load)]
                    listening[queued.class_id] = concerned
                for tracker in concerned:
                    tracker.placed(queued.class_id, queued.load, rung.place)
            result.decided.append((queued, rung))
        else:
            # Exhausted, too, waits: why there is no room any more has to be counted anew.
            result.deferred.append(queued)
            held_priority = queued.pod.priority if held_priority is None else max(held_priority, queued.pod.priority)
    return result


def _is_touched(trackers: Mapping[str, Trackers], class_id: str) -> bool:
    of_class = trackers.get(class_id)
    return of_class is not None and of_class.touched
