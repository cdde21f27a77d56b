"""The keys and certificates of an extender: whether they can be used at all."""

import ssl
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from shared.config.problems import Fault, Problem
from shared.config.schema import Tree

HIDDEN: Final = "(hidden)"


def tls_problems(extender: Tree, path: str) -> Iterator[Problem]:
    """What keeps a client for the extender from being made."""
    tls = extender["tlsConfig"]
    if tls is None:
        return
    path = f"{path}.tlsConfig"
    has_ca = bool(tls["caData"] or tls["caFile"])
    has_pair = bool((tls["certData"] or tls["certFile"]) and (tls["keyData"] or tls["keyFile"]))
    insecure = tls["insecure"] or (extender["enableHTTPS"] and not has_ca)
    if not (has_ca or has_pair or insecure or tls["serverName"]):
        return
    if has_ca and tls["insecure"]:
        yield Problem(f"{path}.insecure", Fault.INVALID, True, "cannot be true where there is a caData or caFile")
        return
    material: dict[str, bytes] = {}
    for name in ("ca", "cert", "key"):
        data, problem = _material(tls, name, path)
        if problem is not None:
            yield problem
        material[name] = data
    if has_ca and material["ca"]:
        yield from _authority_problems(material["ca"], _field(tls, "ca", path))
    # A pair of files alone is read again and again while the extender is used, so it is not looked into here.
    files_alone = tls["certFile"] and tls["keyFile"] and not (tls["certData"] or tls["keyData"])
    if has_pair and not files_alone and material["cert"] and material["key"]:
        yield from _pair_problems(material["cert"], material["key"], _field(tls, "cert", path))


def _field(tls: Tree, name: str, path: str) -> str:
    return f"{path}.{name}{'Data' if tls[f'{name}Data'] else 'File'}"


def _material(tls: Tree, name: str, path: str) -> tuple[bytes, Problem | None]:
    data: bytes = tls[f"{name}Data"] or b""
    file: str = tls[f"{name}File"]
    if data or not file:
        return data, None
    try:
        return Path(file).read_bytes(), None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "no path"
        reason = f"must be a file that can be read, not {file!r} ({why})"
        return b"", Problem(f"{path}.{name}File", Fault.INVALID, file, reason)


def _authority_problems(authority: bytes, path: str) -> Iterator[Problem]:
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=authority.decode("ascii", "replace"))
        found = bool(context.get_ca_certs()) or bool(context.cert_store_stats()["x509"])
    except (ssl.SSLError, ValueError):
        found = False
    if not found:
        yield Problem(path, Fault.INVALID, HIDDEN, "must have at least one certificate in PEM")


def _pair_problems(certificate: bytes, key: bytes, path: str) -> Iterator[Problem]:
    try:
        with tempfile.TemporaryDirectory(prefix="flotilla-") as folder:
            chain, private = Path(folder, "certificate"), Path(folder, "key")
            chain.write_bytes(certificate)
            private.touch(mode=0o600)
            private.write_bytes(key)
            # A password is refused rather than asked for.
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(chain, private, password=lambda: b"")
    except (ssl.SSLError, ValueError, OSError):
        yield Problem(path, Fault.INVALID, HIDDEN, "must be a certificate in PEM, and go with the key")
