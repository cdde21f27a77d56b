"""What of a pod's entry is told to whoever asks where a pod is, why, and what it waits for."""

from collections.abc import Iterable, Iterator
from functools import lru_cache

from services.queue.backoff import wakes_at
from services.queue.places import Place
from services.queue.scheduling.queued_pod_info import Entry
from shared.framework.clusterevents import NAMES, Action, Registration, Resource, names_of
from shared.framework.profile import Framework
from shared.messages.inspection import LONGEST_TEXT, DescribedPod, Move

IN_ORDER = (
    Place.ACTIVE,
    Place.BACKOFF,
    Place.ERROR_BACKOFF,
    Place.UNSCHEDULABLE,
    Place.GATED,
    Place.IN_FLIGHT,
    Place.BINDING,
)
"""First what is going to be taken, the next one before all others; last what has been."""
RESTING = frozenset({Place.BACKOFF, Place.ERROR_BACKOFF})
WITH_OTHERS = frozenset({Place.IN_FLIGHT, Place.BINDING})
WAITING = frozenset({Place.UNSCHEDULABLE, Place.GATED})
BROKEN_GATE = "-"
MOST_KINDS = 256
ANY_EVENT = f"{Resource.ANY}{NAMES[Action.ALL]}"


def described(entry: Entry, nominated: str, zero: float = 0.0, *, in_full: bool = False) -> DescribedPod:
    """`nominated`: the node that it is to have, if any. `in_full`: with its story, and all of its last message.

    `zero`: the Unix time at which the queue's clock was zero; all times are told as Unix times.
    """
    pod, place = entry.pod, entry.place
    moves = tuple(_moves(entry, zero))
    arrival = _arrival(moves, place)
    return DescribedPod(
        uid=entry.uid,
        namespace=pod.namespace,
        name=pod.name,
        scheduler=entry.framework.name,
        place=place.value,
        since=zero + entry.queued_at if arrival is None else arrival.at,
        first_seen=zero + entry.seen_at,
        queued_at=zero + entry.queued_at,
        why="" if arrival is None else arrival.why,
        priority=pod.priority,
        attempts=entry.attempts,
        rejections=entry.rejections,
        errors=entry.errors,
        plugins=entry.rejectors,
        gate=BROKEN_GATE if entry.gate == "" else entry.gate or "",
        awaits=awaited(entry) if place in WAITING else (),
        rests_until=zero + wakes_at(entry) if place in RESTING else None,
        deadline=zero + entry.deadline if place in WITH_OTHERS else None,
        node=entry.node if place is Place.BINDING else "",
        message=entry.said if in_full else cut(entry.said),
        said_at=None if entry.said_at is None else zero + entry.said_at,
        nominated=nominated,
        story=moves if in_full else (),
    )


def awaited(entry: Entry) -> tuple[str, ...]:
    """The cluster events of which any may help it. A gated pod is looked at only for the plugin that gates it."""
    return _awaited(entry.framework, entry.rejectors if entry.gate is None else (entry.gate,))


@lru_cache(maxsize=MOST_KINDS)
def _awaited(framework: Framework, plugins: tuple[str, ...]) -> tuple[str, ...]:
    """Pods are many, and what has rejected them is the same few plugins."""
    if any(plugin not in framework.registrations for plugin in plugins):
        return (ANY_EVENT,)
    return labels(each for plugin in plugins for each in framework.registrations[plugin])


def labels(registrations: Iterable[Registration]) -> tuple[str, ...]:
    """What was registered for, by kube-scheduler's labels: `NodeAdd`, `AssignedPodDelete`; each once."""
    found: dict[str, None] = {}
    for registration in registrations:
        for resource in _PODS if registration.resource is Resource.POD else (registration.resource,):
            found |= {f"{resource}{name}": None for name in names_of(registration.actions)}
    return tuple(found)


def cut(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…"


def _moves(entry: Entry, zero: float) -> Iterator[Move]:
    story = entry.story
    for at, place, why in zip(story[::3], story[1::3], story[2::3], strict=True):
        yield Move(zero + float(at), str(place), str(why))


def _arrival(moves: tuple[Move, ...], place: Place) -> Move | None:
    """When it came to where it is: what was told of it there does not count."""
    found: Move | None = None
    for move in reversed(moves):
        if move.place != place:
            break
        found = move
    return found


_PODS = (Resource.ASSIGNED_POD, Resource.UNSCHEDULABLE_POD)
