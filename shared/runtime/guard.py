"""Authorize endpoint reads: open on loopback; elsewhere everything but health needs the API server's authorization.

Like kube-scheduler's secure port: TLS, self-signed unless a certificate is given, and a bearer token whose user must
have the right to `get` the path (a ClusterRole with nonResourceURLs).
"""

import os
import socket
import ssl
import tempfile
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from aiohttp import web

from shared.config.settings import Settings
from shared.errors import FlotillaError, UserError
from shared.kube.errors import one_line
from shared.kube.reviews import Reviews
from shared.telemetry.logs import logger

OPEN = ("/healthz", "/livez", "/readyz")
"""Open to all, with their sub-paths: probes carry no token."""
VALID = timedelta(days=3650)
BEARER = "bearer "
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Denial(NamedTuple):
    status: int
    text: str


class Guard:
    def __init__(self, reviews: Reviews) -> None:
        self._reviews = reviews

    async def denial(self, method: str, path: str, authorization: str) -> Denial | None:
        """None if the request may be answered."""
        if is_open(path):
            return None
        if not authorization.lower().startswith(BEARER):
            return Denial(401, "a bearer token is needed: Authorization: Bearer TOKEN")
        try:
            user = await self._reviews.user_of(authorization[len(BEARER) :].strip())
            if user is None:
                return Denial(401, "the API server does not know this token")
            if not await self._reviews.may(user, method.lower(), path):
                return Denial(403, f'user "{user.username}" cannot {method.lower()} path "{path}"')
        except FlotillaError as cause:
            return Denial(503, f"denied, because the API server cannot be asked: {one_line(str(cause))}")
        return None


def is_open(path: str) -> bool:
    return any(path == each or path.startswith(f"{each}/") for each in OPEN)


def serving_context(settings: Settings) -> ssl.SSLContext:
    """UserError if the given files are unusable. They are reloaded when they have changed."""
    if settings.http_cert is None and settings.http_key is None:
        return _self_signed_context()
    if settings.http_cert is None or settings.http_key is None:
        raise UserError("http_cert and http_key go together")
    return _Files(settings.http_cert, settings.http_key).context


class _Files:
    def __init__(self, certificate: str, key: str) -> None:
        self._paths = (certificate, key)
        self._seen = self._changed()
        self.context = _loaded(*self._paths)
        self._newest = self.context
        self.context.sni_callback = self._begin

    def _begin(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        """Called for each connection."""
        try:
            seen = self._changed()
            if seen != self._seen:
                self._seen, self._newest = seen, _loaded(*self._paths)
        except (OSError, UserError) as cause:
            logger("http").error("the certificate before is used still: %s", cause)
        connection.context = self._newest

    def _changed(self) -> tuple[int, ...]:
        try:
            return tuple(os.stat(path).st_mtime_ns for path in self._paths)
        except OSError as cause:
            raise UserError(f"{cause.filename}: {cause.strerror}") from cause


def _self_signed_context() -> ssl.SSLContext:
    from shared.certificates import self_signed  # lazily: few processes need it

    host = socket.gethostname()
    pair = self_signed((host, "localhost", "127.0.0.1"), datetime.now(UTC), VALID)
    with tempfile.TemporaryDirectory(prefix="flotilla-") as folder:
        certificate, key = Path(folder, "tls.crt"), Path(folder, "tls.key")
        certificate.write_text(pair.certificate)
        key.write_text(pair.key)
        return _loaded(str(certificate), str(key))


def _loaded(certificate: str, key: str) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, key, password=lambda: "")
    except (OSError, ValueError) as cause:
        raise UserError(f"{certificate}, {key}: not a certificate and its key, without a password") from cause
    return context
