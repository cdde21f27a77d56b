"""Reads what kubeconfigs and service accounts say: server, authorities, certificates and tokens.

Only an `auth-provider` needs kubernetes-asyncio, whose import costs each service more than the rest of its start.
"""

import base64
import binascii
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared.errors import UserError

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
