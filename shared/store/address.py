"""A parsed Redis URL: one server, or sentinels that know the master."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qs, unquote, urlsplit

from shared.errors import UserError
from shared.tls import TlsFiles

DEFAULT_PORT = 6379
SENTINEL_PORT = 26379
SENTINEL = "+sentinel"
ACCEPTED = "redis://, rediss://, unix:// or redis+sentinel://, special characters in a password percent-encoded"
OPTIONS = frozenset({"db", "ssl_ca_certs", "ssl_certfile", "ssl_keyfile"})
SENTINEL_OPTIONS = OPTIONS | {"sentinel_username", "sentinel_password"}

Host = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Login:
    user: str | None = None
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """`hosts`: the server, or the sentinels of `master`; empty with a socket at `path`."""

    hosts: tuple[Host, ...] = ()
    path: str = ""
    database: int = 0
    login: Login = Login()
    tls: TlsFiles | None = None
    master: str = ""
    sentinel_login: Login = Login()

    @property
    def where(self) -> str:
        """The address without secrets."""
        if self.path:
            return self.path
        hosts = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts)
        return f"{self.master} of sentinels {hosts}" if self.master else hosts


def read_url(url: str) -> Address:
    """UserError, without anything that may be a password."""
    scheme, _, _ = url.partition("://")
    if scheme in ("redis+cluster", "rediss+cluster"):
        raise UserError("redis URL: a Redis Cluster cannot be used: the state has to be on one server; use " + ACCEPTED)
    try:
        parts = urlsplit(url)
        options = parse_qs(parts.query, strict_parsing=bool(parts.query))
        if scheme == "unix":
            hosts: tuple[Host, ...] = ()
        elif scheme in ("redis", "rediss"):
            hosts = (_host(parts.netloc.rpartition("@")[2], DEFAULT_PORT),)
        else:
            hosts = tuple(_host(each, SENTINEL_PORT) for each in parts.netloc.rpartition("@")[2].split(","))
    except ValueError:
        raise UserError(f"redis URL: host, port or options cannot be read; use {ACCEPTED}") from None
    login = _login(parts.netloc)
    given = _given(options, parts.fragment, SENTINEL_OPTIONS if scheme.endswith(SENTINEL) else OPTIONS)
    tls = _tls(given, asked_for=scheme.startswith("rediss"))
    if scheme == "unix" and parts.path:
        return Address(path=unquote(parts.path), database=_database(given.get("db", "")), login=login)
    if scheme not in ("redis", "rediss", "redis" + SENTINEL, "rediss" + SENTINEL) or not all(h for h, _ in hosts):
        raise UserError(f"redis URL: no server is named; use {ACCEPTED}")
    master, database = _path(parts.path, named=scheme.endswith(SENTINEL))
    return Address(
        hosts=hosts,
        database=_database(given.get("db", database)),
        login=login,
        tls=tls,
        master=master,
        sentinel_login=Login(given.get("sentinel_username"), given.get("sentinel_password")),
    )


def _host(text: str, default: int) -> Host:
    parts = urlsplit(f"//{text.strip()}")
    return parts.hostname or "", parts.port or default


def _login(netloc: str) -> Login:
    given, at, _ = netloc.rpartition("@")
    user, _, password = given.partition(":")
    return Login(unquote(user) or None, unquote(password) or None) if at else Login()


def _given(options: Mapping[str, list[str]], fragment: str, known: frozenset[str]) -> dict[str, str]:
    if fragment or not known.issuperset(options):
        raise UserError(f"redis URL: only the options {', '.join(sorted(known))} can be given; use {ACCEPTED}")
    return {name: values[-1] for name, values in options.items()}


def _tls(given: Mapping[str, str], *, asked_for: bool) -> TlsFiles | None:
    if not asked_for:
        if any(name.startswith("ssl_") for name in given):
            raise UserError("redis URL: certificates are for TLS, that is rediss:// or rediss+sentinel://")
        return None
    return TlsFiles(given.get("ssl_ca_certs"), given.get("ssl_certfile"), given.get("ssl_keyfile"))


def _path(path: str, *, named: bool) -> tuple[str, str]:
    """The master's name, if there is to be one, and the database number."""
    first, _, rest = path.strip("/").partition("/")
    if not named:
        return "", path.strip("/")
    if not first:
        raise UserError("redis URL: redis+sentinel://host:26379/NAME is expected, the name of the master")
    return unquote(first), rest


def _database(text: str) -> int:
    if text and not (text.isascii() and text.isdecimal() and len(text) < 6):
        raise UserError(f"redis URL: a database has a number, not a name; use {ACCEPTED}")
    return int(text or 0)
