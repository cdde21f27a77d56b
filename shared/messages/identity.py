"""Which pipeline a prefix belongs to, and which process a name."""

import msgspec

from shared.model.base import Count, Seconds, SignedSeconds


class WhoOwns(msgspec.Struct, frozen=True, omit_defaults=True, tag="who-owns"):
    """From a starting process: who uses this prefix? `pipeline`: its own."""

    pipeline: str


class Owner(msgspec.Struct, frozen=True, omit_defaults=True, tag="owner"):
    """The pipeline of the process that replies, and since when (Unix time) it has used the prefix."""

    pipeline: str
    since: Seconds


class LeaseReleased(msgspec.Struct, frozen=True, omit_defaults=True, tag="lease-released"):
    """From the last leader to the standbys of its service: the Lease of this name is free. Only the Lease proves it."""

    lease: str


class NameTaken(msgspec.Struct, frozen=True, omit_defaults=True, tag="name-taken"):
    """From the leader of `epoch` that receives its heartbeats, to the process with this name and incarnation: end.

    `holder`: the incarnation that has the name; it has been running for `age` seconds.
    """

    epoch: Count
    name: str
    incarnation: str
    holder: str
    age: SignedSeconds
