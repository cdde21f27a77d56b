"""A user's credentials file, as NATS's own tools write them: a JWT, and the seed that signs what the server asks."""

import base64
import binascii
import re
from dataclasses import dataclass, field
from pathlib import Path

from shared.errors import UserError

_JWT = re.compile(r"-+BEGIN NATS USER JWT-+\s+([\w.=-]+)\s+-+END")
_SEED = re.compile(r"-+BEGIN USER NKEY SEED-+\s+([A-Z2-7]+)\s+-+END")
SEED_OF_A_USER = (18 << 3, 20 << 3)
"""What its first 13 bits say."""
KEY_BYTES = 32
_SEED_BYTES = 2 + KEY_BYTES + 2


@dataclass(frozen=True, slots=True)
class Credentials:
    jwt: str = field(repr=False)
    key: bytes = field(repr=False)

    def sign(self, nonce: str) -> bytes:
        from nacl.signing import SigningKey  # few need it

        return base64.b64encode(SigningKey(self.key).sign(nonce.encode()).signature)


def read_credentials(path: str) -> Credentials:
    """UserError where that is no such file."""
    try:
        text = Path(path).read_text()
    except OSError as cause:
        raise UserError(f"{path}: {cause.strerror}") from cause
    except ValueError:
        raise UserError(f"{path}: holds no JWT and seed of a NATS user") from None
    jwt, seed = _JWT.search(text), _SEED.search(text)
    if jwt is None or seed is None:
        raise UserError(f"{path}: holds no JWT and seed of a NATS user")
    key = _decode_seed(seed[1])
    if key is None:
        raise UserError(f"{path}: its seed is none of a user")
    return Credentials(jwt[1], key)


def _decode_seed(text: str) -> bytes | None:
    """Base32 of: which kind of seed, the key, and a checksum over both."""
    try:
        raw = base64.b32decode(text + "=" * (-len(text) % 8))
    except binascii.Error:
        return None
    if len(raw) != _SEED_BYTES or binascii.crc_hqx(raw[:-2], 0) != int.from_bytes(raw[-2:], "little"):
        return None
    kind = (raw[0] & 0xF8, (raw[0] & 0x07) << 5 | (raw[1] & 0xF8) >> 3)
    return raw[2:-2] if kind == SEED_OF_A_USER else None
