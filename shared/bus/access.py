"""Where NATS is and how to authenticate: the URL, TLS files, and credentials files as NATS's own tools write them."""

import base64
import binascii
import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from shared.config.settings import Settings
from shared.errors import UserError
from shared.tls import TlsFiles

DEFAULT_PORT = 4222
SCHEMES = ("nats", "tls")
UNREADABLE = "invalid NATS URL: expected nats://user:password@host:port, or several separated by commas"


@dataclass(frozen=True, slots=True, kw_only=True)
class NatsAccess:
    url: str = field(repr=False)
    """One server, or several separated by commas. `tls://` requires TLS, `nats://` uses it if the server does."""
    files: TlsFiles = field(default_factory=TlsFiles)
    credentials: str | None = None
    """A file with a user's JWT and seed, used if the server asks for it."""

    @classmethod
    def of(cls, settings: Settings) -> "NatsAccess":
        files = TlsFiles(settings.nats_ca, settings.nats_cert, settings.nats_key)
        return cls(url=settings.nats_url, files=files, credentials=settings.nats_credentials)


@dataclass(frozen=True, slots=True)
class Servers:
    """The parts of a URL. Without `password`, `user` is a token."""

    urls: list[str]
    insists_on_tls: bool
    user: str | None = field(repr=False)
    password: str | None = field(repr=False)

    @property
    def where(self) -> str:
        """host:port of each; contains no secret."""
        return ",".join(url.partition("://")[2] for url in self.urls)


def read_url(url: str) -> Servers:
    """UserError if the URL is invalid or names several users."""
    parts = [_split(each) for each in url.split(",")]
    users = {(each.username, each.password) for each in parts if each.username is not None}
    if len(users) > 1:
        raise UserError("the NATS URL names several users: use the same one for all servers")
    user, password = users.pop() if users else (None, None)
    return Servers(
        [f"{each.scheme}://{_host(each)}" for each in parts],
        any(each.scheme == "tls" for each in parts),
        None if user is None else unquote(user),
        None if password is None else unquote(password),
    )


def where(url: str) -> str:
    """Like `Servers.where`; UserError if the URL is invalid."""
    return read_url(url).where


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url.strip())
        usable = parts.scheme in SCHEMES and parts.hostname and parts.port != 0
    except ValueError:
        raise UserError(UNREADABLE) from None  # the cause may repeat the password
    if not usable or parts.path.strip("/") or parts.query or parts.fragment:
        raise UserError(UNREADABLE)
    return parts


def _host(parts: SplitResult) -> str:
    host = parts.hostname or ""
    return f"[{host}]:{parts.port or DEFAULT_PORT}" if ":" in host else f"{host}:{parts.port or DEFAULT_PORT}"


_JWT = re.compile(r"-+BEGIN NATS USER JWT-+\s+([\w.=-]+)\s+-+END")
_SEED = re.compile(r"-+BEGIN USER NKEY SEED-+\s+([A-Z2-7]+)\s+-+END")
SEED_OF_A_USER = (18 << 3, 20 << 3)
"""In the first 13 bits of a decoded seed."""
KEY_BYTES = 32
_SEED_BYTES = 2 + KEY_BYTES + 2


@dataclass(frozen=True, slots=True)
class NatsCredentials:
    jwt: str = field(repr=False)
    key: bytes = field(repr=False)

    def sign(self, nonce: str) -> bytes:
        from nacl.signing import SigningKey  # lazily: few processes need it

        return base64.b64encode(SigningKey(self.key).sign(nonce.encode()).signature)


def read_credentials(path: str) -> NatsCredentials:
    """UserError if the file is missing or invalid."""
    try:
        text = Path(path).read_text()
    except OSError as cause:
        raise UserError(f"{path}: {cause.strerror}") from cause
    except ValueError:
        raise UserError(f"{path}: not a NATS credentials file: it has no user JWT and seed") from None
    jwt, seed = _JWT.search(text), _SEED.search(text)
    if jwt is None or seed is None:
        raise UserError(f"{path}: not a NATS credentials file: it has no user JWT and seed")
    key = _decode_seed(seed[1])
    if key is None:
        raise UserError(f"{path}: its seed is not that of a user")
    return NatsCredentials(jwt[1], key)


def _decode_seed(text: str) -> bytes | None:
    """Decode base32 of the kind of seed, the key, and a checksum over both."""
    try:
        raw = base64.b32decode(text + "=" * (-len(text) % 8))
    except binascii.Error:
        return None
    if len(raw) != _SEED_BYTES or binascii.crc_hqx(raw[:-2], 0) != int.from_bytes(raw[-2:], "little"):
        return None
    kind = (raw[0] & 0xF8, (raw[0] & 0x07) << 5 | (raw[1] & 0xF8) >> 3)
    return raw[2:-2] if kind == SEED_OF_A_USER else None
