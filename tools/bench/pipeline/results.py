"""The table of results."""

from collections.abc import Sequence
from statistics import median

from tools.bench.pipeline.cases import Case, Figures

PROCESSES = (
    ("watcher", "watcher"),
    ("queue", "queue"),
    ("snapshot", "snapshot"),
    ("cycle", "cycle"),
    ("worker", "workers"),
    ("binder", "binder"),
    ("nats", "nats"),
    ("redis", "redis"),
)
"""Kinds of processes, and the titles of their columns."""
COLUMNS = (
    ("workload", -13),
    ("calls", 5),
    ("round", 6),
    ("classes", 7),
    ("pods", 6),
    ("seconds", 7),
    ("decided/s", 9),
    ("bound/s", 7),
    *((title, max(5, len(title))) for _, title in PROCESSES),
    ("total", 5),
    ("simulator", 9),
    ("asks/pod", 8),
)


def heading() -> str:
    return _line([title for title, _ in COLUMNS])


def row(case: Case, run: Figures) -> str:
    costs = [run.micros(kind) for kind, _ in PROCESSES]
    return _line(
        [
            *_labels(case),
            f"{run.pods}",
            f"{run.seconds:.2f}",
            f"{run.rate:.0f}",
            "-" if run.bound_rate is None else f"{run.bound_rate:.0f}",
            *(f"{cost:.0f}" for cost in (*costs, sum(costs), run.micros("simulator"))),
            f"{run.asks:.3f}",
        ]
    )


def shortfall(case: Case, run: Figures) -> str:
    """A note about a run that was stopped early."""
    return f"  stopped after {run.seconds:.0f} s, before assumptions expire: {run.decided} of {case.pods} pods decided"


def spread(runs: Sequence[Figures]) -> str:
    """Minimum, median and maximum of several runs of one case."""
    kinds = [kind for kind, _ in PROCESSES]
    rates = _three([run.rate for run in runs])
    totals = _three([run.micros(*kinds) for run in runs])
    bound = [run.bound_rate for run in runs if run.bound_rate is not None]
    also = f", {_three(bound)} bound/s" if bound else ""
    return f"  min / median / max of {len(runs)}: {rates} decided/s{also}, {totals} µs in total"


def _three(values: Sequence[float]) -> str:
    return f"{min(values):.0f} / {median(values):.0f} / {max(values):.0f}"


def _labels(case: Case) -> tuple[str, str, str, str]:
    return (
        case.workload,
        "yes" if case.api_calls else "no",
        "strict" if case.round_size == 1 else str(case.round_size),
        str(case.classes),
    )


def _line(cells: Sequence[str]) -> str:
    return " ".join(
        f"{cell:>{width}}" if width > 0 else f"{cell:<{-width}}"
        for cell, (_, width) in zip(cells, COLUMNS, strict=True)
    )
