"""Faults that a test asks for: the next requests that match fail, are late, or lose their connection."""

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
from testing.simulator.requests import JSON, Answer, Call, parse_target, refusal
from testing.simulator.watch import Watch

LARGEST_BODY = 3 << 20
SHORTEST_WATCH = 1800.0
"""A watch that names no time-out lasts between this and twice as long, so that not all of them end at once."""
LONGEST_WATCH = 86_400
LAST_WORD = 2.0
"""So many seconds before its end, a watch that wants bookmarks gets one."""
BODYLESS = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(slots=True)
class Fault:
    """What happens to the next `times` requests whose method and path match."""

    method: str
    path: re.Pattern[str]
    times: int
    error: ApiError | None = None
    drops: bool = False
    seconds: float = 0.0
    after: bool = False
    """The request is carried out first: only its answer is lost."""
    as_of: int | None = None
    """A list or watch shows the state of this version first, and a watch then what happened since."""


class Faults:
    def __init__(self) -> None:
        self._faults: list[Fault] = []

    def __bool__(self) -> bool:
        return bool(self._faults)

    def fail(self, method: str, path: str, code: int = 500, *, times: int = 1, reason: str = "InternalError") -> Fault:
        """Answer with this status. `method` may be "*"; `path` is a regular expression that is searched for."""
        error = ApiError(code, reason, "a fault was asked for")
        return self._add(Fault(method, re.compile(path), times, error=error))

    def drop(self, method: str, path: str, *, times: int = 1, after: bool = False) -> Fault:
        """Close the connection without an answer; `after`: once the request has been carried out."""
        return self._add(Fault(method, re.compile(path), times, drops=True, after=after))

    def delay(self, method: str, path: str, seconds: float, *, times: int = 1) -> Fault:
        """Carry the request out later."""
        return self._add(Fault(method, re.compile(path), times, seconds=seconds))

    def show_past(self, path: str, version: int, *, times: int = 1) -> Fault:
        """Lists and watches are served as by a cache that is behind, whatever version they ask for."""
        return self._add(Fault("GET", re.compile(path), times, as_of=version))

    def end(self, fault: Fault) -> None:
        """It is over, however often it was to be met; nothing if it is over already."""
        self._faults = [each for each in self._faults if each is not fault]

    def clear(self) -> None:
        self._faults.clear()

    def take(self, method: str, path: str) -> Fault | None:
        """The fault that this request meets, if any; it is used up by one."""
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
    """Answers every request of every connection."""

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
        return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=LARGEST_BODY)

    def close_watches(self) -> None:
        for watch in tuple(self._watches):
            watch.close()

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        path, query = parse_target(request.raw_path)
        if self._expected is not None and path not in OPEN_TO_ALL and not self._knows(request):
            return _response(refusal(unauthorized()))
        fault = self._faults.take(request.method, path) if self._faults else None
        if fault is not None:
            early = await self._strike(request, fault)
            if early is not None:
                return early
        headers = request.headers
        try:
            body = b"" if request.method in BODYLESS else await request.read()
        except web.HTTPRequestEntityTooLarge:
            return _response(refusal(too_large(LARGEST_BODY)))
        except web.RequestPayloadError:
            return _response(refusal(bad_request("the body of the request could not be read")))
        media = headers.get("Content-Type", JSON)
        if ";" in media:
            media = media.partition(";")[0].strip()
        as_of = None if fault is None else fault.as_of
        outcome = self._api.handle(Call(request.method, path, query, body, media, headers.get("Accept", JSON), as_of))
        if fault is not None and fault.after:
            return _lost(request)
        if isinstance(outcome, Watch):
            return await self._stream(request, outcome, query)
        return _response(outcome)

    def _knows(self, request: web.BaseRequest) -> bool:
        given = request.headers.get("Authorization", "").encode("utf-8", "replace")
        return self._expected is not None and hmac.compare_digest(given, self._expected)

    async def _strike(self, request: web.BaseRequest, fault: Fault) -> web.StreamResponse | None:
        """The response, if the fault leaves nothing else to answer."""
        if fault.seconds:
            await asyncio.sleep(fault.seconds)
        if fault.drops and not fault.after:
            return _lost(request)
        return None if fault.error is None else _response(refusal(fault.error))

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
        return min(seconds, LONGEST_WATCH) or SHORTEST_WATCH * (1 + self._jitter.random())

    def _next_bookmark(self, now: float, end: float) -> float:
        last = end - LAST_WORD
        return min(now + self._bookmark_seconds, last) if last > now else now + self._bookmark_seconds

    async def _follow(
        self, response: web.StreamResponse, watch: Watch, ready: asyncio.Event, lasts: float, *, bookmarks: bool
    ) -> None:
        """Send what comes up, many changes in one write, until the watch ends."""
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


def _response(answer: Answer) -> web.Response:
    headers = {"Content-Type": answer.content_type}
    if answer.retry_after or answer.status == 429:
        headers["Retry-After"] = str(answer.retry_after or 1)
    return web.Response(body=answer.body, status=answer.status, headers=headers)


def _abort(request: web.BaseRequest) -> None:
    if request.transport is not None:
        request.transport.abort()


def _lost(request: web.BaseRequest) -> web.Response:
    """What nobody gets to see: the connection is gone."""
    _abort(request)
    return web.Response(status=500)
