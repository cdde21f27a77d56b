"""What the console serves over HTTP: a page that holds no data, and a JSON API that the page reads.

The page's files are open to all. The API needs what all endpoints need (shared/runtime/serving.py): nothing on
loopback, elsewhere a token that the API server knows. There is nothing that changes anything.
"""

from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from shared.config.settings import Settings, serves_tls
from shared.errors import ClusterError, FlotillaError
from shared.runtime.serving import Site
from tools.console.follower import Follower
from tools.console.kinds import node_kinds
from tools.console.lookup import Lookup
from tools.console.reasons import Reasons
from tools.explain.timeline import timeline
from tools.live_state import LiveSource
from tools.whatif.api import routes

PAGE = Path(__file__).parent / "page"
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})
"""Names by which a page on this machine is asked for; another one is a site that was made to point here."""
OWN_PAGES = ("same-origin", "none")
"""What a browser says of a request by a page of ours, or by a person; other sites' pages get nothing."""
LONGEST_QUERY = 256
"""Characters of a search."""
MOST_ROWS = 500
"""Pods in one answer."""
LINES = "application/x-ndjson"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@cache
def files() -> dict[str, tuple[bytes, str]]:
    """The page's files by path, with their types."""
    found = {
        f"/{path.relative_to(PAGE)}": (path.read_bytes(), TYPES[path.suffix])
        for path in sorted(PAGE.rglob("*"))
        if path.suffix in TYPES
    }
    return found | {"/": found["/index.html"]}


def site(settings: Settings, follower: Follower) -> Site:
    endpoints = Endpoints(settings, follower)
    return Site(endpoints.add_to, frozenset(files()))


class Endpoints:
    def __init__(self, settings: Settings, follower: Follower) -> None:
        self._local_only = not serves_tls(settings)
        self._follower = follower
        self._lookup = Lookup(settings, follower)
        self._reasons = Reasons(follower)

    def add_to(self, app: web.Application) -> None:
        app.middlewares.append(self._checked)
        app.on_response_prepare.append(_add_headers)
        for path in files():
            app.router.add_get(path, _file)
        app.router.add_get("/api/stream", self._stream)
        app.router.add_get("/api/pods", self._pods)
        app.router.add_get("/api/pod", self._pod)
        app.router.add_get("/api/explanation", self._explanation)
        app.router.add_get("/api/timeline", self._timeline)
        app.router.add_get("/api/rejections", self._rejections)
        app.router.add_get("/api/preemptions", self._preemptions)
        app.router.add_get("/api/gangs", self._gangs)
        app.router.add_get("/api/node", self._node)
        app.router.add_get("/api/labels", self._labels)
        app.router.add_get("/api/kinds", self._kinds)
        app.router.add_routes(routes(LiveSource(lambda: self._follower.client)))

    @web.middleware
    async def _checked(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse other names of this machine, and tell errors as JSON."""
        host = (
            request.host.rpartition(":")[0] if not request.host.endswith("]") and ":" in request.host else request.host
        )
        if self._local_only and host.lower() not in LOCAL_HOSTS:
            return _problem(403, f"this is {', '.join(sorted(LOCAL_HOSTS))}, and not {host[:100]}")
        asks = request.path.startswith("/api/")
        if asks and request.headers.get("Sec-Fetch-Site", OWN_PAGES[0]) not in OWN_PAGES:
            return _problem(403, "only this site's own page may ask")
        try:
            return await handler(request)
        except ClusterError as cause:
            return _problem(503, str(cause))
        except FlotillaError as cause:
            return _problem(400, str(cause))

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        viewer = self._follower.open()
        if viewer is None:
            return _problem(429, "too many pages are open: close some")
        response = web.StreamResponse(headers={"Content-Type": LINES, "X-Accel-Buffering": "no"})
        try:
            await response.prepare(request)
            async for line in self._follower.stream(viewer):
                await response.write(line)
        except ConnectionResetError:
            pass  # the page was closed
        finally:
            self._follower.close(viewer)
        return response

    async def _pods(self, request: web.Request) -> web.Response:
        query = request.query
        text, state = (query.get(name, "")[:LONGEST_QUERY] for name in ("text", "state"))
        offset, limit = _number(query.get("offset", "0")), _number(query.get("limit", "100"))
        self._follower.touch()
        return _json(self._lookup.pods(text.strip(), state, offset, min(limit, MOST_ROWS)))

    async def _pod(self, request: web.Request) -> web.Response:
        self._follower.touch()
        found = await self._lookup.pod(*_pod_of(request))
        if found is None and self._follower.cluster.stale:
            return _problem(503, "the cluster is being read")
        return (
            _problem(404, "there is no such pod here: it is gone, or of another scheduler")
            if found is None
            else _json(found)
        )

    async def _explanation(self, request: web.Request) -> web.Response:
        self._follower.touch()
        return _json(await self._reasons.explanation(*_pod_of(request)))

    async def _timeline(self, request: web.Request) -> web.Response:
        self._follower.touch()
        return _json(await timeline(self._follower.client, *_pod_of(request), request.query.get("uid", "")))

    async def _rejections(self, request: web.Request) -> web.Response:
        self._follower.touch()
        return _json(await self._reasons.rejections(*_pod_of(request)))

    async def _gangs(self, request: web.Request) -> web.Response:
        self._follower.touch()
        return _json(await self._reasons.gangs())

    async def _preemptions(self, request: web.Request) -> web.Response:
        self._follower.touch()
        return _json(await self._lookup.preemptions())

    async def _node(self, request: web.Request) -> web.Response:
        self._follower.touch()
        found = self._lookup.node(request.query.get("name", ""))
        return _problem(404, "there is no such node") if found is None else _json(found)

    async def _labels(self, request: web.Request) -> web.Response:
        self._follower.touch()
        return _json(self._lookup.labels(request.query.get("key", "")))

    async def _kinds(self, _: web.Request) -> web.Response:
        self._follower.touch()
        return _json(node_kinds(self._follower.cluster.nodes.values()))


async def _file(request: web.Request) -> web.Response:
    body, content_type = files()[request.path]
    return web.Response(body=body, content_type=content_type, charset="utf-8")


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    for name, value in HEADERS.items():
        response.headers[name] = value


def _pod_of(request: web.Request) -> tuple[str, str]:
    return request.query.get("namespace", ""), request.query.get("name", "")


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _json(found: Any) -> web.Response:
    return web.Response(body=msgspec.json.encode(found), content_type="application/json")


def _problem(status: int, text: str) -> web.Response:
    return web.Response(body=msgspec.json.encode({"problem": text}), status=status, content_type="application/json")
