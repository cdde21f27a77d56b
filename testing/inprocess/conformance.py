"""Replays golden cases of kube-scheduler v1.36 through the services' cores and reports differences.

The objects of a case arrive as from the watch, and its pods go through rounds of one pod. Compares everything in the
case: the results and reasons of PreFilter and of each node's Filter, each plugin's score, the best nodes, the chosen
node, the message, and the victims of preemption. Cases of other kinds (`apart`) do not depend on shards.
"""

import gzip
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeGuard

import msgspec

from shared.errors import FlotillaError
from testing.inprocess import cel_cases, config_cases, hint_cases, requeue_cases
from testing.inprocess.cases import Case, Difference, GroupResult, RawCase, UnreadableCases, decoded
from testing.inprocess.golden_case import Replay


@dataclass(frozen=True, slots=True)
class Apart:
    """A kind of case that is not about placing pods. `recognises` checks the shape of a whole case."""

    group: str
    recognises: Callable[[object], bool]
    differences: Callable[[Mapping[str, Any]], Iterable[Difference]]

    def run(self, case: RawCase) -> GroupResult:
        result = GroupResult()
        try:
            result.count(list(self.differences(case)))
        except (FlotillaError, ValueError, KeyError) as cause:
            result.count([_cannot_be_run(case.get("name", self.group), cause)])
        return result


KINDS = (
    Apart("cel", cel_cases.is_cel_case, cel_cases.cel_differences),
    Apart("config-file", config_cases.is_case, config_cases.differences),
    Apart("hints", hint_cases.is_hint_case, hint_cases.hint_differences),
    Apart("registered", hint_cases.is_registered_case, hint_cases.registered_differences),
    Apart("requeue", requeue_cases.is_case, requeue_cases.differences),
)


def apart(case: object) -> Apart | None:
    """The kind of a case that is independent of shards; None for a case about placing pods."""
    return next((kind for kind in KINDS if kind.recognises(case)), None)


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


Results = dict[int, dict[str, GroupResult]]
"""By number of shards and by group, in the order of first appearance."""

REPLAYS_PER_PROCESS = 400
"""Fewer replays are not worth another process."""
CHUNK = 16


def replay(cases: Iterable[RawCase], shard_counts: Sequence[int]) -> Results:
    """Results for several numbers of shards; each case is decoded once."""
    results: Results = {shards: {} for shards in shard_counts}
    for raw in cases:
        kind = apart(raw)
        if kind is not None:
            _add(results, {shards: {kind.group: kind.run(raw)} for shards in shard_counts})
            continue
        try:
            case: Case | FlotillaError = decoded(raw)
        except FlotillaError as cause:
            case = cause
        for shards, groups in results.items():
            try:
                if isinstance(case, FlotillaError):
                    raise case
                differences = Replay(case, shards).run()
            except FlotillaError as cause:
                differences = [_cannot_be_run(raw["name"], cause)]
            groups.setdefault(group_of(raw), GroupResult()).count(differences)
    return results


def worthwhile_processes(replays: int) -> int:
    return min(os.cpu_count() or 1, max(1, replays // REPLAYS_PER_PROCESS))


def replay_in_parallel(cases: Sequence[RawCase], shard_counts: Sequence[int], processes: int) -> Results:
    """`replay`, in several processes."""
    if processes < 2:
        return replay(cases, shard_counts)
    chunks = [cases[start : start + CHUNK] for start in range(0, len(cases), CHUNK)]
    results: Results = {shards: {} for shards in shard_counts}
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        for part in pool.map(partial(replay, shard_counts=shard_counts), chunks):
            _add(results, part)
    return results


def _add(results: Results, part: Results) -> None:
    for shards, groups in part.items():
        for name, group in groups.items():
            results[shards].setdefault(name, GroupResult()).add(group)


def _cannot_be_run(name: str, cause: Exception) -> Difference:
    return Difference(name, "-", "cannot be run", "a run", f"{type(cause).__name__}: {cause}")


def _is_case(case: object) -> TypeGuard[RawCase]:
    match case:
        case {"name": str(), "objects": dict(), "pending": list(pending), "expected": list(expected)}:
            return len(pending) == len(expected)
    return apart(case) is not None
