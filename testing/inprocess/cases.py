"""Reads and decodes golden cases.

A line is a cluster with pods to schedule, or a case of another kind (`apart`), such as a configuration file and its
expected result.
"""

import gzip
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeGuard

import msgspec

from services.snapshot.commit_checks import ProfileFilters
from shared.framework.loading import load_frameworks, load_scheduler_config
from shared.framework.profile import Framework
from shared.model.objects import ClusterObject, Node, Pod, node_from, pod_from
from testing.inprocess.apart import apart
from testing.inprocess.comparison import UnreadableCases, objects_of

RawCase = dict[str, Any]


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


def read_cases(path: Path) -> Iterator[RawCase]:
    """The cases of a .jsonl or .jsonl.gz file."""
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    try:
                        case = msgspec.json.decode(line)
                    except (msgspec.DecodeError, UnicodeDecodeError) as cause:
                        raise UnreadableCases(f"{path}:{number}: {cause}") from None
                    if not _is_case(case):
                        raise UnreadableCases(f"{path}:{number}: not a case")
                    yield case
    except (OSError, EOFError) as cause:
        reason = cause.strerror if isinstance(cause, OSError) and cause.strerror else str(cause)
        raise UnreadableCases(f"{path}: {reason}") from None


def group_of(case: RawCase) -> str:
    kind = apart(case)
    if kind is not None:
        return kind.group
    tags: list[str] = case.get("tags") or ["untagged"]
    return tags[0]


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
    )


@lru_cache
def _default_frameworks() -> Mapping[str, Framework]:
    return load_frameworks(None)


def _is_case(case: object) -> TypeGuard[RawCase]:
    match case:
        case {"name": str(), "objects": dict(), "pending": list(pending), "expected": list(expected)}:
            return len(pending) == len(expected)
    return apart(case) is not None
