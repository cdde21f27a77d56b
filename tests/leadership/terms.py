"""Which term may follow another one."""

import time

from shared.terms import TERMS_BEGIN


def is_next(term: int, before: int) -> bool:
    """The term after `before`, or the present minute where that is later: a slow test may last longer than one."""
    return before < term <= max(before + 1, int((time.time() - TERMS_BEGIN) // 60))
