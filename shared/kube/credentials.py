"""Where credentials come from: a kubeconfig, or what a pod is given. Each may be asked again for newer ones.

Everything is read anew with each look, so that tokens, certificates and keys may be replaced while they are in use.
What has not changed makes no new TLS context, for connections belong to the context that they were made with.
"""

import ssl
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from shared.errors import FlotillaError, UserError
from shared.kube.execplugin import ExecCredential, run_plugin

if TYPE_CHECKING:
    from kubernetes_asyncio.client import Configuration
    from kubernetes_asyncio.config.kube_config import KubeConfigLoader

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


def make_context(material: Material) -> ssl.SSLContext:
    authority = material.authority.decode("ascii", "ignore") or None
    context = ssl.create_default_context(cadata=authority)
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
        from kubernetes_asyncio.client import Configuration
        from kubernetes_asyncio.config import ConfigException, load_incluster_config

        configuration = Configuration()
        try:
            load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        except (ConfigException, OSError) as cause:
            raise UserError(
                f"no API server: neither a server nor a kubeconfig was named, and not in a pod: {cause}"
            ) from cause
        return _found(configuration, self._contexts, None)


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

        document = yaml.safe_load(self._path.read_bytes())
        user, cluster = _chosen(document, self._context)
        if isinstance(user.get("exec"), dict):
            return await self._by_plugin(document, user, cluster, refused)
        return await self._by_reading()

    async def _by_reading(self) -> Found:
        from kubernetes_asyncio.client import Configuration
        from kubernetes_asyncio.config import load_kube_config

        configuration = Configuration()
        if self._provider is not None:
            await self._provider.load_and_set(configuration)
        else:
            loader = await load_kube_config(str(self._path), context=self._context, client_configuration=configuration)
            if loader.provider is not None:
                self._provider = loader  # it has the tokens that it got instead of those in the file
        return _found(configuration, self._contexts, None)

    async def _by_plugin(
        self, document: dict[str, Any], user: dict[str, Any], cluster: Mapping[str, Any], refused: bool
    ) -> Found:
        from kubernetes_asyncio.client import Configuration
        from kubernetes_asyncio.config.kube_config import KubeConfigLoader

        given = await self._ask_plugin(user["exec"], cluster, refused)
        del user["exec"]
        user.pop("tokenFile", None)
        if given.token is not None:
            user["token"] = given.token
        configuration = Configuration()
        folder = str(self._path.parent)
        loader = KubeConfigLoader(document, active_context=self._context, config_base_path=folder)
        await loader.load_and_set(configuration)
        return _found(configuration, self._contexts, given, self._renew_at)

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


def _chosen(document: Any, context: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """User and cluster of the context; empty where something is not as it should be, which loading then tells."""
    if not isinstance(document, dict):
        return {}, {}
    chosen = _named(document, "contexts", context or document.get("current-context"), "context")
    user = _named(document, "users", chosen.get("user"), "user")
    return user, _named(document, "clusters", chosen.get("cluster"), "cluster")


def _named(document: Mapping[str, Any], plural: str, name: object, part: str) -> dict[str, Any]:
    entries = document.get(plural)
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and entry.get("name") == name and isinstance(entry.get(part), dict):
            found: dict[str, Any] = entry[part]
            return found
    return {}


def _found(
    configuration: "Configuration", contexts: TlsContexts, given: ExecCredential | None, renew_at: float | None = None
) -> Found:
    certificate, key = _contents(configuration.cert_file), _contents(configuration.key_file)
    if given is not None and given.certificate:
        certificate, key = given.certificate, given.key
    material = Material(_contents(configuration.ssl_ca_cert), certificate, key, bool(configuration.verify_ssl))
    try:
        tls = contexts.of(material)
    except (OSError, ValueError) as cause:  # ssl.SSLError is an OSError
        raise UnusableCertificates(f"certificates: {' '.join(str(cause).split())}") from cause
    token = configuration.api_key.get("BearerToken")
    credentials = Credentials(
        authorization=str(token).strip() if token else None,
        tls=tls,
        expires=None if given is None else given.expires,
        renew_at=renew_at,
    )
    return Found(configuration.host or "", configuration.tls_server_name, configuration.proxy, credentials)


def _contents(path: str | None) -> bytes:
    return Path(path).read_bytes() if path else b""


class UnusableCertificates(FlotillaError):
    """Somebody's certificate, key or authority is none, or does not fit the other."""
