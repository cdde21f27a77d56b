"""Where the API server is and who we are to it: from a URL and token, a kubeconfig, or what a pod is given.

kubernetes-asyncio reads kubeconfigs (client certificates, tokens, exec plugins, OIDC) and service accounts; tokens that
expire are read again through it.
"""

import asyncio
import re
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from shared.config.settings import ApiSettings
from shared.errors import UserError
from shared.kube.errors import one_line
from shared.telemetry.logs import logger

if TYPE_CHECKING:
    from kubernetes_asyncio.client import Configuration

log = logger("kube")

REFRESH_EVERY = 60.0
"""Seconds between two looks for a newer token."""
REFRESH_AFTER_REFUSAL = 5.0
"""At the earliest so long after the last look, a token that was refused is looked for again."""
REFRESH_PATIENCE = 30.0
"""Seconds that an exec plugin or identity provider may take."""

Reread = Callable[[], Awaitable[str | None]]

_OBJECT_TEXT = re.compile(r"/?\{.*", re.DOTALL)
"""In messages about a kubeconfig: a whole entry of it, secrets included."""


class Access:
    """How to reach the server. `authorization`: the header's value, None where a certificate (or nothing) is used."""

    def __init__(
        self,
        server: str,
        authorization: str | None,
        *,
        tls: ssl.SSLContext | None = None,
        server_hostname: str | None = None,
        proxy: str | None = None,
        reread: Reread | None = None,
    ) -> None:
        self.server = server
        self.authorization = authorization
        self.tls = tls
        self.server_hostname = server_hostname
        self.proxy = proxy or _proxy_of_environment(server)
        self._reread = reread
        self._looked_at = monotonic()
        self._looking: asyncio.Task[None] | None = None

    def is_stale(self) -> bool:
        """Whether it is time to look for a newer token."""
        return self._reread is not None and monotonic() - self._looked_at > REFRESH_EVERY

    async def refresh(self, *, refused: bool = False) -> bool:
        """Looks for a newer token, once for all who ask at the same time; whether there is one.

        A look that fails is logged and leaves the old one: the server has the last word on it.
        """
        if self._reread is None:
            return False
        before = self.authorization
        if self._looking is None:
            if refused and monotonic() - self._looked_at < REFRESH_AFTER_REFUSAL:
                return False
            self._looking = asyncio.create_task(self._look(self._reread))
        await asyncio.shield(self._looking)
        return self.authorization != before

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    async def _look(self, reread: Reread) -> None:
        try:
            async with asyncio.timeout(REFRESH_PATIENCE):
                self.authorization = await reread()
        except Exception as cause:  # whatever a plugin or an identity provider may come up with
            log.warning("%s: no newer token: %s", self.server, _describe(cause))
        finally:
            self._looked_at = monotonic()
            self._looking = None


async def find_access(settings: ApiSettings) -> Access:
    """Raises UserError, on one line, naming the file or setting and what is wrong with it."""
    if settings.server is not None:
        return _plain(settings.server, settings.token)
    if settings.kubeconfig is not None:
        return await _from_kubeconfig(settings.kubeconfig, settings.context)
    return _in_cluster()


def _plain(server: str, token: str | None) -> Access:
    authorization = f"Bearer {token.strip()}" if token else None
    return Access(_checked(server, "server"), authorization, tls=ssl.create_default_context())


async def _from_kubeconfig(path: str, context: str | None) -> Access:
    # Half a second of imports that a plain URL does without.
    from kubernetes_asyncio.client import Configuration
    from kubernetes_asyncio.config import load_kube_config

    if not Path(path).is_file():
        raise UserError(f"{path}: no such file")
    configuration = Configuration()
    try:
        async with asyncio.timeout(REFRESH_PATIENCE):
            loader = await load_kube_config(path, context=context, client_configuration=configuration)
    except Exception as cause:  # what a malformed file leads to is not told in any documented type
        raise UserError(f"{path}: {_describe(cause)}") from cause

    async def reread() -> str | None:
        await loader.load_and_set(configuration)
        return _token(configuration)

    return _configured(configuration, path, reread if _token(configuration) else None)


def _in_cluster() -> Access:
    from kubernetes_asyncio.client import Configuration
    from kubernetes_asyncio.config import ConfigException, load_incluster_config

    configuration = Configuration()
    try:
        load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    except (ConfigException, OSError) as cause:
        raise UserError(
            f"no API server: neither a server nor a kubeconfig was named, and not in a pod: {cause}"
        ) from cause

    async def reread() -> str | None:
        await configuration.get_api_key_with_prefix("BearerToken")  # reads the file again when it is old
        return _token(configuration)

    return _configured(configuration, "service account", reread)


def _configured(configuration: "Configuration", source: str, reread: Reread | None) -> Access:
    try:
        tls = _context(configuration)
    except OSError as cause:  # ssl.SSLError is one
        raise UserError(f"{source}: certificates: {one_line(str(cause))}") from cause
    return Access(
        _checked(configuration.host or "", f"{source}: server"),
        _token(configuration),
        tls=tls,
        server_hostname=configuration.tls_server_name,
        proxy=configuration.proxy,
        reread=reread,
    )


def _context(configuration: "Configuration") -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _token(configuration: "Configuration") -> str | None:
    token = configuration.api_key.get("BearerToken")
    return str(token).strip() if token else None


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


def _proxy_of_environment(server: str) -> str | None:
    """As HTTPS_PROXY, HTTP_PROXY and NO_PROXY say."""
    parts = urlsplit(server)
    return None if proxy_bypass(parts.netloc) else getproxies().get(parts.scheme)


def _describe(cause: Exception) -> str:
    """On one line and without secrets."""
    if isinstance(cause, TimeoutError):
        return f"no credentials within {REFRESH_PATIENCE:g} s"
    mark = getattr(cause, "problem_mark", None)
    if mark is not None:
        return f"line {mark.line + 1}: {getattr(cause, 'problem', 'not YAML')}"
    if type(cause).__name__ == "ConfigException" or isinstance(cause, OSError):
        return _OBJECT_TEXT.sub("", one_line(str(cause)))
    return f"not a usable kubeconfig ({type(cause).__name__})"
