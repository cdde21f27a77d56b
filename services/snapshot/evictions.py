"""Who is to make way for a nominated pod, as a binder is told."""

from collections.abc import Iterable

from services.snapshot.state.ledger import Ledger
from services.snapshot.state.nominator import Nomination
from shared.messages.binding import Displaced, Evict
from shared.messages.state import Nominate

EVICTION_WINDOW = 20.0
"""Seconds that a binder has for an eviction: less than the queue holds the pod back for it."""


def evicts(wanted: Nominate) -> bool:
    """Whether somebody has still to be told to go. The cycle counts on an Evict where, and only where, this is so."""
    return any(not victim.terminating for victim in wanted.victims)


def evict_of(
    wanted: Nominate, epoch: int, attempt: int, ledger: Ledger, losers: Iterable[tuple[str, Nomination]]
) -> Evict:
    """`losers`: who is not nominated there any more, because this pod is."""
    assumed = ledger.entries()
    victims: list[Displaced] = []
    for victim in wanted.victims:
        if not victim.terminating:
            entry = assumed.get(victim.uid)
            victims.append(_displaced(victim.uid, victim.key, 0 if entry is None or entry.bound else entry.attempt))
    return Evict(
        epoch=epoch,
        attempt=attempt,
        uid=wanted.uid,
        namespace=wanted.assignment.namespace,
        name=wanted.assignment.name,
        profile=wanted.profile,
        node=wanted.node,
        victims=victims,
        denominated=[_displaced(uid, nomination.key) for uid, nomination in losers],
        window=EVICTION_WINDOW,
    )


def _displaced(uid: str, key: str, attempt: int = 0) -> Displaced:
    namespace, _, name = key.partition("/")
    return Displaced(uid, namespace, name, attempt)
