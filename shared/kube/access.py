"""Where the API server is and how to authenticate: from a URL and token, a kubeconfig, or a pod's service account.

Kubeconfigs and service accounts are read again periodically, before their credentials expire, and when the server
refuses them.
"""

import asyncio
import re
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, time
from typing import Any
from urllib.parse import urlsplit

from shared.config.document import ConfigSource, DocumentFault, parse_document
from shared.config.settings import ApiSettings
from shared.config.structs import DEFAULT_BURST, DEFAULT_QPS
from shared.errors import FlotillaError, UserError
from shared.kube.credentials import FoundAccess, Kubeconfig, KubeCredentials, TlsMaterial, in_cluster, make_context
from shared.kube.errors import one_line
from shared.kube.outcome import TokenBucket
from shared.proxies import checked_proxy, proxy_of_environment
from shared.telemetry.logs import logger

log = logger("kube")


@dataclass(frozen=True, slots=True)
class ClientConnection:
    """The `clientConnection` of the configuration file. `rate`: calls a second, None for no limit.

    Only what the file sets counts. kube-scheduler's default of 50 calls a second does not apply: the server limits us
    itself, by priority and fairness and by 429.
    """

    kubeconfig: str | None = None
    rate: float | None = None
    burst: int = DEFAULT_BURST

    def bucket(self) -> TokenBucket | None:
        return None if self.rate is None else TokenBucket(self.rate, self.burst)


DEFAULT_CONNECTION = ClientConnection()


def client_connection(source: ConfigSource | None) -> ClientConnection:
    """The settings of a valid file; `load_config` reports what is wrong with an invalid one."""
    try:
        document = None if source is None else parse_document(source.text).value
    except DocumentFault:
        return DEFAULT_CONNECTION
    given: Any = document.get("clientConnection") if isinstance(document, dict) else None
    if not isinstance(given, dict):
        return DEFAULT_CONNECTION
    qps, burst = given.get("qps") or 0, given.get("burst") or 0
    limited = bool(qps or burst) and qps >= 0
    return ClientConnection(
        kubeconfig=given.get("kubeconfig") or None,
        rate=float(qps or DEFAULT_QPS) if limited else None,
        burst=burst or DEFAULT_BURST,
    )


REFRESH_EVERY = 60.0
"""Most seconds between two refreshes."""
REFRESH_AFTER_REFUSAL = 5.0
"""Least seconds since the last refresh before refused credentials are refreshed."""
REFRESH_PATIENCE = 30.0
"""Seconds that an exec plugin or identity provider may take."""

Look = Callable[[bool], Awaitable[KubeCredentials]]
"""Its argument: whether the credentials in use were refused."""

_OBJECT_TEXT = re.compile(r"/?\{.*", re.DOTALL)
"""Messages about a kubeconfig may contain a whole entry, with its secrets."""


class Access:
    """How to reach the server. `generation` rises whenever the credentials change.

    A connection made with earlier credentials may be used to its end; later calls make new connections.
    """

    def __init__(
        self,
        server: str,
        credentials: KubeCredentials,
        *,
        server_hostname: str | None = None,
        proxy: str | None = None,
        look: Look | None = None,
    ) -> None:
        self.server = server
        self.server_hostname = server_hostname
        self.proxy = proxy or proxy_of_environment(server)
        self.generation = 0
        self._credentials = credentials
        self._look_for = look
        self._refreshed_at = monotonic()
        self._refresh_at = self._refreshed_at + self._interval()
        self._refreshing: asyncio.Task[None] | None = None
        self._refused = False
        """Whether the credentials in use were refused before or during the refresh."""

    @property
    def authorization(self) -> str | None:
        """The header's value; None with a certificate or without credentials."""
        return self._credentials.authorization

    @property
    def tls(self) -> ssl.SSLContext | None:
        return self._credentials.tls

    def is_stale(self) -> bool:
        """Whether it is time to refresh the credentials."""
        return self._look_for is not None and monotonic() >= self._refresh_at

    async def freshen(self) -> None:
        """Refresh in the background; wait for it only if the present credentials have expired."""
        looking = self._begin_refresh(refused=False)
        expires = self._credentials.expires
        if looking is not None and expires is not None and time() >= expires:
            await asyncio.shield(looking)

    async def refresh(self, *, refused: bool = False, generation: int | None = None) -> bool:
        """Refresh the credentials, once for all concurrent callers; return whether they have changed.

        `generation`: the refused one; if there is a newer one already, that is to be tried first. A failed refresh is
        logged and keeps the old credentials: the server decides whether they still work.
        """
        before = self.generation if generation is None else generation
        if self.generation == before:
            if self._refreshing is None and refused and monotonic() - self._refreshed_at < REFRESH_AFTER_REFUSAL:
                return False
            looking = self._begin_refresh(refused=refused)
            if looking is not None:
                await asyncio.shield(looking)
        return self.generation != before

    async def close(self) -> None:
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.gather(self._refreshing, return_exceptions=True)

    def _begin_refresh(self, *, refused: bool) -> "asyncio.Task[None] | None":
        self._refused |= refused
        if self._refreshing is None and self._look_for is not None:
            self._refreshing = asyncio.create_task(self._refresh(self._look_for))
        return self._refreshing

    async def _refresh(self, look: Look) -> None:
        try:
            async with asyncio.timeout(REFRESH_PATIENCE):
                refused = self._refused
                changed = self._take(await look(refused))
                if self._refused and not (refused or changed):
                    self._take(await look(True))
        except Exception as cause:  # plugins and identity providers may raise anything
            log.warning("%s: credentials not refreshed: %s", self.server, _describe(cause))
        finally:
            self._refreshed_at = monotonic()
            self._refresh_at = self._refreshed_at + self._interval()
            self._refreshing, self._refused = None, False

    def _take(self, found: KubeCredentials) -> bool:
        """Whether they are other ones than before."""
        before, self._credentials = self._credentials, found
        changed = (found.authorization, found.tls) != (before.authorization, before.tls)
        self.generation += changed
        return changed

    def _interval(self) -> float:
        """Seconds until the next refresh."""
        renew_at = self._credentials.renew_at
        return REFRESH_EVERY if renew_at is None else min(REFRESH_EVERY, max(renew_at - time(), REFRESH_AFTER_REFUSAL))


async def find_access(settings: ApiSettings, kubeconfig: str | None = None) -> Access:
    """`kubeconfig`: used if the settings name neither a server nor a kubeconfig.

    Raises UserError, on one line, naming the file or setting and what is wrong with it.
    """
    if settings.server is not None:
        return _plain(settings.server, settings.token)
    path = settings.kubeconfig if settings.kubeconfig is not None else kubeconfig
    if path is not None:
        return await _from_kubeconfig(path, settings.context)
    try:
        found = await in_cluster(False)
    except FlotillaError as cause:
        raise UserError(str(cause) if isinstance(cause, UserError) else f"service account: {cause}") from cause
    return _access(found, "service account", in_cluster)


def _plain(server: str, token: str | None) -> Access:
    authorization = f"Bearer {token.strip()}" if token else None
    checked = _checked(server, "server")
    tls = make_context(TlsMaterial()) if checked.startswith("https:") else None
    return Access(checked, KubeCredentials(authorization, tls))


async def _from_kubeconfig(path: str, context: str | None) -> Access:
    if not Path(path).is_file():
        raise UserError(f"{path}: no such file")
    source = Kubeconfig(path, context)
    try:
        async with asyncio.timeout(REFRESH_PATIENCE):
            found = await source.look(False)
    except Exception as cause:  # malformed files raise undocumented types
        raise UserError(f"{path}: {_describe(cause)}") from cause
    return _access(found, path, source.look)


def _access(found: FoundAccess, source: str, again: Callable[[bool], Awaitable[FoundAccess]]) -> Access:
    async def look(refused: bool) -> KubeCredentials:
        return (await again(refused)).credentials

    if found.proxy is not None:
        checked_proxy(found.proxy, f"{source}: proxy-url")
    server = _checked(found.server, f"{source}: server")
    return Access(server, found.credentials, server_hostname=found.server_hostname, proxy=found.proxy, look=look)


def _checked(server: str, what: str) -> str:
    """The URL without a trailing slash."""
    try:
        parts = urlsplit(server)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.query and not parts.fragment
        parts.port  # noqa: B018 - raises if it is no number
    except ValueError:
        usable = False
    if not usable:
        raise UserError(f"{what}: {server!r} is not a URL such as https://host:6443")
    if parts.username is not None:
        raise UserError(f"{what}: a URL with a user or password in it is not accepted")
    return server.rstrip("/")


def _describe(cause: Exception) -> str:
    """One line without secrets."""
    if isinstance(cause, TimeoutError):
        return f"no credentials within {REFRESH_PATIENCE:g} s"
    if isinstance(cause, FlotillaError):
        return one_line(str(cause))
    mark = getattr(cause, "problem_mark", None)
    if mark is not None:
        return f"line {mark.line + 1}: {getattr(cause, 'problem', 'not YAML')}"
    if type(cause).__name__ == "ConfigException" or isinstance(cause, OSError):
        return _OBJECT_TEXT.sub("", one_line(str(cause)))
    return f"not a usable kubeconfig ({type(cause).__name__})"
