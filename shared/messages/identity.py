"""Which pipeline a prefix belongs to."""

import msgspec


class WhoOwns(msgspec.Struct, frozen=True, omit_defaults=True, tag="who-owns"):
    """From a process that starts: whose is this prefix? `pipeline`: its own."""

    pipeline: str


class Owner(msgspec.Struct, frozen=True, omit_defaults=True, tag="owner"):
    """The pipeline that the answering process is part of, and since when (Unix time) it has been."""

    pipeline: str
    since: float


class NameTaken(msgspec.Struct, frozen=True, omit_defaults=True, tag="name-taken"):
    """To the process of this name and incarnation, from the leader of `epoch` that hears its beats: it is to end.

    `holder`: the incarnation that has the name; it has been running for `age` seconds.
    """

    epoch: int
    name: str
    incarnation: str
    holder: str
    age: float
