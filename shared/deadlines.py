"""Deadlines, any of which may be absent."""


def earliest(*deadlines: float | None) -> float | None:
    """The first of them; None if all are absent."""
    first: float | None = None
    for deadline in deadlines:
        if deadline is not None and (first is None or deadline < first):
            first = deadline
    return first
