"""Golden cases that are not about placing pods, and so independent of shards: each kind has its own runner."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from testing.inprocess.comparison import GroupResult
from testing.inprocess.config_cases import GROUP as CONFIGURATIONS
from testing.inprocess.config_cases import is_config_case, run_config_cases
from testing.inprocess.hint_cases import (
    HINTS,
    REGISTERED,
    is_hint_case,
    is_registered_case,
    run_hint_cases,
    run_registered_cases,
)
from testing.inprocess.requeue_cases import GROUP as REQUEUE
from testing.inprocess.requeue_cases import is_requeue_case, run_requeue_cases


@dataclass(frozen=True, slots=True)
class Apart:
    """`recognises` checks the shape of a whole case, so that `run` accepts it."""

    group: str
    recognises: Callable[[object], bool]
    run: Callable[[Iterable[Mapping[str, Any]]], GroupResult]


KINDS = (
    Apart(CONFIGURATIONS, is_config_case, run_config_cases),
    Apart(HINTS, is_hint_case, run_hint_cases),
    Apart(REGISTERED, is_registered_case, run_registered_cases),
    Apart(REQUEUE, is_requeue_case, run_requeue_cases),
)


def apart(case: object) -> Apart | None:
    """The kind of a case that is independent of shards; None for a case about placing pods."""
    return next((kind for kind in KINDS if kind.recognises(case)), None)
