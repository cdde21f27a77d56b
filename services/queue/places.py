"""The places a pod can be in, and the ways between them."""

from enum import StrEnum


class Place(StrEnum):
    NEW = "new"
    """Just heard of; never its place when an event has been handled."""
    GATED = "gated"
    """A PreEnqueue plugin or its gang keeps it out, or victims of its preemption are still being told to go."""
    ACTIVE = "active"
    BACKOFF = "backoff"
    """Rejected, and to rest before the next attempt; taken earlier when nothing is active."""
    ERROR_BACKOFF = "error-backoff"
    """An attempt failed by an error; never taken before its time."""
    UNSCHEDULABLE = "unschedulable"
    """Rejected; waits for a change of the cluster or of itself that may help, or for the time limit."""
    IN_FLIGHT = "in-flight"
    """Handed to cycle, no outcome yet."""
    BINDING = "binding"
    """Decided, not yet seen bound."""
    DONE = "done"
    """Bound, deleted or not ours any more; forgotten."""

    __hash__ = str.__hash__  # every move looks several of them up, and an Enum's own is slow


TRANSITIONS: dict[Place, frozenset[Place]] = {
    Place.NEW: frozenset({Place.GATED, Place.ACTIVE, Place.BACKOFF, Place.ERROR_BACKOFF}),
    Place.GATED: frozenset({Place.ACTIVE, Place.BACKOFF, Place.ERROR_BACKOFF, Place.BINDING, Place.DONE}),
    Place.ACTIVE: frozenset({Place.GATED, Place.IN_FLIGHT, Place.BINDING, Place.DONE}),
    Place.BACKOFF: frozenset({Place.GATED, Place.ACTIVE, Place.IN_FLIGHT, Place.BINDING, Place.DONE}),
    Place.ERROR_BACKOFF: frozenset({Place.ACTIVE, Place.IN_FLIGHT, Place.BINDING, Place.DONE}),
    Place.UNSCHEDULABLE: frozenset(
        {Place.GATED, Place.ACTIVE, Place.BACKOFF, Place.IN_FLIGHT, Place.BINDING, Place.DONE}
    ),
    Place.IN_FLIGHT: frozenset(
        {
            Place.GATED,
            Place.ACTIVE,
            Place.BACKOFF,
            Place.ERROR_BACKOFF,
            Place.UNSCHEDULABLE,
            Place.BINDING,
            Place.DONE,
        }
    ),
    Place.BINDING: frozenset(
        {
            Place.GATED,
            Place.ACTIVE,
            Place.BACKOFF,
            Place.ERROR_BACKOFF,
            Place.UNSCHEDULABLE,
            Place.DONE,
        }
    ),
    Place.DONE: frozenset(),
}
"""From each place, where to a pod may go. BINDING is reached from everywhere: a decision may be heard of late."""
