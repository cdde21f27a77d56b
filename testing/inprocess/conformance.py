"""Replays golden cases of kube-scheduler v1.36 through the services' cores and reports differences.

The objects of a case arrive as from the watch, and its pods go through rounds of one pod. Compares everything in the
case: the results and reasons of PreFilter and of each node's Filter, each plugin's score, the best nodes, the chosen
node, the message, and the victims of preemption. Cases of other kinds (`apart`) do not depend on shards.
"""

import multiprocessing
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from shared.errors import FlotillaError
from testing.inprocess.apart import apart
from testing.inprocess.cases import Case, RawCase, decoded, group_of
from testing.inprocess.comparison import Difference, GroupResult
from testing.inprocess.replay import Replay

Results = dict[int, dict[str, GroupResult]]
"""By number of shards and by group, in the order of first appearance."""

REPLAYS_PER_PROCESS = 400
"""Fewer replays are not worth another process."""
CHUNK = 16


def run_cases(cases: Iterable[RawCase], shards: int) -> dict[str, GroupResult]:
    """Results by group, with the nodes spread over `shards` workers."""
    return replay(cases, [shards])[shards]


def replay(cases: Iterable[RawCase], shard_counts: Sequence[int]) -> Results:
    """Results for several numbers of shards; each case is decoded once."""
    results: Results = {shards: {} for shards in shard_counts}
    for raw in cases:
        kind = apart(raw)
        if kind is not None:
            _add(results, {shards: {kind.group: kind.run([raw])} for shards in shard_counts})
            continue
        try:
            case: Case | FlotillaError = decoded(raw)
        except FlotillaError as cause:
            case = cause
        for shards, groups in results.items():
            group = groups.setdefault(group_of(raw), GroupResult())
            if isinstance(case, Case):
                group.count(_differences(case, shards))
            else:
                group.count([_cannot_be_run(raw["name"], case)])
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


def _differences(case: Case, shards: int) -> list[Difference]:
    try:
        return Replay(case, shards).run()
    except FlotillaError as cause:
        return [_cannot_be_run(case.name, cause)]


def _cannot_be_run(name: str, cause: FlotillaError) -> Difference:
    return Difference(name, "-", "cannot be run", "a run", str(cause))
