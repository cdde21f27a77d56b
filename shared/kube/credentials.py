"""Where credentials come from: a kubeconfig, or what a pod is given. Each may be asked again for newer ones.

Everything is read anew with each look, so that tokens, certificates and keys may be replaced while they are in use.
What has not changed makes no new TLS context, for connections belong to the context that they were made with.
"""

import base64
import binascii
import os
import ssl
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from shared.errors import FlotillaError, UserError
from shared.kube.exec_plugin import ExecCredential, run_plugin

if TYPE_CHECKING:
    from kubernetes_asyncio.client import Configuration
    from kubernetes_asyncio.config.kube_config import KubeConfigLoader

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class Configured:
    """`authorization`: the header's value; None without a token. Certificates, authorities and keys are PEM."""

    server: str
    server_hostname: str | None = None
    proxy: str | None = None
    authority: bytes = b""
    certificate: bytes = b""
    key: bytes = b""
    verify: bool = True
    authorization: str | None = None


@dataclass(frozen=True, slots=True)
class Chosen:
    """The entries that a context names. A context may have no user."""

    user: Mapping[str, Any]
    cluster: Mapping[str, Any]


def choose(document: object, context: str | None) -> Chosen:
    """UserError where the file has no such context, or the context names no cluster of the file."""
    if not isinstance(document, dict):
        raise UserError("not a usable kubeconfig: it should be a map with contexts, clusters and users")
    name = context or document.get("current-context")
    if not name:
        raise UserError("not a usable kubeconfig: it names no current-context, and no context was asked for")
    chosen = _named(document, "contexts", name, "context")
    cluster = _named(document, "clusters", chosen.get("cluster"), "cluster")
    users = document.get("users")
    user = _named(document, "users", chosen["user"], "user", required=False) if chosen.get("user") and users else {}
    return Chosen(user, cluster)


def configured(chosen: Chosen, folder: Path) -> Configured:
    """What the entries say. Relative paths go from `folder`. UserError or OSError where they cannot be used."""
    user, cluster = chosen.user, chosen.cluster
    server = str(cluster.get("server") or "").rstrip("/")
    secure = server.startswith("https")
    return Configured(
        server=server,
        server_hostname=_text(cluster, "tls-server-name"),
        proxy=_text(cluster, "proxy-url"),
        authority=_contents(cluster, "certificate-authority", folder) if secure else b"",
        certificate=_contents(user, "client-certificate", folder) if secure else b"",
        key=_contents(user, "client-key", folder) if secure else b"",
        verify=not cluster.get("insecure-skip-tls-verify"),
        authorization=_authorization(user, folder),
    )


def service_account() -> Configured:
    """What a pod is given."""
    host, port = (os.environ.get(f"KUBERNETES_SERVICE_{what}", "") for what in ("HOST", "PORT"))
    if not host or not port:
        raise UserError("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set")
    token = (SERVICE_ACCOUNT / "token").read_text().strip()
    authority = (SERVICE_ACCOUNT / "ca.crt").read_bytes()
    for name, text in (("token", token), ("ca.crt", authority)):
        if not text:
            raise UserError(f"{SERVICE_ACCOUNT / name}: is empty")
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return Configured(f"https://{address}", authority=authority, authorization=f"Bearer {token}")


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
    """Data win over a file, and empty data over a file as well."""
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


MOST_CONTEXTS = 4
EARLY = 300.0
"""So many seconds before it ends, a program is asked for a new credential; a fifth of its time where that is less."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """`authorization`: the header's value, None where a certificate (or nothing) is used. `expires`: Unix time."""

    authorization: str | None = None
    tls: ssl.SSLContext | None = None
    expires: float | None = None
    renew_at: float | None = None
    """From when on, in Unix time, a new one is to be looked for, where that is known."""


class Found(NamedTuple):
    """`server`: as it is written there. The rest of it does not change while a process runs."""

    server: str
    server_hostname: str | None
    proxy: str | None
    credentials: Credentials


class Material(NamedTuple):
    """What a TLS context is made of, as PEM; empty: nothing."""

    authority: bytes
    certificate: bytes
    key: bytes
    verify: bool


class TlsContexts:
    """Makes a new context when the material has changed."""

    def __init__(self) -> None:
        self._material: Material | None = None
        self._context: ssl.SSLContext | None = None

    def of(self, material: Material) -> ssl.SSLContext:
        """Raises OSError or ValueError where it cannot be used."""
        if self._context is None or material != self._material:
            self._context, self._material = make_context(material), material
        return self._context


@lru_cache(maxsize=MOST_CONTEXTS)
def make_context(material: Material) -> ssl.SSLContext:
    """Remembers the newest: clients of one process share what takes tens of milliseconds to make."""
    authority = material.authority.decode("ascii", "ignore") or None
    verifies = material.verify or authority is not None
    context = ssl.create_default_context(cadata=authority) if verifies else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Authorities of clusters are often older than the rules that Python 3.13 holds certificates to.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if material.certificate:
        with tempfile.NamedTemporaryFile() as pair:  # ssl reads them from files only
            pair.write(material.certificate + b"\n" + material.key)
            pair.flush()
            context.load_cert_chain(pair.name, password="")  # nobody is asked for one
    if not material.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


class InCluster:
    """What a pod is given: a token and an authority, both in files that are replaced now and then."""

    def __init__(self) -> None:
        self._contexts = TlsContexts()

    async def look(self, refused: bool) -> Found:
        try:
            found = service_account()
        except (FlotillaError, OSError) as cause:
            raise UserError(
                f"no API server: neither a server nor a kubeconfig was named, and not in a pod: {cause}"
            ) from cause
        return _found(found, self._contexts)


class Kubeconfig:
    """One context of a kubeconfig. Its `exec` is run when what it gave ends or is refused, other things are read."""

    def __init__(self, path: str, context: str | None) -> None:
        self._path = Path(path)
        self._context = context
        self._contexts = TlsContexts()
        self._provider: KubeConfigLoader | None = None
        self._plugin: Mapping[str, Any] | None = None
        self._given: ExecCredential | None = None
        self._renew_at: float | None = None

    async def look(self, refused: bool) -> Found:
        """Raises whatever a malformed file leads to, or what the program or provider comes up with."""
        if not self._path.is_file():
            raise UserError(f"{self._path}: no such file")
        import yaml  # type: ignore[import-untyped]

        chosen = choose(yaml.safe_load(self._path.read_bytes()), self._context)
        if isinstance(chosen.user.get("exec"), dict):
            return await self._by_plugin(chosen, refused)
        if chosen.user.get("auth-provider"):
            return await self._by_provider()
        return _found(configured(chosen, self._path.parent), self._contexts)

    async def _by_provider(self) -> Found:
        from kubernetes_asyncio.client import Configuration
        from kubernetes_asyncio.config import load_kube_config

        told = Configuration()
        if self._provider is not None:
            await self._provider.load_and_set(told)
        else:
            # It has the tokens that it got instead of those in the file.
            self._provider = await load_kube_config(str(self._path), context=self._context, client_configuration=told)
        return _found(_as_configured(told), self._contexts)

    async def _by_plugin(self, chosen: Chosen, refused: bool) -> Found:
        given = await self._ask_plugin(chosen.user["exec"], chosen.cluster, refused)
        user = {key: value for key, value in chosen.user.items() if key not in ("exec", "tokenFile")}
        if given.token is not None:
            user["token"] = given.token
        found = configured(Chosen(user, chosen.cluster), self._path.parent)
        if given.certificate:
            found = replace(found, certificate=given.certificate, key=given.key)
        return _found(found, self._contexts, given.expires, self._renew_at)

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


def _as_configured(told: "Configuration") -> Configured:
    token = told.api_key.get("BearerToken")
    files = (told.ssl_ca_cert, told.cert_file, told.key_file)
    authority, certificate, key = (Path(path).read_bytes() if path else b"" for path in files)
    return Configured(
        server=told.host or "",
        server_hostname=told.tls_server_name,
        proxy=told.proxy,
        authority=authority,
        certificate=certificate,
        key=key,
        verify=bool(told.verify_ssl),
        authorization=str(token).strip() if token else None,
    )


def _found(
    configured: Configured, contexts: TlsContexts, expires: float | None = None, renew_at: float | None = None
) -> Found:
    material = Material(configured.authority, configured.certificate, configured.key, configured.verify)
    try:
        tls = contexts.of(material)
    except (OSError, ValueError) as cause:  # ssl.SSLError is an OSError
        raise UnusableCertificates(f"certificates: {' '.join(str(cause).split())}") from cause
    credentials = Credentials(configured.authorization, tls, expires, renew_at)
    return Found(configured.server, configured.server_hostname, configured.proxy, credentials)


class UnusableCertificates(FlotillaError):
    """Somebody's certificate, key or authority is none, or does not fit the other."""
