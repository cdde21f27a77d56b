"""The simulator over HTTP, inside the process that starts it: options, requests, watch streams, injected faults."""

import asyncio
import hmac
import re
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random

import msgspec
from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler

from shared.errors import UserError
from testing.listening import close
from testing.simulator.api import Api
from testing.simulator.cluster import SimulatedCluster
from testing.simulator.controllers import DeviceControllers, Kubelets
from testing.simulator.discovery import OPEN_TO_ALL
from testing.simulator.errors import ApiError, bad_request, not_found
from testing.simulator.group_controllers import GroupControllers
from testing.simulator.made_up import populate
from testing.simulator.requests import BULK, JSON, TRUE, Request, Response, error_response, parse_target
from testing.simulator.resources import DEFINITIONS, ApiResource, Object
from testing.simulator.store import Item
from testing.simulator.subresources import ReviewedUser
from testing.simulator.volumes import VolumeProvisioner
from testing.simulator.watch import Watch
from testing.simulator.workloads.controller import WorkloadControllers

STOP_SECONDS = 2.0
MAX_BODY_BYTES = 3 << 20
MIN_WATCH = 1800.0
"""A watch without a time-out lasts one to two times this long, so that watches do not all end together."""
MAX_WATCH = 86_400
MAX_BEHIND = 8 << 20
"""Bytes that may wait for a watch when a bulk request is carried out."""
BEHIND_POLL = 0.01
LAST_BOOKMARK = 2.0
"""Seconds before its end at which a watch gets its last bookmark."""
UNAUTHORIZED = ApiError(401, "Unauthorized", "Unauthorized")
TOO_LARGE = ApiError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {MAX_BODY_BYTES}")
BODYLESS = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True, slots=True)
class SimulatorOptions:
    host: str = "127.0.0.1"
    """Address to listen on. Without TLS, it should stay this machine."""
    port: int = 0
    """0: any free port."""
    token: str | None = None
    """Bearer token to require; None: no authentication."""
    kubelet: bool = True
    """Run bound pods, remove deleted ones, and make the pods of workloads, claims and devices."""
    bookmark_seconds: float = 60.0
    """Interval of bookmarks; a minute, as from a real server."""
    history: int = 32_768
    """Changes of each type from which watches can resume: ten seconds at 3,000 changes a second."""
    max_events: int = 50_000
    """Events kept at most, about 40 MB; the oldest are removed."""
    max_pending_bytes: int = 64 << 20
    """Bytes that may wait for one watch; beyond that the watch ends."""
    users: tuple[ReviewedUser, ...] = ()
    """Users known to TokenReview and SubjectAccessReview. They do not restrict requests to the simulator."""
    denied: frozenset[str] = frozenset()
    """Rights that SelfSubjectAccessReview denies, such as `delete pods`; they do not restrict requests either."""
    seed: int | None = None
    """Seed of uids and generated names; None: random."""
    tls: ssl.SSLContext | None = None
    """Of the server's side; None: plain HTTP."""
    nodes: int = 0
    """Nodes of the made-up cluster that it starts with; 0: an empty one."""


@dataclass(slots=True, eq=False)
class Fault:
    """Affects the next `times` requests whose method and path match."""

    method: str
    path: re.Pattern[str]
    times: int
    error: ApiError | None = None
    drops: bool = False
    seconds: float = 0.0
    after: bool = False
    """Drop the connection after the request has been carried out."""
    as_of: int | None = None
    """Serve lists and watches from a stale cache, at this version."""


class Faults(list[Fault]):
    """`method` may be "*"; `path` is a regular expression to search for."""

    def fail(self, method: str, path: str, code: int = 500, *, times: int = 1, reason: str = "InternalError") -> Fault:
        """Respond with this status."""
        return self._add(Fault(method, re.compile(path), times, error=ApiError(code, reason, "injected fault")))

    def drop(self, method: str, path: str, *, times: int = 1, after: bool = False) -> Fault:
        """Close the connection without a response; `after`: once the request has been carried out."""
        return self._add(Fault(method, re.compile(path), times, drops=True, after=after))

    def delay(self, method: str, path: str, seconds: float, *, times: int = 1) -> Fault:
        """Carry out the request after a delay."""
        return self._add(Fault(method, re.compile(path), times, seconds=seconds))

    def show_past(self, path: str, version: int, *, times: int = 1) -> Fault:
        """Serve lists and watches from a stale cache, ignoring the version that they request."""
        return self._add(Fault("GET", re.compile(path), times, as_of=version))

    def _add(self, fault: Fault) -> Fault:
        self.append(fault)
        return fault

    def end(self, fault: Fault) -> None:
        """Remove a fault; idempotent."""
        if fault in self:
            self.remove(fault)

    def take(self, method: str, path: str) -> Fault | None:
        """The fault that affects this request, if any; counts down its `times`."""
        for fault in self:
            if fault.method in ("*", method) and fault.path.search(path):
                fault.times -= 1
                if fault.times <= 0:
                    self.remove(fault)
                return fault
        return None


def _make_request(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: RequestHandler,
    writer: AbstractStreamWriter,
    task: "asyncio.Task[None]",
) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=MAX_BODY_BYTES)


def _response(answer: Response) -> web.Response:
    headers = {"Content-Type": answer.content_type}
    if answer.retry_after or answer.status == 429:
        headers["Retry-After"] = str(answer.retry_after or 1)
    return web.Response(body=answer.body, status=answer.status, headers=headers)


def _drop_connection(request: web.BaseRequest) -> web.Response:
    """The response is never sent."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)


class Simulator:
    """A Kubernetes API server in this process."""

    def __init__(
        self,
        options: SimulatorOptions | None = None,
        clock: Callable[[], float] = time.time,
        cluster: SimulatedCluster | None = None,
    ) -> None:
        """`cluster`: serve another simulator's cluster, as a second API server with faults of its own."""
        self.options = options or SimulatorOptions()
        self.faults = Faults()
        self.url = ""
        self.cluster = cluster or SimulatedCluster(
            history=self.options.history,
            max_events=self.options.max_events,
            clock=clock,
            random=Random(self.options.seed),
        )
        self._api = Api(self.cluster, self.options.max_pending_bytes, self.options.users, self.options.denied)
        self._jitter = Random(0)
        self._watches: set[Watch] = set()
        self._web: web.Server | None = None
        self._listening: asyncio.Server | None = None
        self._controllers: list[asyncio.Task[None]] = []

    async def start(self) -> str:
        """Make up the cluster, if wanted, and listen; returns the URL."""
        host, port = self.options.host, self.options.port
        server = web.Server(self._handle, request_factory=_make_request, handler_cancellation=True, access_log=None)
        loop = asyncio.get_running_loop()
        try:
            listening = await loop.create_server(server, host, port, ssl=self.options.tls, start_serving=False)
        except OSError as error:
            why = error.strerror or str(error)
            raise UserError(f"the simulator cannot listen on {host}:{port}: {why}") from error
        self._web, self._listening = server, listening
        bound = listening.sockets[0].getsockname()[1]
        scheme = "http" if self.options.tls is None else "https"
        self.url = f"{scheme}://[{host}]:{bound}" if ":" in host else f"{scheme}://{host}:{bound}"
        if self.options.kubelet:
            self._controllers = [
                asyncio.create_task(Kubelets(self.cluster).run(), name="simulated kubelets"),
                asyncio.create_task(DeviceControllers(self.cluster).run(), name="simulated device controllers"),
                asyncio.create_task(GroupControllers(self.cluster).run(), name="simulated group controllers"),
                asyncio.create_task(WorkloadControllers(self.cluster).run(), name="simulated workload controllers"),
                asyncio.create_task(VolumeProvisioner(self.cluster).run(), name="simulated volume provisioner"),
            ]
        await populate(self.cluster, self.options.nodes, running=self.options.kubelet)
        await listening.start_serving()
        return self.url

    async def stop(self) -> None:
        for controller in self._controllers:
            controller.cancel()
        await asyncio.gather(*self._controllers, return_exceptions=True)
        self._controllers.clear()
        if self._listening is not None and self._web is not None:
            await close(self._listening)
            self.close_watches()
            await self._web.shutdown(STOP_SECONDS)
            await self._listening.wait_closed()
            await asyncio.sleep(0)  # transports close in the next iteration of the loop
            self._listening = self._web = None

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        path, query = parse_target(request.raw_path)
        headers, token = request.headers, self.options.token
        if token is not None and path not in OPEN_TO_ALL:
            given = headers.get("Authorization", "").encode("utf-8", "replace")
            if not hmac.compare_digest(given, f"Bearer {token}".encode()):
                return _response(error_response(UNAUTHORIZED))
        fault = self.faults.take(request.method, path)
        if fault is not None:
            if fault.seconds:
                await asyncio.sleep(fault.seconds)
            if fault.drops and not fault.after:
                return _drop_connection(request)
            if fault.error is not None:
                return _response(error_response(fault.error))
        try:
            body = b"" if request.method in BODYLESS else await request.read()
        except web.HTTPRequestEntityTooLarge:
            return _response(error_response(TOO_LARGE))
        except web.RequestPayloadError:
            return _response(error_response(bad_request("the body of the request could not be read")))
        if path.startswith(f"{BULK}/"):
            return await self._post_all(path.removeprefix(BULK), body)
        media = headers.get("Content-Type", JSON).partition(";")[0].strip()
        as_of = None if fault is None else fault.as_of
        outcome = self._api.handle(
            Request(request.method, path, query, body, media, headers.get("Accept", JSON), as_of)
        )
        if fault is not None and fault.after:
            return _drop_connection(request)
        if isinstance(outcome, Watch):
            return await self._stream(request, outcome, query)
        return _response(outcome)

    async def _post_all(self, path: str, body: bytes) -> web.Response:
        """Wait until all watches have received most of what came before, so that none of them ends."""
        try:
            objects = msgspec.json.decode(body, type=list[Object])
        except msgspec.DecodeError as error:
            return _response(error_response(bad_request(f"the body is not a list of objects: {error}")))
        while any(watch.pending_bytes > MAX_BEHIND for watch in self._watches):
            await asyncio.sleep(BEHIND_POLL)
        return _response(self._api.post_all(path, objects))

    async def _stream(self, request: web.BaseRequest, watch: Watch, query: dict[str, str]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": JSON, "Cache-Control": "no-cache, private"})
        self._watches.add(watch)
        ready = asyncio.Event()
        watch.on_ready = ready.set
        watch.on_overflow = partial(_drop_connection, request)
        asked = query.get("timeoutSeconds", "")
        seconds = int(asked) if asked.isdecimal() else 0
        lasts = min(seconds, MAX_WATCH) or MIN_WATCH * (1 + self._jitter.random())
        bookmarks = query.get("allowWatchBookmarks") in TRUE
        try:
            await response.prepare(request)
            for chunk in watch.initial_chunks():
                await response.write(chunk)
            await self._follow(response, watch, ready, lasts, bookmarks=bookmarks)
            await response.write_eof()
        except ConnectionError:
            response.force_close()
        finally:
            watch.on_ready = watch.on_overflow = None
            watch.close()
            self._watches.discard(watch)
        return response

    async def _follow(
        self, response: web.StreamResponse, watch: Watch, ready: asyncio.Event, lasts: float, *, bookmarks: bool
    ) -> None:
        """Send changes, many in one write, until the watch ends."""
        loop = asyncio.get_running_loop()
        end = loop.time() + lasts

        def bookmark_after(now: float) -> float:
            """The last bookmark is sent shortly before the end."""
            due, last = now + self.options.bookmark_seconds, end - LAST_BOOKMARK
            return min(due, last) if last > now else due

        next_bookmark = bookmark_after(loop.time()) if bookmarks else end
        while True:
            ready.clear()
            waiting = watch.take()
            if waiting:
                await response.write(waiting)
                continue
            now = loop.time()
            if watch.closed or now >= end:
                return
            if now >= next_bookmark:
                await response.write(watch.bookmark(self.cluster.store.version))
                next_bookmark = bookmark_after(now)
                continue
            try:
                async with asyncio.timeout_at(min(end, next_bookmark)):
                    await ready.wait()
            except TimeoutError:
                continue

    def serve(self, group: str, *versions: str) -> None:
        """Serve a group's types in these versions only, as another release does; objects are unaffected."""
        self.cluster.catalog.serve(group, versions)

    # For tests

    def store_raw(self, plural: str, obj: Object, *, group: str = "", version: str = "") -> Item:
        """Store an object as it is, even one that a real server rejects. Without a version any served one is used.

        The object needs a name, and a namespace if its type is namespaced.
        """
        return self.cluster.store.put(self._resource(plural, group, version), obj)

    def stored(self, plural: str, name: str, namespace: str = "", *, group: str = "", version: str = "") -> Object:
        """A copy of an object."""
        return self.cluster.find(self._resource(plural, group, version), namespace, name).decode()

    def close_watches(self) -> None:
        """End every open watch, as a restarting server does."""
        for watch in tuple(self._watches):
            watch.close()

    def compact(self) -> None:
        """Discard the history: older resource versions and continue tokens are expired."""
        self.cluster.store.compact()
        self._api.pages.expire()

    def resize_history(self, history: int) -> None:
        """Keep this many changes of each type from now on."""
        self.cluster.store.resize_history(history)

    def _resource(self, plural: str, group: str, version: str) -> ApiResource:
        catalog = self.cluster.catalog
        versions = [version] if version else catalog.groups().get(group, [])
        found = (catalog.find(group, one, plural) for one in versions)
        resource = next((resource for resource in found if resource is not None), None)
        if resource is None:
            raise not_found(DEFINITIONS, f"{plural}.{group}")
        return resource
