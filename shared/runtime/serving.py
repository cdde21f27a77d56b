"""HTTP endpoints of every process: liveness, readiness, metrics and pages about itself. All are read-only. A process
may have further ones of its own (`Site`).

They are open on loopback; elsewhere everything but health needs the API server's authorization. Like kube-scheduler's
secure port: TLS, self-signed unless a certificate is given, and a bearer token whose user must have the right to `get`
the path (a ClusterRole with nonResourceURLs).
"""

import asyncio
import errno
import json
import os
import socket
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from aiohttp import web

from shared.config.settings import Settings, serves_tls
from shared.errors import FlotillaError, UserError
from shared.kube.errors import one_line
from shared.kube.reviews import Reviews
from shared.runtime.context import SharedHealth
from shared.runtime.pages import ALIVE, HealthAnswer, Pages, checks_answer, one_check, ready_at_a_glance
from shared.telemetry.logs import logger
from shared.telemetry.metrics import CONTENT_TYPE, Metrics, SharedMetrics

if TYPE_CHECKING:
    from shared.kube.client import KubeClient

MAX_PORT = 65535
CLOSE_SECONDS = 0.5
"""For requests in progress when the process ends."""
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
OPEN = ("/healthz", "/livez", "/readyz")
"""Open to all, with their sub-paths: probes carry no token."""
VALID = timedelta(days=3650)
BEARER = "bearer "
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Denial(NamedTuple):
    status: int
    text: str


class Site(NamedTuple):
    """Endpoints besides those that every process has. `open`: further paths that are open to all."""

    add_to: Callable[[web.Application], None]
    open: frozenset[str] = frozenset()


class Desk(NamedTuple):
    """What is answered from. `services`: with pages of their own below `/SERVICE`, if there are several."""

    pages: Pages
    metrics: Metrics
    services: Mapping[str, "Desk"] = {}


def shared_desk(title: str, name: str, desks: Iterable[Desk]) -> Desk:
    """Of a process with these services."""
    services = {desk.pages.service: desk for desk in desks}
    first = next(iter(services.values())).pages
    pages = Pages(
        service=title,
        name=name,
        settings=first.settings,
        health=SharedHealth({service: desk.pages.health for service, desk in services.items()}),
        config=first.config,
        services=tuple(services),
    )
    metrics = SharedMetrics({service: desk.metrics for service, desk in services.items()})
    return Desk(pages, metrics, services)


class Guard:
    def __init__(self, reviews: Reviews, open_paths: frozenset[str] = frozenset()) -> None:
        self._reviews = reviews
        self._open = open_paths

    async def denial(self, method: str, path: str, authorization: str) -> Denial | None:
        """None if the request may be answered."""
        if is_open(path) or path in self._open:
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


@asynccontextmanager
async def served(settings: Settings, desk: Desk, site: Site | None = None) -> AsyncIterator[str]:
    """Serve the endpoints as the settings say, in clear text or guarded and by TLS, and yield their URL."""
    host, port = settings.http_host, settings.http_port
    if not serves_tls(settings):
        async with endpoints(host, port, desk, site=site) as url:
            yield url
        return

    async def connect() -> "KubeClient":
        from shared.kube.access import client_connection
        from shared.kube.client import KubeClient  # lazily: workers need it only for this

        return await KubeClient.open(
            settings.api, given=client_connection(desk.pages.config), agent=f"flotilla-{desk.pages.service}"
        )

    reviews = Reviews(connect)
    guard = Guard(reviews, frozenset() if site is None else site.open)
    try:
        async with endpoints(host, port, desk, tls=serving_context(settings), guard=guard, site=site) as url:
            yield url
    finally:
        await reviews.close()


@asynccontextmanager
async def endpoints(
    host: str,
    port: int,
    desk: Desk,
    *,
    tls: ssl.SSLContext | None = None,
    guard: Guard | None = None,
    site: Site | None = None,
) -> AsyncIterator[str]:
    """Serve the endpoints and yield their URL; UserError if the address is not available. `guard` None: open to all."""
    application = _application(desk, guard, has_own_root=site is not None)
    if site is not None:
        site.add_to(application)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=CLOSE_SECONDS)
    await runner.setup()
    try:
        await _listen(runner, host, port, tls)
        address, actual_port = runner.addresses[0][:2]
        scheme = "http" if tls is None else "https"
        yield f"{scheme}://{f'[{address}]' if ':' in address else address}:{actual_port}"
    finally:
        await runner.cleanup()


def _application(desk: Desk, guard: Guard | None, *, has_own_root: bool = False) -> web.Application:
    refused = desk.metrics.counter(
        "flotilla_http_refused_total", "Requests to the endpoints that were refused, by status.", ("status",)
    )

    @web.middleware
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        """A right to a path covers that path of each service."""
        if guard is not None:
            service, slash, rest = request.path[1:].partition("/")
            path = slash + rest if service in desk.services else request.path
            denial = await guard.denial(request.method, path, request.headers.get("Authorization", ""))
            if denial is not None:
                refused.labels(str(denial.status)).inc()
                return web.Response(text=f"{denial.text}\n", status=denial.status, headers=HEADERS)
        return await handler(request)

    app = web.Application(middlewares=[guarded])
    _add_pages(app, "", desk, has_own_root=has_own_root)
    for service, own in desk.services.items():
        _add_pages(app, f"/{service}", own)
    return app


def _add_pages(app: web.Application, below: str, desk: Desk, *, has_own_root: bool = False) -> None:
    pages, metrics = desk.pages, desk.metrics

    async def alive(request: web.Request) -> web.Response:
        return _answer(_checked(request, ALIVE))

    async def ready(request: web.Request) -> web.Response:
        at_a_glance = not request.query.keys() & {"verbose", "exclude"} and "check" not in request.match_info
        return _answer(ready_at_a_glance(pages.health) if at_a_glance else _checked(request, pages.health.checks()))

    async def exposition(request: web.Request) -> web.Response:
        exposed = metrics.exposition(request.query.getall("name[]", []))
        return web.Response(body=exposed, headers={"Content-Type": CONTENT_TYPE})

    async def index(request: web.Request) -> web.Response:
        headers = {**HEADERS, "Content-Security-Policy": "default-src 'none'"}
        return web.Response(text=pages.index(below), content_type="text/html", headers=headers)

    async def status(request: web.Request) -> web.Response:
        return web.Response(text=pages.statusz(), headers=HEADERS)

    async def flags(request: web.Request) -> web.Response:
        return web.Response(text=pages.flagz(), headers=HEADERS)

    async def configuration(request: web.Request) -> web.Response:
        told = await asyncio.to_thread(pages.configz)
        return web.Response(text=json.dumps(told) + "\n", content_type="application/json", headers=HEADERS)

    for path, handler in (("/healthz", alive), ("/livez", alive), ("/readyz", ready)):
        app.router.add_get(f"{below}{path}", handler)
        app.router.add_get(f"{below}{path}/{{check}}", handler)
    if not has_own_root:
        app.router.add_get(f"{below}/", index)
    app.router.add_get(f"{below}/metrics", exposition)
    app.router.add_get(f"{below}/statusz", status)
    app.router.add_get(f"{below}/flagz", flags)
    app.router.add_get(f"{below}/configz", configuration)


def _checked(request: web.Request, checks: Mapping[str, str]) -> HealthAnswer:
    if "check" in request.match_info:
        return one_check(request.match_info["check"], checks)
    page = request.path.rpartition("/")[2]
    return checks_answer(page, checks, request.query.getall("exclude", []), verbose="verbose" in request.query)


def _answer(answer: HealthAnswer) -> web.Response:
    return web.Response(text=answer.text, status=answer.status, headers=HEADERS)


async def _listen(runner: web.AppRunner, host: str, port: int, tls: ssl.SSLContext | None) -> None:
    if not 0 <= port <= MAX_PORT:
        raise UserError(f"cannot serve HTTP at {host}:{port}: a port is a number from 0 to {MAX_PORT}")
    try:
        await web.TCPSite(runner, host, port, ssl_context=tls).start()
    except OSError as cause:
        reason = "the port is taken" if cause.errno == errno.EADDRINUSE else str(cause)
        raise UserError(f"cannot serve HTTP at {host}:{port}: {reason}") from cause
