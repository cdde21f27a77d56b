"""A server of one kind of objects that does, request by request, what a script says; over real connections.

Objects are known by name. Every change makes the next version; what was at each version is kept, so that a reader's
world can be compared with it.
"""

import asyncio
import base64
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

import msgspec

from tests.listening import listening

PATH = "/api/v1/things"
World = dict[str, int]
"""Versions by name."""


@dataclass(frozen=True, slots=True)
class Step:
    """The result of one request. `fault`: see `ScriptedServer`; `after`: how many writes succeed before it."""

    fault: str = ""
    after: int = 0


@dataclass(frozen=True, slots=True)
class Change:
    """Of one object: it is there, or not; or, without a name, everything before is forgotten."""

    name: str
    there: bool = True


class _Cut(Exception):
    """The connection is to break off."""


@dataclass(slots=True)
class ScriptedServer:
    """Faults of any request: 429, 503, 500, cut (no answer). Of pages: 410. Of watches, after some writes: end, cut,
    dead (says nothing more and stays), gone, busy and broken (ERROR events). `streams`: yes, refuses, ignores.
    """

    script: list[Step] = field(default_factory=list)
    churn: list[Change] = field(default_factory=list)
    streams: str = "yes"
    page: int = 2
    url: str = ""
    history: list[tuple[str, str, World]] = field(default_factory=lambda: [("", "", {})])
    """For each version, what happened and the world after it."""
    oldest: int = 0
    requests: list[str] = field(default_factory=list)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def version(self) -> int:
        return len(self.history) - 1

    def world(self, version: int) -> World:
        return self.history[version][2]

    def put(self, change: Change) -> None:
        if not change.name:
            self.oldest = self.version
            return
        world = dict(self.world(self.version))
        was_there = world.pop(change.name, None) is not None
        if not (change.there or was_there):
            return
        if change.there:
            world[change.name] = self.version + 1
        type_ = "DELETED" if not change.there else "MODIFIED" if was_there else "ADDED"
        self.history.append((type_, change.name, world))
        self._changed.set()
        self._changed = asyncio.Event()

    def move(self) -> None:
        """The next change that is one."""
        before = self.version
        while self.churn and self.version == before:
            self.put(self.churn.pop(0))

    # Connections

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                parts = urlsplit(head.split(" ", 2)[1])
                self.requests.append(parts.query)
                query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
                step = self.script.pop(0) if self.script else Step()
                self.move()
                await self._answer(query, step, writer)
        except (_Cut, ConnectionError, asyncio.IncompleteReadError):
            pass

    async def _answer(self, query: dict[str, str], step: Step, writer: asyncio.StreamWriter) -> None:
        if step.fault in ("429", "503", "500") and step.after == 0:
            await _whole(writer, int(step.fault), _status(int(step.fault)), "Retry-After: 0\r\n")
        elif step.fault == "cut" and step.after == 0:
            raise _Cut
        elif "watch" not in query:
            await self._list(query, step, writer)
        elif "sendInitialEvents" in query and self.streams == "refuses":
            await _whole(writer, 422, _status(422))
        else:
            await self._watch(query, step, writer)

    async def _list(self, query: dict[str, str], step: Step, writer: asyncio.StreamWriter) -> None:
        following = query.get("continue", "")
        version, begin = msgspec.json.decode(base64.b64decode(following)) if following else (self.version, 0)
        if version < self.oldest or (following and step.fault == "410"):
            await _whole(writer, 410, _status(410))
            return
        names = sorted(self.world(version))
        end = begin + self.page
        metadata = {"resourceVersion": str(version)}
        if end < len(names):
            metadata["continue"] = base64.b64encode(msgspec.json.encode([version, end])).decode()
        items = [_object(name, self.world(version)[name]) for name in names[begin:end]]
        body = msgspec.json.encode({"kind": "List", "metadata": metadata, "items": items})
        if step.fault == "cut":
            writer.write(_head(200, f"Content-Length: {len(body)}\r\n") + body[: len(body) // 2])
            await writer.drain()
            raise _Cut
        await _whole(writer, 200, body)

    async def _watch(self, query: dict[str, str], step: Step, writer: asyncio.StreamWriter) -> None:
        out = _Chunks(writer, step, self.move)
        writer.write(_head(200, "Transfer-Encoding: chunked\r\n"))
        asked = query.get("resourceVersion", "")
        if asked:
            at = int(asked)
            if at < self.oldest:
                await out.event("ERROR", _status(410))
                await out.end()
                return
        else:
            at = self.version
            for name, version in sorted(self.world(at).items()):
                await out.event("ADDED", _object(name, version))
            if self.streams == "yes":
                at = await self._history(out, at)
                await out.event("BOOKMARK", _object("", at, {"k8s.io/initial-events-end": "true"}))
        for _ in range(30):
            at = await self._history(out, at)
            await out.event("BOOKMARK", _object("", at))
            changed = self._changed
            try:
                async with asyncio.timeout(0.02):
                    await changed.wait()
            except TimeoutError:
                pass
        await out.end()

    async def _history(self, out: "_Chunks", at: int) -> int:
        while at < self.version:
            at += 1
            type_, name, _ = self.history[at]
            await out.event(type_, _object(name, at))
        return at


class _Chunks:
    """The body of a watch; the fault of its step comes after a given number of events."""

    def __init__(self, writer: asyncio.StreamWriter, step: Step, move: Callable[[], None]) -> None:
        self._writer = writer
        self._fault = step.fault
        self._left = step.after
        self._move = move

    async def event(self, type_: str, obj: object) -> None:
        line = msgspec.json.encode({"type": type_, "object": obj}) + b"\n"
        if self._fault and self._left == 0:
            await self._fail(line)
        self._left -= 1
        self._write(line)
        await self._writer.drain()
        self._move()

    async def end(self) -> None:
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    async def _fail(self, line: bytes) -> None:
        codes = {"gone": 410, "busy": 429, "broken": 500}
        if self._fault in codes:
            self._write(msgspec.json.encode({"type": "ERROR", "object": _status(codes[self._fault])}) + b"\n")
            await self.end()
        elif self._fault == "end":
            await self.end()
        elif self._fault == "dead":
            self._write(line[: len(line) // 2])
            await asyncio.sleep(60)
        else:
            self._write(line[: len(line) // 2])
            await self._writer.drain()
        raise _Cut

    def _write(self, data: bytes) -> None:
        self._writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


def _object(name: str, version: int, annotations: dict[str, str] | None = None) -> dict[str, object]:
    return {"metadata": {"name": name, "resourceVersion": str(version), "annotations": annotations or {}}}


def _status(code: int) -> dict[str, object]:
    return {"kind": "Status", "code": code, "message": f"scripted {code}"}


def _head(code: int, fields: str) -> bytes:
    return f"HTTP/1.1 {code} Scripted\r\nContent-Type: application/json\r\n{fields}\r\n".encode()


async def _whole(writer: asyncio.StreamWriter, code: int, body: object, fields: str = "") -> None:
    data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    writer.write(_head(code, f"Content-Length: {len(data)}\r\n{fields}") + data)
    await writer.drain()


@asynccontextmanager
async def scripted(
    script: Sequence[Step] = (), churn: Sequence[Change] = (), streams: str = "yes", names: Sequence[str] = ()
) -> AsyncIterator[ScriptedServer]:
    server = ScriptedServer(list(script), list(churn), streams)
    for name in names:
        server.put(Change(name))
    async with listening(server.serve) as port:
        server.url = f"http://127.0.0.1:{port}"
        yield server
