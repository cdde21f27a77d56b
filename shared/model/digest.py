"""What is looked at only to tell whether it has changed: kept as a digest, however large it is."""

import hashlib
from typing import Any

import msgspec

_BYTES = 16


class Digest(str):
    """Of plain data, in whatever order its fields come. Empty for what is not there, and for a list of nothing."""

    __slots__ = ()


def digest_of(plain: Any) -> Digest:
    """A text is taken to be a digest: where structures or lists are expected, the API has no texts."""
    if isinstance(plain, str):
        return Digest(plain)
    if plain is None or plain == []:
        return Digest()
    return Digest(hashlib.blake2b(msgspec.json.encode(plain, order="sorted"), digest_size=_BYTES).hexdigest())
