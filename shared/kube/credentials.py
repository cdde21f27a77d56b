"""Credentials from a kubeconfig or a pod's service account.

Each look reads everything again, so that tokens, certificates and keys can be rotated. Only an
`auth-provider` needs kubernetes-asyncio, whose import costs more than the rest of a service's start.
"""

import base64
import binascii
import os
import ssl
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from shared.errors import FlotillaError, UserError
from shared.kube.exec_plugin import ExecCredential, run_plugin

if TYPE_CHECKING:
    from kubernetes_asyncio.client import Configuration
    from kubernetes_asyncio.config.kube_config import KubeConfigLoader

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


MAX_CONTEXTS = 4
"""TLS contexts that are kept."""
EARLY = 300.0
"""Seconds before expiry at which the plugin is asked again; a fifth of the lifetime if that is less."""


@dataclass(frozen=True, slots=True)
class KubeCredentials:
    """`authorization`: the header's value; None with a certificate or without credentials. `expires`: Unix time."""

    authorization: str | None = None
    tls: ssl.SSLContext | None = None
    expires: float | None = None
    renew_at: float | None = None
    """The Unix time from which a new one is requested, if known."""


class FoundAccess(NamedTuple):
    """`server`: as written in the source. Everything but the credentials is fixed while a process runs."""

    server: str
    server_hostname: str | None
    proxy: str | None
    credentials: KubeCredentials


class TlsMaterial(NamedTuple):
    """PEM files of a TLS context; empty for none."""

    authority: bytes = b""
    certificate: bytes = b""
    key: bytes = b""
    verify: bool = True


@dataclass(frozen=True, slots=True)
class ContextEntries:
    """The entries that a context names; it may name no user."""

    user: Mapping[str, Any]
    cluster: Mapping[str, Any]


def choose(document: object, context: str | None) -> ContextEntries:
    """UserError if the file has no such context, or no cluster of that name."""
    if not isinstance(document, dict):
        raise UserError("not a usable kubeconfig: it should be a map with contexts, clusters and users")
    name = context or document.get("current-context")
    if not name:
        raise UserError("not a usable kubeconfig: it names no current-context, and no context was asked for")
    chosen = _named(document, "contexts", name, "context")
    cluster = _named(document, "clusters", chosen.get("cluster"), "cluster")
    users = document.get("users")
    user = _named(document, "users", chosen["user"], "user", required=False) if chosen.get("user") and users else {}
    return ContextEntries(user, cluster)


def configured(
    chosen: ContextEntries, folder: Path, expires: float | None = None, renew_at: float | None = None
) -> FoundAccess:
    """What these entries say; relative paths start at `folder`. FlotillaError or OSError if they are unusable."""
    user, cluster = chosen.user, chosen.cluster
    server = str(cluster.get("server") or "").rstrip("/")
    material = TlsMaterial(verify=not cluster.get("insecure-skip-tls-verify"))
    if server.startswith("https"):
        material = material._replace(
            authority=_contents(cluster, "certificate-authority", folder),
            certificate=_contents(user, "client-certificate", folder),
            key=_contents(user, "client-key", folder),
        )
    credentials = KubeCredentials(_authorization(user, folder), _tls(material), expires, renew_at)
    return FoundAccess(server, _text(cluster, "tls-server-name"), _text(cluster, "proxy-url"), credentials)


async def in_cluster(refused: bool) -> FoundAccess:
    """A pod's service account: a token and an authority in files that are rotated."""
    try:
        return _service_account()
    except (FlotillaError, OSError) as cause:
        raise UserError(
            f"no API server: neither a server nor a kubeconfig was named, and not in a pod: {cause}"
        ) from cause


def _service_account() -> FoundAccess:
    host, port = (os.environ.get(f"KUBERNETES_SERVICE_{what}", "") for what in ("HOST", "PORT"))
    if not host or not port:
        raise UserError("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set")
    token = (SERVICE_ACCOUNT / "token").read_text().strip()
    authority = (SERVICE_ACCOUNT / "ca.crt").read_bytes()
    for name, text in (("token", token), ("ca.crt", authority)):
        if not text:
            raise UserError(f"{SERVICE_ACCOUNT / name}: is empty")
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    credentials = KubeCredentials(f"Bearer {token}", _tls(TlsMaterial(authority)))
    return FoundAccess(f"https://{address}", None, None, credentials)


def _named(
    document: Mapping[str, Any], plural: str, name: object, part: str, *, required: bool = True
) -> Mapping[str, Any]:
    entries = document.get(plural)
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and entry.get("name") == name and isinstance(entry.get(part), dict):
            found: dict[str, Any] = entry[part]
            return found
    if required:
        raise UserError(f"not a usable kubeconfig: no {part} named {name!r} in {plural}")
    return {}


def _authorization(user: Mapping[str, Any], folder: Path) -> str | None:
    token = user.get("token") if "token" in user else _file(user, "tokenFile", folder).decode()
    if token:
        return f"Bearer {str(token).strip()}"
    if "username" in user and "password" in user:
        pair = f"{user['username']}:{user['password']}"
        return f"Basic {base64.b64encode(pair.encode()).decode()}"
    return None


def _contents(entry: Mapping[str, Any], key: str, folder: Path) -> bytes:
    """Data take precedence over a file, even empty data."""
    data = entry.get(f"{key}-data") if f"{key}-data" in entry else None
    if data is None:
        return _file(entry, key, folder)
    try:
        return base64.b64decode(str(data))
    except binascii.Error:
        raise UserError(f"{key}-data: not base64") from None


def _file(entry: Mapping[str, Any], key: str, folder: Path) -> bytes:
    path = entry.get(key)
    return (folder / str(path)).read_bytes() if path else b""


def _text(entry: Mapping[str, Any], key: str) -> str | None:
    value = entry.get(key)
    return str(value) if value else None


@lru_cache(maxsize=MAX_CONTEXTS)
def make_context(material: TlsMaterial) -> ssl.SSLContext:
    """Cached, because connections belong to their context, and making one takes tens of milliseconds."""
    authority = material.authority.decode("ascii", "ignore") or None
    verifies = material.verify or authority is not None
    context = ssl.create_default_context(cadata=authority) if verifies else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # cluster authorities are often older than the rules that Python 3.13 enforces
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if material.certificate:
        with tempfile.NamedTemporaryFile() as pair:  # ssl reads them only from files
            pair.write(material.certificate + b"\n" + material.key)
            pair.flush()
            context.load_cert_chain(pair.name, password="")  # never prompt for a password
    if not material.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


class Kubeconfig:
    """One context of a kubeconfig. Its `exec` runs when its credential expires or is refused; everything else is read
    again.
    """

    def __init__(self, path: str, context: str | None) -> None:
        self._path = Path(path)
        self._context = context
        self._provider: KubeConfigLoader | None = None
        self._plugin: Mapping[str, Any] | None = None
        self._given: ExecCredential | None = None
        self._renew_at: float | None = None

    async def look(self, refused: bool) -> FoundAccess:
        """Raises any exception: a malformed file, the plugin and the provider have types of their own."""
        if not self._path.is_file():
            raise UserError(f"{self._path}: no such file")
        import yaml  # type: ignore[import-untyped]

        chosen = choose(yaml.safe_load(self._path.read_bytes()), self._context)
        if isinstance(chosen.user.get("exec"), dict):
            return await self._by_plugin(chosen, refused)
        if chosen.user.get("auth-provider"):
            return await self._by_provider()
        return configured(chosen, self._path.parent)

    async def _by_provider(self) -> FoundAccess:
        from kubernetes_asyncio.client import Configuration
        from kubernetes_asyncio.config import load_kube_config

        found = Configuration()
        if self._provider is not None:
            await self._provider.load_and_set(found)
        else:
            # it holds newer tokens than the file
            self._provider = await load_kube_config(str(self._path), context=self._context, client_configuration=found)
        return _from_provider(found)

    async def _by_plugin(self, chosen: ContextEntries, refused: bool) -> FoundAccess:
        given = await self._ask_plugin(chosen.user["exec"], chosen.cluster, refused)
        user = {key: value for key, value in chosen.user.items() if key not in ("exec", "tokenFile")}
        if given.token is not None:
            user["token"] = given.token
        if given.certificate:
            pair = {"client-certificate-data": given.certificate, "client-key-data": given.key}
            user |= {name: base64.b64encode(pem).decode() for name, pem in pair.items()}
        entries = ContextEntries(user, chosen.cluster)
        return configured(entries, self._path.parent, given.expires, self._renew_at)

    async def _ask_plugin(self, plugin: Mapping[str, Any], cluster: Mapping[str, Any], refused: bool) -> ExecCredential:
        given, now = self._given, time.time()
        due = refused or plugin != self._plugin or (self._renew_at is not None and now >= self._renew_at)
        if given is not None and not due:
            return given
        self._given = given = await run_plugin(dict(plugin), cluster, self._path.parent)
        self._plugin = dict(plugin)
        expires = given.expires
        self._renew_at = None if expires is None else expires - min(EARLY, max(expires - now, 0.0) / 5)
        return given


def _from_provider(found: "Configuration") -> FoundAccess:
    token = found.api_key.get("BearerToken")
    files = (found.ssl_ca_cert, found.cert_file, found.key_file)
    authority, certificate, key = (Path(path).read_bytes() if path else b"" for path in files)
    tls = _tls(TlsMaterial(authority, certificate, key, bool(found.verify_ssl)))
    credentials = KubeCredentials(str(token).strip() if token else None, tls)
    return FoundAccess(found.host or "", found.tls_server_name, found.proxy, credentials)


def _tls(material: TlsMaterial) -> ssl.SSLContext:
    try:
        return make_context(material)
    except (OSError, ValueError) as cause:  # ssl.SSLError is an OSError
        raise UnusableCertificates(f"certificates: {' '.join(str(cause).split())}") from cause


class UnusableCertificates(FlotillaError):
    """A certificate, key or authority is invalid, or they do not match."""
