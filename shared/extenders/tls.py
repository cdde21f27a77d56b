"""Who an extender must prove to be, and who we prove to be to it."""

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shared.config.structs import ExtenderConfig, ExtenderTls
from shared.errors import UserError


def tls_of(extender: ExtenderConfig, name: str) -> ssl.SSLContext:
    """UserError names the extender and what is wrong with its certificates.

    With `enable_https` and no certificate authority nothing is verified: so it is in kube-scheduler.
    """
    tls = extender.tls or ExtenderTls()
    has_authority = bool(tls.ca_data or tls.ca_file)
    if tls.insecure and has_authority:
        raise UserError(f"extender {name}: tlsConfig: insecure, and a certificate authority: only one of them can hold")
    try:
        context = _trusting(tls) if has_authority else ssl.create_default_context()
        if tls.insecure or (extender.enable_https and not has_authority):
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        _identify(context, tls)
    except (OSError, ValueError) as cause:  # ssl.SSLError is an OSError
        raise UserError(f"extender {name}: tlsConfig: {_told(cause)}") from cause
    return context


def _trusting(tls: ExtenderTls) -> ssl.SSLContext:
    authority = tls.ca_data or Path(tls.ca_file).read_bytes()
    return ssl.create_default_context(cadata=authority.decode("ascii"))


def _identify(context: ssl.SSLContext, tls: ExtenderTls) -> None:
    certified = bool(tls.cert_data or tls.cert_file)
    if certified != bool(tls.key_data or tls.key_file):
        raise ValueError("a client certificate and its key are needed together")
    if not certified:
        return
    with _file_of(tls.cert_data, tls.cert_file) as certificate, _file_of(tls.key_data, tls.key_file) as key:
        context.load_cert_chain(certificate, key)


@contextmanager
def _file_of(data: bytes, path: str) -> Iterator[str]:
    """Python reads certificates of its own from files only; what is no file is one for a moment, for nobody else."""
    if not data:
        with open(path, "rb"):  # what is wrong with it is told better here
            yield path
        return
    descriptor, made = tempfile.mkstemp()
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        yield made
    finally:
        os.unlink(made)


def _told(cause: OSError | ValueError) -> str:
    if isinstance(cause, OSError) and cause.filename:
        return f"{cause.filename}: {cause.strerror}"
    if isinstance(cause, ssl.SSLError):
        return f"the certificates cannot be used: {cause.reason or cause}"
    return " ".join(str(cause).split())
