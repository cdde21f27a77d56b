"""Where the API server is and who we are to it: from a URL and token, a kubeconfig, or what a pod is given.

Kubeconfigs and service accounts are looked at again once in a while, when what they gave is about to end, and when the
server refuses it.
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
from shared.kube.credentials import Credentials, Found, InCluster, Kubeconfig, Material, make_context
from shared.kube.errors import one_line
from shared.kube.throttling import TokenBucket
from shared.proxies import checked_proxy, proxy_of_environment
from shared.telemetry.logs import logger

log = logger("kube")


@dataclass(frozen=True, slots=True)
class ClientConnection:
    """`rate`: calls a second; None: as many as there are."""

    kubeconfig: str | None = None
    rate: float | None = None
    burst: int = DEFAULT_BURST

    def bucket(self) -> TokenBucket | None:
        return None if self.rate is None else TokenBucket(self.rate, self.burst)


DEFAULT_CONNECTION = ClientConnection()


def client_connection(source: ConfigSource | None) -> ClientConnection:
    """Of a file that was found to be without faults; what is wrong with it, `load_config` says."""
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
"""Seconds between two looks for newer credentials, at most."""
REFRESH_AFTER_REFUSAL = 5.0
"""At the earliest so long after the last look, credentials that were refused are looked for again."""
REFRESH_PATIENCE = 30.0
"""Seconds that an exec plugin or identity provider may take."""

Look = Callable[[bool], Awaitable[Credentials]]
"""Is told whether those that are used were refused."""

_OBJECT_TEXT = re.compile(r"/?\{.*", re.DOTALL)
"""In messages about a kubeconfig: a whole entry of it, secrets included."""


class Access:
    """How to reach the server. `generation` rises whenever the credentials are others.

    A connection that was made before they changed may be used to the end of what it is used for; calls that begin
    after it make connections of their own.
    """

    def __init__(
        self,
        server: str,
        credentials: Credentials,
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
        self._looked_at = monotonic()
        self._look_at = self._looked_at + self._interval()
        self._looking: asyncio.Task[None] | None = None

    @property
    def authorization(self) -> str | None:
        """The header's value, None where a certificate (or nothing) is used."""
        return self._credentials.authorization

    @property
    def tls(self) -> ssl.SSLContext | None:
        return self._credentials.tls

    def is_stale(self) -> bool:
        """Whether it is time to look for newer credentials."""
        return self._look_for is not None and monotonic() >= self._look_at

    async def freshen(self) -> None:
        """Looks for newer ones meanwhile; waits for them only where those that are there have ended."""
        looking = self._begin_look(refused=False)
        expires = self._credentials.expires
        if looking is not None and expires is not None and time() >= expires:
            await asyncio.shield(looking)

    async def refresh(self, *, refused: bool = False, generation: int | None = None) -> bool:
        """Looks for newer credentials, once for all who ask at the same time; whether there are any.

        `generation`: that was refused; if there are newer ones already, they are to be tried first. A look that fails
        is logged and leaves the old ones: the server has the last word on them.
        """
        before = self.generation if generation is None else generation
        if self.generation == before:
            if self._looking is None and refused and monotonic() - self._looked_at < REFRESH_AFTER_REFUSAL:
                return False
            looking = self._begin_look(refused=refused)
            if looking is not None:
                await asyncio.shield(looking)
        return self.generation != before

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    def _begin_look(self, *, refused: bool) -> "asyncio.Task[None] | None":
        if self._looking is None and self._look_for is not None:
            self._looking = asyncio.create_task(self._look(self._look_for, refused))
        return self._looking

    async def _look(self, look: Look, refused: bool) -> None:
        try:
            async with asyncio.timeout(REFRESH_PATIENCE):
                found = await look(refused)
            before, self._credentials = self._credentials, found
            if (found.authorization, found.tls) != (before.authorization, before.tls):
                self.generation += 1
        except Exception as cause:  # whatever a plugin or an identity provider may come up with
            log.warning("%s: no newer credentials: %s", self.server, _describe(cause))
        finally:
            self._looked_at = monotonic()
            self._look_at = self._looked_at + self._interval()
            self._looking = None

    def _interval(self) -> float:
        """Seconds until the next look."""
        renew_at = self._credentials.renew_at
        return REFRESH_EVERY if renew_at is None else min(REFRESH_EVERY, max(renew_at - time(), REFRESH_AFTER_REFUSAL))


async def find_access(settings: ApiSettings, kubeconfig: str | None = None) -> Access:
    """`kubeconfig`: is used where the settings name neither a server nor another one.

    Raises UserError, on one line, naming the file or setting and what is wrong with it.
    """
    if settings.server is not None:
        return _plain(settings.server, settings.token)
    path = settings.kubeconfig if settings.kubeconfig is not None else kubeconfig
    if path is not None:
        return await _from_kubeconfig(path, settings.context)
    source = InCluster()
    try:
        found = await source.look(False)
    except FlotillaError as cause:
        raise UserError(str(cause) if isinstance(cause, UserError) else f"service account: {cause}") from cause
    return _access(found, "service account", source)


def _plain(server: str, token: str | None) -> Access:
    authorization = f"Bearer {token.strip()}" if token else None
    checked = _checked(server, "server")
    tls = make_context(Material(b"", b"", b"", True)) if checked.startswith("https:") else None
    return Access(checked, Credentials(authorization, tls))


async def _from_kubeconfig(path: str, context: str | None) -> Access:
    if not Path(path).is_file():
        raise UserError(f"{path}: no such file")
    source = Kubeconfig(path, context)
    try:
        async with asyncio.timeout(REFRESH_PATIENCE):
            found = await source.look(False)
    except Exception as cause:  # what a malformed file leads to is not told in any documented type
        raise UserError(f"{path}: {_describe(cause)}") from cause
    return _access(found, path, source)


def _access(found: Found, source: str, again: InCluster | Kubeconfig) -> Access:
    async def look(refused: bool) -> Credentials:
        return (await again.look(refused)).credentials

    if found.proxy is not None:
        checked_proxy(found.proxy, f"{source}: proxy-url")
    server = _checked(found.server, f"{source}: server")
    return Access(server, found.credentials, server_hostname=found.server_hostname, proxy=found.proxy, look=look)


def _checked(server: str, what: str) -> str:
    """The URL without a slash at its end."""
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
    """On one line and without secrets."""
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
