"""Where NATS is, and what it takes to be let in."""

from dataclasses import dataclass, field
from urllib.parse import SplitResult, unquote, urlsplit

from shared.config.settings import Settings
from shared.errors import UserError
from shared.tls import TlsFiles

DEFAULT_PORT = 4222
SCHEMES = ("nats", "tls")
UNREADABLE = "the NATS URL cannot be read: nats://user:password@host:port, or several with commas between, is expected"


@dataclass(frozen=True, slots=True, kw_only=True)
class NatsAccess:
    url: str = field(repr=False)
    """Of one server, or of several with commas between. `tls://` insists on TLS, `nats://` has it where asked for."""
    files: TlsFiles = field(default_factory=TlsFiles)
    credentials: str | None = None
    """A file with a user's JWT and seed; it counts where the server asks for that."""

    @classmethod
    def of(cls, settings: Settings) -> "NatsAccess":
        files = TlsFiles(settings.nats_ca, settings.nats_cert, settings.nats_key)
        return cls(url=settings.nats_url, files=files, credentials=settings.nats_credentials)


@dataclass(frozen=True, slots=True)
class Servers:
    """What a URL says. Without `password`, `user` is a token."""

    urls: list[str]
    insists_on_tls: bool
    user: str | None = field(repr=False)
    password: str | None = field(repr=False)

    @property
    def where(self) -> str:
        """host:port of each, which can be told to anybody."""
        return ",".join(url.partition("://")[2] for url in self.urls)


def read_url(url: str) -> Servers:
    """UserError if it is none, or names several users."""
    parts = [_split(each) for each in url.split(",")]
    users = {(each.username, each.password) for each in parts if each.username is not None}
    if len(users) > 1:
        raise UserError("the NATS URL names several users: they have to be the same for all servers")
    user, password = users.pop() if users else (None, None)
    return Servers(
        [f"{each.scheme}://{_host(each)}" for each in parts],
        any(each.scheme == "tls" for each in parts),
        None if user is None else unquote(user),
        None if password is None else unquote(password),
    )


def where(url: str) -> str:
    """As `Servers.where`; UserError if the URL is none."""
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
