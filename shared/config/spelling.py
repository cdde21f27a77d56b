"""Guess which name was meant."""

import difflib
from collections.abc import Iterable


def did_you_mean(given: object, known: Iterable[str], prefix: str = "") -> str:
    """` (did you mean X?)` with the one that is nearest, whatever its capitals; empty if none is near.

    `prefix`: all have it, so it makes none of them near.
    """
    by_fold = {name.removeprefix(prefix).casefold(): name for name in known}
    near = difflib.get_close_matches(str(given).removeprefix(prefix).casefold(), by_fold, n=1)
    return f" (did you mean {by_fold[near[0]]}?)" if near else ""
