"""flotilla demo: the deciding core at work on a cluster of its own making, with nothing to install or start."""

import argparse
import sys
import time
from collections import Counter

from services.cli.numbers import at_least
from services.cycle import events as cycle
from services.inprocess.demo import Checked, check, make_nodes, make_pods
from services.inprocess.pipeline import Pipeline
from shared.framework.tiebreak import Ties
from shared.model.objects import Pod
from shared.plugins.frameworks import load_frameworks

BATCH = 1_000


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "demo",
        help="schedule pods on a made-up cluster in this process",
        description="Runs snapshot, cycle and workers in this process and schedules pods on a made-up cluster. Exit "
        "code 1 if any pod is unaccounted for, any node overfull, or two pods share a host port.",
    )
    command.add_argument("--nodes", type=at_least(0), default=1_000, metavar="N", help="default 1000")
    command.add_argument("--pods", type=at_least(0), default=10_000, metavar="N", help="default 10000")
    command.add_argument("--kinds", type=at_least(1), default=50, metavar="N", help="kinds of pods (default 50)")
    command.add_argument(
        "--shards", type=at_least(1), default=2, metavar="N", help="workers, each with its part of the nodes"
    )
    command.add_argument(
        "--round-size", type=at_least(1), default=256, metavar="N", help="1 decides as kube-scheduler does"
    )
    command.add_argument("--seed", type=int, default=1, metavar="N", help="for the cluster and for ties (default 1)")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    frameworks = load_frameworks(None, lenient=True)
    pipeline = Pipeline(frameworks, shards=options.shards, round_size=options.round_size, ties=Ties(seed=options.seed))
    print(f"{options.nodes} nodes, {options.pods} pods of {options.kinds} kinds, {options.shards} shards, ", end="")
    print(f"rounds of {options.round_size}, seed {options.seed}")
    missing = sorted(set[str]().union(*(framework.missing for framework in frameworks.values())))
    print(f"plugins that do not exist yet, left out: {', '.join(missing)}")
    pipeline.add_nodes(make_nodes(options.nodes, options.seed))
    pipeline.settle()
    pods = list(make_pods(options.pods, options.kinds, options.seed))
    started, cpu = time.monotonic(), time.process_time()
    for start in range(0, len(pods), BATCH):
        pipeline.submit(pods[start : start + BATCH])
        pipeline.settle()
        _progress(len(pipeline.outcomes), len(pods), time.monotonic() - started)
    cpu = time.process_time() - cpu
    _result(pipeline, pods, time.monotonic() - started, cpu)
    return _verdict(check(pipeline, pods))


def _progress(done: int, total: int, seconds: float) -> None:
    line = f"{done:>7} of {total} pods judged, {done / max(seconds, 0.001):,.0f} a second"
    if sys.stdout.isatty():
        print(f"\r{line}", end="\n" if done == total else "", flush=True)
    else:
        print(line, flush=True)


def _result(pipeline: Pipeline, pods: list[Pod], seconds: float, cpu: float) -> None:
    outcomes = [pipeline.outcomes[pod.uid] for pod in pods if pod.uid in pipeline.outcomes]
    placed = Counter(outcome.node for outcome in outcomes if isinstance(outcome, cycle.Decided))
    print(
        f"\nplaced      {placed.total()} pods on {len(placed)} nodes, {max(placed.values(), default=0)} at most on one"
    )
    print(f"rounds      {pipeline.cycle.rounds}")
    print(f"time        {seconds:.1f} s, {1e6 * cpu / len(pods):.0f} us of CPU a pod, messages encoded and decoded")
    reasons: dict[str, list[str]] = {}
    for pod in pods:
        outcome = pipeline.outcomes.get(pod.uid)
        if isinstance(outcome, cycle.Unschedulable):
            reasons.setdefault(outcome.unfit.message, []).append(pod.key)
        elif isinstance(outcome, cycle.Failed):
            reasons.setdefault(outcome.status.message, []).append(pod.key)
    for message, keys in reasons.items():
        others = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
        print(f"pending     {keys[0]}{others}: {message}")


def _verdict(found: Checked) -> int:
    for what, names in (
        ("every pod accounted for once", found.unaccounted),
        ("no node over its allocatable", found.overfull),
        ("no host port taken twice", found.port_clashes),
        ("nothing left in the ledger", found.left_in_ledger),
    ):
        print(f"{'ok' if not names else 'BROKEN':<12}{what}{': ' + ', '.join(names[:5]) if names else ''}")
    return 0 if found.ok else 1
