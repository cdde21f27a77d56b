"""Who is who: which pipeline a prefix belongs to, and which of two processes of one name goes on."""

import msgspec


class WhoOwns(msgspec.Struct, frozen=True, omit_defaults=True, tag="who-owns"):
    """From a process that starts: whose is this prefix? `pipeline`: its own."""

    pipeline: str


class Owner(msgspec.Struct, frozen=True, omit_defaults=True, tag="owner"):
    """The pipeline that the answering process is part of, and since when (Unix time) it has been."""

    pipeline: str
    since: float


class NameCheck(msgspec.Struct, frozen=True, omit_defaults=True, tag="name-check"):
    """To all processes of one name: beat at once, and with this `nonce` from here on. It shows which of them live."""

    nonce: str


class NameTaken(msgspec.Struct, frozen=True, omit_defaults=True, tag="name-taken"):
    """To the process of this incarnation: another one has your name, so end."""

    incarnation: str
