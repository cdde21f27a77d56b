"""The HTTP side: requests, responses and watch streams, and the faults that a test injects into them."""

import asyncio
import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler

from testing.simulator.api import OPEN_TO_ALL, Api
from testing.simulator.errors import ApiError, bad_request, too_large, unauthorized
from testing.simulator.requests import JSON, Request, Response, error_response, parse_target
from testing.simulator.watch import Watch

MAX_BODY_BYTES = 3 << 20
MIN_WATCH = 1800.0
"""A watch without a time-out lasts one to two times this long, so that watches do not all end together."""
MAX_WATCH = 86_400
LAST_BOOKMARK = 2.0
"""Seconds before its end at which a watch gets its last bookmark."""
BODYLESS = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(slots=True)
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


class Faults:
    def __init__(self) -> None:
        self._faults: list[Fault] = []

    def __bool__(self) -> bool:
        return bool(self._faults)

    def fail(self, method: str, path: str, code: int = 500, *, times: int = 1, reason: str = "InternalError") -> Fault:
        """Respond with this status. `method` may be "*"; `path` is a regular expression to search for."""
        error = ApiError(code, reason, "injected fault")
        return self._add(Fault(method, re.compile(path), times, error=error))

    def drop(self, method: str, path: str, *, times: int = 1, after: bool = False) -> Fault:
        """Close the connection without a response; `after`: once the request has been carried out."""
        return self._add(Fault(method, re.compile(path), times, drops=True, after=after))

    def delay(self, method: str, path: str, seconds: float, *, times: int = 1) -> Fault:
        """Carry out the request after a delay."""
        return self._add(Fault(method, re.compile(path), times, seconds=seconds))

    def show_past(self, path: str, version: int, *, times: int = 1) -> Fault:
        """Serve lists and watches from a stale cache, whatever version they request."""
        return self._add(Fault("GET", re.compile(path), times, as_of=version))

    def end(self, fault: Fault) -> None:
        """Remove a fault, however many times are left; idempotent."""
        self._faults = [each for each in self._faults if each is not fault]

    def clear(self) -> None:
        self._faults.clear()

    def take(self, method: str, path: str) -> Fault | None:
        """The fault that affects this request, if any; counts down its `times`."""
        for fault in self._faults:
            if fault.method in ("*", method) and fault.path.search(path):
                fault.times -= 1
                if fault.times <= 0:
                    self.end(fault)
                return fault
        return None

    def _add(self, fault: Fault) -> Fault:
        self._faults.append(fault)
        return fault


class Handler:
    def __init__(
        self, api: Api, faults: Faults, *, token: str | None, bookmark_seconds: float, version: Callable[[], int]
    ) -> None:
        self._api = api
        self._faults = faults
        self._expected = None if token is None else f"Bearer {token}".encode()
        self._bookmark_seconds = bookmark_seconds
        self._version = version
        self._jitter = Random(0)
        self._watches: set[Watch] = set()

    def make_request(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: RequestHandler,
        writer: AbstractStreamWriter,
        task: "asyncio.Task[None]",
    ) -> web.BaseRequest:
        loop = asyncio.get_running_loop()
        return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=MAX_BODY_BYTES)

    def close_watches(self) -> None:
        for watch in tuple(self._watches):
            watch.close()

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        path, query = parse_target(request.raw_path)
        if self._expected is not None and path not in OPEN_TO_ALL and not self._authenticated(request):
            return _response(error_response(unauthorized()))
        fault = self._faults.take(request.method, path) if self._faults else None
        if fault is not None:
            response = await self._apply_fault(request, fault)
            if response is not None:
                return response
        headers = request.headers
        try:
            body = b"" if request.method in BODYLESS else await request.read()
        except web.HTTPRequestEntityTooLarge:
            return _response(error_response(too_large(MAX_BODY_BYTES)))
        except web.RequestPayloadError:
            return _response(error_response(bad_request("the body of the request could not be read")))
        media = headers.get("Content-Type", JSON)
        if ";" in media:
            media = media.partition(";")[0].strip()
        as_of = None if fault is None else fault.as_of
        outcome = self._api.handle(
            Request(request.method, path, query, body, media, headers.get("Accept", JSON), as_of)
        )
        if fault is not None and fault.after:
            return _drop_connection(request)
        if isinstance(outcome, Watch):
            return await self._stream(request, outcome, query)
        return _response(outcome)

    def _authenticated(self, request: web.BaseRequest) -> bool:
        given = request.headers.get("Authorization", "").encode("utf-8", "replace")
        return self._expected is not None and hmac.compare_digest(given, self._expected)

    async def _apply_fault(self, request: web.BaseRequest, fault: Fault) -> web.StreamResponse | None:
        """The response, if the fault replaces the request's own."""
        if fault.seconds:
            await asyncio.sleep(fault.seconds)
        if fault.drops and not fault.after:
            return _drop_connection(request)
        return None if fault.error is None else _response(error_response(fault.error))

    async def _stream(self, request: web.BaseRequest, watch: Watch, query: dict[str, str]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": JSON, "Cache-Control": "no-cache, private"})
        self._watches.add(watch)
        ready = asyncio.Event()
        watch.on_ready = ready.set
        watch.on_overflow = lambda: _abort(request)
        lasts = self._duration(query.get("timeoutSeconds", ""))
        bookmarks = query.get("allowWatchBookmarks") in ("1", "true", "True")
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

    def _duration(self, asked: str) -> float:
        seconds = int(asked) if asked.isdecimal() else 0
        return min(seconds, MAX_WATCH) or MIN_WATCH * (1 + self._jitter.random())

    def _next_bookmark(self, now: float, end: float) -> float:
        last = end - LAST_BOOKMARK
        return min(now + self._bookmark_seconds, last) if last > now else now + self._bookmark_seconds

    async def _follow(
        self, response: web.StreamResponse, watch: Watch, ready: asyncio.Event, lasts: float, *, bookmarks: bool
    ) -> None:
        """Send changes, many in one write, until the watch ends."""
        loop = asyncio.get_running_loop()
        end = loop.time() + lasts
        next_bookmark = self._next_bookmark(loop.time(), end) if bookmarks else end
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
                await response.write(watch.bookmark(self._version()))
                next_bookmark = self._next_bookmark(now, end)
                continue
            try:
                async with asyncio.timeout_at(min(end, next_bookmark)):
                    await ready.wait()
            except TimeoutError:
                continue


def _response(answer: Response) -> web.Response:
    headers = {"Content-Type": answer.content_type}
    if answer.retry_after or answer.status == 429:
        headers["Retry-After"] = str(answer.retry_after or 1)
    return web.Response(body=answer.body, status=answer.status, headers=headers)


def _abort(request: web.BaseRequest) -> None:
    if request.transport is not None:
        request.transport.abort()


def _drop_connection(request: web.BaseRequest) -> web.Response:
    """Never sent: the connection is gone."""
    _abort(request)
    return web.Response(status=500)
