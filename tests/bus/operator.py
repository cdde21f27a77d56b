"""A NATS operator, an account and its users, as NATS's own tools make them: keys, and JWTs that these sign."""

import base64
import binascii
import json
import time
from typing import Any

from nacl.signing import SigningKey

KINDS = {"operator": 14 << 3, "account": 0, "user": 20 << 3}
SEED = 18 << 3
NO_LIMITS = {"subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": True, "conn": -1}


class Key:
    def __init__(self, kind: str) -> None:
        self._kind = KINDS[kind]
        self._key = SigningKey.generate()

    @property
    def public(self) -> str:
        return _spelt(bytes([self._kind]) + bytes(self._key.verify_key))

    @property
    def seed(self) -> str:
        return _spelt(bytes([SEED | self._kind >> 5, (self._kind & 0x1F) << 3]) + bytes(self._key))

    def says(self, subject: str, nats: dict[str, Any], **claims: object) -> str:
        """A JWT about the owner of this public key."""
        head = {"typ": "JWT", "alg": "ed25519-nkey"}
        body = {"jti": "x", "iat": int(time.time()), "iss": self.public, "name": "x", "sub": subject}
        text = ".".join(_unpadded(json.dumps(part).encode()) for part in (head, {**body, **claims, "nats": nats}))
        return f"{text}.{_unpadded(self._key.sign(text.encode()).signature)}"


class Operator:
    """`admission` lets in the users of its one account."""

    def __init__(self) -> None:
        operator, self._account = Key("operator"), Key("account")
        operator_jwt = operator.says(operator.public, {"type": "operator", "version": 2})
        account_jwt = operator.says(
            self._account.public, {"type": "account", "version": 2, "limits": NO_LIMITS, "default_permissions": {}}
        )
        preloaded = f'resolver_preload {{ {self._account.public}: "{account_jwt}" }}'
        self.admission = f'operator: "{operator_jwt}"\nresolver: MEMORY\n{preloaded}\n'

    def credentials(self, seconds: float = 3600.0) -> str:
        """A new user's file; after this many seconds the server refuses it."""
        user = Key("user")
        permissions = {"pub": {}, "sub": {}, "subs": -1, "data": -1, "payload": -1}
        jwt = self._account.says(
            user.public, {"type": "user", "version": 2, **permissions}, exp=int(time.time() + seconds)
        )
        return (
            f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
            f"*** keep it to yourself ***\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{user.seed}\n------END USER NKEY SEED------\n"
        )


def _spelt(raw: bytes) -> str:
    return base64.b32encode(raw + binascii.crc_hqx(raw, 0).to_bytes(2, "little")).decode().rstrip("=")


def _unpadded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
