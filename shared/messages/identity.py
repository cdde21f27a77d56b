"""Which pipeline a prefix belongs to."""

import msgspec


class WhoOwns(msgspec.Struct, frozen=True, omit_defaults=True, tag="who-owns"):
    """From a process that starts: whose is this prefix? `pipeline`: its own."""

    pipeline: str


class Owner(msgspec.Struct, frozen=True, omit_defaults=True, tag="owner"):
    """The pipeline that the answering process is part of, and since when (Unix time) it has been."""

    pipeline: str
    since: float
