"""Golden cases about placing pods, and the result of a replay: how many cases passed, and how the others differ."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import msgspec

from flotilla.events import Action
from services.snapshot.commit_checks import ProfileFilters
from shared.cluster.objects import ClusterObjects
from shared.errors import UserError
from shared.framework.clusterevents import NAMES, ClusterEvent
from shared.framework.loading import load_frameworks, load_scheduler_config
from shared.framework.profile import Framework
from shared.model.objects import ClusterObject, Node, ObjectKind, Pod, node_from, object_from, pod_from

RawCase = dict[str, Any]
ACTIONS: Mapping[str, Action] = {name: action for action, name in NAMES.items()}
ABSENT = "(absent)"
NOT_OBJECTS = frozenset({"nodes", "pods"})
"""Decoded separately."""


@dataclass(frozen=True, slots=True)
class Difference:
    case: str
    pod: str
    what: str
    expected: object
    got: object

    def __str__(self) -> str:
        expected, got = _only_differing(self.expected, self.got)
        head = f"{self.case}, pod {self.pod}: {self.what}"
        return f"{head}\n    expected: {_shown(expected)}\n    got:      {_shown(got)}"


@dataclass(slots=True)
class GroupResult:
    total: int = 0
    passed: int = 0
    differences: list[Difference] = field(default_factory=list)

    def count(self, differences: list[Difference]) -> None:
        """Add a case with these differences."""
        self.total += 1
        self.passed += not differences
        self.differences += differences

    def add(self, other: "GroupResult") -> None:
        self.total += other.total
        self.passed += other.passed
        self.differences += other.differences


def all_passed(results: Iterable[GroupResult]) -> bool:
    return all(result.passed == result.total for result in results)


def _only_differing(expected: object, got: object) -> tuple[object, object]:
    """The differing parts of two values, recursively for mappings."""
    if not isinstance(expected, dict) or not isinstance(got, dict):
        return expected, got
    pairs = {key: (expected.get(key, ABSENT), got.get(key, ABSENT)) for key in {*expected, *got}}
    differing = {key: _only_differing(*pair) for key, pair in pairs.items() if pair[0] != pair[1]}
    return {key: one for key, (one, _) in differing.items()}, {key: other for key, (_, other) in differing.items()}


def _shown(value: object) -> str:
    if isinstance(value, set):
        value = sorted(value)
    return msgspec.json.encode(value, order="sorted").decode() if value is not None else "nothing"


class UnreadableCases(UserError):
    """A file that does not contain cases."""


def objects_of(lists: Mapping[str, list[Any]]) -> Iterator[ClusterObject]:
    """Decode the objects of all kinds except nodes and pods."""
    for plural, objects in lists.items():
        if plural in NOT_OBJECTS:
            continue
        kind = KINDS.get(plural)
        if kind is None:
            raise UnreadableCases(f"objects.{plural}: unknown kind")
        yield from (object_from(kind, each) for each in objects)


def _plural(kind: ObjectKind) -> str:
    if kind.endswith("y"):
        return f"{kind[:-1]}ies"
    return f"{kind}es" if kind.endswith("s") else f"{kind}s"


KINDS: Mapping[str, ObjectKind] = {_plural(kind): kind for kind in ObjectKind}


@dataclass(frozen=True, slots=True)
class Case:
    """A cluster and pods to schedule. Immutable, so it can be replayed any number of times."""

    name: str
    frameworks: Mapping[str, Framework]
    checks: Mapping[str, ProfileFilters]
    nodes: list[Node]
    pods: list[Pod]
    objects: list[ClusterObject]
    pending: list[Pod]
    expected: list[Mapping[str, Any]]
    tells_devices: bool = False
    """Whether PreEnqueue and the allocations of claims are part of what is expected."""


def decoded(raw: RawCase) -> Case:
    """Decode a case about scheduling; InvalidObject or InvalidConfig if it is malformed."""
    config, lists = raw.get("config"), raw["objects"]
    return Case(
        name=raw["name"],
        frameworks=_default_frameworks() if config is None else load_frameworks(config),
        checks={} if config is None else ProfileFilters.of(load_scheduler_config(config)),
        nodes=[node_from(node) for node in lists.get("nodes", ())],
        pods=[pod_from(pod) for pod in lists.get("pods", ())],
        objects=list(objects_of(lists)),
        pending=[pod_from(pod) for pod in raw["pending"]],
        expected=raw["expected"],
        tells_devices=any(tag.startswith("dra-") for tag in raw.get("tags") or ()),
    )


@lru_cache
def _default_frameworks() -> Mapping[str, Framework]:
    return load_frameworks(None)


def decoded_object(kind: str, obj: Any) -> Any:
    """An object of an event, by its kind; None if absent."""
    if obj is None:
        return None
    match kind:
        case "Node":
            return node_from(obj)
        case "Pod":
            return pod_from(obj)
    return object_from(ObjectKind(kind.lower()), obj)


def kind_in(event: ClusterEvent) -> str:
    return event.resource.rpartition("/")[2].removeprefix("Assigned").removeprefix("Unschedulable")


def cluster_objects(lists: Mapping[str, list[Any]]) -> ClusterObjects:
    objects = ClusterObjects()
    for each in objects_of(lists):
        objects.upsert(each)
    return objects
