"""Ownership: which of two pipelines runs that share an API server and have a NATS each. The snapshot's Lease names it.

Leases are shared by all who connect to the API server, messages only by those who connect to one NATS. Without a rule,
the leaders of one pipeline could hold some of the four Leases and those of the other pipeline the rest: none would hear
what it needs, and both pipelines would stand still. So the four leaders move together:

- Every leader writes the identity of its NATS into its Lease (`Record.network`).
- The snapshot's Lease is taken as any other, also from another pipeline, once nobody renews it.
- The other three Leases are not taken while somebody of another NATS holds the snapshot's.
- Who sees another pipeline renew the snapshot's Lease for SURE seconds ends, whether it stands by or leads.

Decisions never rest on this: epochs, pods' versions and the store's history fence those.
"""

from dataclasses import dataclass
from enum import Enum

from shared.kube.election import Record

SURE = 8.0
"""Seconds for which another pipeline must have renewed the snapshot's Lease before anybody ends because of it.

After NATS was replaced, a leader takes up to 6 s to notice; until then its Lease names the NATS before.
"""


class Standing(Enum):
    OURS = "ours"
    """Nobody of another pipeline holds the snapshot's Lease."""
    ANOTHERS = "another's"
    """Somebody does, or has left it behind."""
    REFUSED = "refused"
    """Somebody does, and renews it: we are the second pipeline."""


@dataclass(slots=True)
class _Other:
    record: Record
    first_seen_at: float
    renewed_at: float


class Ownership:
    """Told what the snapshot's Lease says each time that it was looked at. Clocks are never compared."""

    def __init__(self) -> None:
        self._other: _Other | None = None

    def judge(self, record: Record | None, network: str, now: float) -> Standing:
        """`network`: the identity of our NATS."""
        if record is None or not record.holder or record.network in ("", network):
            self._other = None
            return Standing.OURS
        other = self._other
        if other is None or other.record.network != record.network:
            self._other = _Other(record, now, now)
            return Standing.ANOTHERS
        if record != other.record:
            other.record, other.renewed_at = record, now
        return Standing.REFUSED if other.renewed_at - other.first_seen_at >= SURE else Standing.ANOTHERS


def described(where: str, record: Record) -> str:
    """Who has the pipeline, for people. `where`: the snapshot's Lease."""
    since = f" since {record.acquired}" if record.acquired else ""
    return f"{where} is held by {record.holder}{since}, of a pipeline that uses another NATS than this one"


def what_to_do(where: str, record: Record) -> str:
    """For who ends because of it."""
    return (
        f"{described(where, record)}: stop that pipeline and start this one again (if it has crashed, start again once"
        f" its Lease has run out), or connect this one to the same NATS (FLOTILLA_NATS_URL)"
    )
