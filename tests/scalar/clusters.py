"""Random clusters: a golden case in which parts of objects are exchanged for parts of other cases of its group.

So each object stays one that an API server would accept, or nearly so; a case that is not is drawn again.
"""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from random import Random
from typing import Any

from testing.inprocess.cases import RawCase

Path = tuple[str | int, ...]
MAX_CHANGES = 8
MAX_PENDING = 8
KEPT = frozenset(
    {"name", "namespace", "uid", "nodeName", "claimName", "volumeName", "ownerReferences", "startTime", "schedulerName"}
)
"""What ties objects to each other, or tells them apart."""


def draw_cluster(chance: Random, group: Sequence[RawCase]) -> RawCase:
    """A case without expectations."""
    drawn, other = deepcopy(chance.choice(group)), chance.choice(group)
    if chance.random() < 0.3 and drawn.get("config") == other.get("config"):
        names = {_key(pod) for pod in (*drawn["pending"], *drawn["objects"].get("pods", ()))}
        drawn["pending"] += [deepcopy(pod) for pod in other["pending"] if _key(pod) not in names]
        chance.shuffle(drawn["pending"])
    drawn["pending"] = drawn["pending"][:MAX_PENDING]
    places = [(kind, obj) for kind, objects in drawn["objects"].items() for obj in objects]
    places += 2 * [("pods", pod) for pod in drawn["pending"]]
    for _ in range(chance.randint(1, MAX_CHANGES)):
        kind, obj = chance.choice(places)
        donors = [*other["objects"].get(kind, ()), *(other["pending"] if kind == "pods" else ())]
        if donors:
            _exchange(chance, obj, chance.choice(donors))
        other = chance.choice(group)
    return {**drawn, "expected": []}


def _exchange(chance: Random, into: Any, donor: Any) -> None:
    """Replace a part by the donor's part at the same place, remove it, or take over one that is missing."""
    paths = list(_paths(donor))
    if not paths:
        return
    path = chance.choice(paths)
    for step in path[:-1]:
        if isinstance(step, int):
            if step >= len(into):
                return
        elif step not in into:
            into[step] = [] if isinstance(donor[step], list) else {}
        into, donor = into[step], donor[step]
    last = path[-1]
    if isinstance(last, int) and last >= len(into):
        into.append(deepcopy(donor[last]))
    elif chance.random() < 0.1 and len(path) > 2 and not isinstance(last, int):
        into.pop(last, None)
    else:
        into[last] = deepcopy(donor[last])


def _paths(part: Any, above: Path = ()) -> Iterator[Path]:
    """The places of parts that may be exchanged."""
    steps: Sequence[str | int] = ()
    if isinstance(part, dict):
        steps = [each for each in part if each not in KEPT and (above or each != "metadata")]
        if not above and "labels" in part.get("metadata", {}):
            yield ("metadata", "labels")
    elif isinstance(part, list):
        steps = range(len(part))
    for step in steps:
        if above:
            yield (*above, step)
        yield from _paths(part[step], (*above, step))


def _key(pod: Any) -> tuple[str, str]:
    return pod["metadata"].get("namespace", "default"), pod["metadata"]["name"]
