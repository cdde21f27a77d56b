"""Builds in which one fence is switched off, to show that the simulation would notice."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext

from shared.errors import UserError

Break = Callable[[], AbstractContextManager[None]]


def broken_build(name: str) -> AbstractContextManager[None]:
    """Empty: nothing is broken. UserError if there is none of this name."""
    if not name:
        return nullcontext()
    if name not in BROKEN:
        raise UserError(f"--broken: {name!r} is none of: {', '.join(BROKEN)}")
    return BROKEN[name]()


BROKEN: Mapping[str, Break] = {}
"""By the name that `--broken` takes."""
