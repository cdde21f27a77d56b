"""Random streams of watch events that end with the cluster of a case.

Nodes and objects are first seen as another case has them, pods come and go before them, and all arrive in any order.
"""

from collections.abc import Iterator
from random import Random

from msgspec.structs import replace

from services.snapshot.events import NodeGone, NodeSeen, ObjectGone, ObjectSeen, PodDeleted, PodSeen, WatchEvent
from shared.model.objects import Node, key_of, kind_of
from testing.inprocess.cases import Case

Key = tuple[str, ...]
LARGEST_BATCH = 8


def stream(chance: Random, case: Case, before: Case) -> Iterator[list[WatchEvent]]:
    """`before`: whose cluster is there first; it goes away, one object at a time."""
    histories = list(_histories(chance, case, before).values())
    events: list[WatchEvent] = []
    while histories:
        history = chance.choice(histories)
        events.append(history.pop(0))
        if not history:
            histories.remove(history)
        if len(events) >= chance.randint(1, LARGEST_BATCH):
            yield events
            events = []
    yield events


def _histories(chance: Random, case: Case, before: Case) -> dict[Key, list[WatchEvent]]:
    """By object: its events, in order."""
    found: dict[Key, list[WatchEvent]] = {}
    for node in before.nodes:
        found[("node", node.name)] = [NodeSeen(_without_images(node)), NodeGone(node.name)]
    for obj in before.objects:
        kind, key = kind_of(obj), key_of(obj)
        found[(kind, key)] = [ObjectSeen(obj), ObjectGone(kind, key)]
    names = {pod.key for pod in (*case.pods, *case.pending)}
    for pod in (*before.pods, *before.pending):
        if pod.key not in names:
            found[("pod", pod.uid)] = [PodSeen(pod), PodDeleted(pod.uid)]
    # In their order, for an image has the size that the first node with it says, as in kube-scheduler.
    earlier = [event for node in case.nodes for event in _earlier(chance, found.pop(("node", node.name), []))]
    found[("nodes",)] = [*earlier, *map(NodeSeen, case.nodes)]
    for obj in case.objects:
        _add(chance, found, (kind_of(obj), key_of(obj)), ObjectSeen(obj))
    for pod in (*case.pods, *case.pending):
        found[("pod", pod.uid)] = [PodSeen(pod)] * chance.choice((1, 1, 2))
    return found


def _add(chance: Random, found: dict[Key, list[WatchEvent]], key: Key, last: WatchEvent) -> None:
    found[key] = [*_earlier(chance, found.get(key, [])), *([last] * chance.choice((1, 1, 2)))]


def _earlier(chance: Random, seen_and_gone: list[WatchEvent]) -> list[WatchEvent]:
    """An earlier version is replaced, or removed first."""
    return seen_and_gone[: chance.choice((1, 2))]


def _without_images(node: Node) -> Node:
    """So that they do not decide how large an image is."""
    return replace(node, status=replace(node.status, images=[]))
