"""The real client of the API server over a simulated transport that is slow, late or broken.

A call may be executed after its caller has given up or died.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from typing import Any, NamedTuple

import msgspec

from shared.http.errors import BadAnswer, Closed, Late
from shared.kube.client import KubeClient
from shared.kube.outcome import ApiResponse
from shared.messages.watch import Kind
from testing.simulation import claims
from testing.simulation.apiserver import PATHS, Answer, ApiServer, Change, Requests, status
from testing.simulation.loop import WORLD, Dice

SERVER = "https://simulated"
SLOW = (0.3, 2.0, 9.0, 10.5)
"""Seconds that a call with bad luck takes."""
CUT_CALL_LIVES = 0.9
"""Seconds for which a call may still be executed after its caller is gone, unless calls are late."""
LATEST = 60.0
"""The longest delay of a late call, in seconds."""
LOOK = 0.05
LEASES = "/leases"


class Binding(NamedTuple):
    """A call to bind a pod. `version`: its precondition, if any."""

    uid: str
    version: str
    node: str


def _binding(path: str, body: bytes | None) -> Binding | None:
    if body is None or not path.endswith("/binding"):
        return None
    given = msgspec.json.decode(body)
    return Binding(given["metadata"]["uid"], given["metadata"].get("resourceVersion", ""), given["target"]["name"])


class Transport:
    """`bad_luck`: the share of writes that are slow or refused. `stalled_until`: no call is executed before.

    `late`: the share of writes executed up to LATEST seconds after they were sent; `doubled`: the share executed again,
    as late.
    """

    def __init__(self, server: ApiServer, dice: Dice) -> None:
        self.bad_luck = 0.0
        self.late = self.doubled = 0.0
        self.stalled_until = 0.0
        self.cut_off: set[str] = set()
        self.behind_until = 0.0
        self.behind = 0
        """By how many versions lists and new watches lag. Watches catch up at `behind_until`."""
        self.streams: list[SimStream] = []
        self.deletes: list[Callable[[str, str], None]] = []
        """Called with the uid and the calling process of each deletion of a pod, as it is sent."""
        self.deleted: list[Callable[[str, Sent], None]] = []
        """Called with the uid of a pod that a call has just deleted."""
        self.bindings: list[Binding] = []
        """In transit."""
        self.on_call: list[Callable[[Sent, Moment, Answer | None], None]] = []
        """Called with each call as it is sent, executed (with the answer), given up or lost."""
        self._server = server
        self._requests = Requests(server, self._shown, claims.answer)
        self._dice = dice
        server.followers.append(self._changed)

    async def call(self, client: "SimClient", method: str, path: str, body: bytes | None, content_type: str) -> Answer:
        loop = asyncio.get_running_loop()
        if client.dead:
            raise asyncio.CancelledError
        if client.name in self.cut_off:
            raise Closed("cut off")
        sent = Sent(client.name, method, path, body, loop.time())
        if method == "DELETE":
            uid = self._requests.pod_to_delete(path, body)
            for on_delete in self.deletes if uid else ():
                on_delete(uid, client.name)
        answer: asyncio.Future[Answer] = loop.create_future()
        binding = _binding(path, body)

        def execute() -> None:
            now = loop.time()
            if now < self.stalled_until and not sent.is_dead(now, 0.1):
                loop.call_later(LOOK, execute, context=WORLD)
                return
            self._arrived(binding)
            if sent.is_dead(now, 0.0):
                self._report(sent, Moment.LOST)
                return
            done = self._execute(sent, content_type)
            if not answer.done() and client.name not in self.cut_off:
                answer.set_result(done)

        writes = method != "GET" and LEASES not in path
        dice = self._dice.of("call", client.name, method)
        delay = dice.uniform(0.001, 0.01)
        if writes and dice.random() < self.bad_luck:
            delay = dice.choice(SLOW)
            if method == "DELETE" and dice.random() < 0.5:
                return status(503, "too busy")
        elif writes and dice.random() < self.late:
            delay, sent.lives = dice.uniform(1.0, LATEST), LATEST
        self._in_transit(binding)
        loop.call_later(delay, execute, context=WORLD)
        sent.due.append(sent.at + delay)
        if writes and dice.random() < self.doubled:
            self._in_transit(binding)
            delay = dice.uniform(0.0, LATEST)
            sent.due.append(sent.at + delay)
            loop.call_later(delay, partial(self._again, binding, sent, content_type), context=WORLD)
        self._report(sent, Moment.SENT)
        try:
            return await answer
        except asyncio.CancelledError:
            sent.given_up = loop.time()
            self._report(sent, Moment.GIVEN_UP)
            raise

    def _again(self, binding: "Binding | None", sent: "Sent", content_type: str) -> None:
        self._arrived(binding)
        self._execute(sent, content_type)

    def _execute(self, sent: "Sent", content_type: str) -> Answer:
        uid = self._requests.pod_to_delete(sent.path, sent.body) if sent.method == "DELETE" else ""
        victim = self._server.pods.get(uid)
        done = self._requests.answer(sent.method, sent.path, sent.body, content_type)
        if victim is not None and victim.metadata.deletion_timestamp is None and done[0] == 200:
            for on_deleted in self.deleted:
                on_deleted(uid, sent)
        self._report(sent, Moment.EXECUTED, done)
        return done

    def _report(self, sent: "Sent", moment: "Moment", answer: Answer | None = None) -> None:
        for on_call in self.on_call:
            on_call(sent, moment, answer)

    def _in_transit(self, binding: "Binding | None") -> None:
        if binding is not None:
            self.bindings.append(binding)

    def _arrived(self, binding: "Binding | None") -> None:
        if binding is not None:
            self.bindings.remove(binding)

    # Watches

    def _shown(self) -> int:
        """The version that lists show."""
        version = self._server.version
        return max(1, version - self.behind) if asyncio.get_running_loop().time() < self.behind_until else version

    def watch(self, client: "SimClient", path: str) -> "SimStream":
        folder, _, query = path.partition("?")
        asked = dict(part.partition("=")[::2] for part in query.split("&"))
        stream = SimStream(self, client, PATHS[folder])
        shown = version = self._shown()
        if asked.get("sendInitialEvents") == "true":
            raws = self._server.state_at(stream.kind, version)
            lines = [_event("ADDED", raw) for raw in raws]
            stream.push(b"".join([*lines, _end_of_list(version)]))
        else:
            if int(asked["resourceVersion"]) > version:
                stream.push(_event("ERROR", status(410, "Expired: too large resource version")[1]))
                return stream
            version = int(asked["resourceVersion"])
        later = [change for change in self._server.history if change.kind is stream.kind and change.version > version]
        for change in later:
            if change.version > shown:
                stream.hold_back(self.behind_until)
            stream.push(_event(change.type, change.raw))
        if shown < self._server.version:
            stream.hold_back(self.behind_until)
        self.streams.append(stream)
        return stream

    def drop_watches(self, name: str = "") -> None:
        """Break the watches of one process, or all."""
        for stream in [stream for stream in self.streams if name in ("", stream.client.name)]:
            stream.break_off()

    def _changed(self, change: Change) -> None:
        for stream in self.streams:
            if stream.kind is change.kind:
                stream.push(_event(change.type, change.raw))


class Moment(Enum):
    """LOST: not executed, because its caller was gone for too long."""

    SENT = auto()
    EXECUTED = auto()
    GIVEN_UP = auto()
    LOST = auto()


@dataclass(slots=True, eq=False)
class Sent:
    """A call from the process `sender`. `due`: when it arrives, each time."""

    sender: str
    method: str
    path: str
    body: bytes | None
    at: float
    due: list[float] = field(default_factory=list)
    given_up: float | None = None
    lives: float = CUT_CALL_LIVES

    def is_dead(self, now: float, margin: float) -> bool:
        return self.given_up is not None and now > self.given_up + self.lives - margin


class SimStream:
    """A watch; stands in for the body of an answer."""

    status = 200

    def __init__(self, transport: Transport, client: "SimClient", kind: Kind) -> None:
        self.client = client
        self.kind = kind
        self._transport = transport
        self._data = b""
        self._in_transit: deque[bytes] = deque()
        self._held: list[bytes] | None = None
        self._ends = False
        self._broken = False
        self._waiter: asyncio.Future[None] | None = None

    def header(self, name: bytes) -> str | None:
        return None

    def hold_back(self, until: float) -> None:
        """Hold back what is pushed from now on."""
        if self._held is None:
            self._held = []
            asyncio.get_running_loop().call_at(until, self._release, context=WORLD)

    def _release(self) -> None:
        held, self._held = self._held or [], None
        self.push(b"".join(held))

    def push(self, data: bytes) -> None:
        if self._held is not None:
            self._held.append(data)
            return
        self._in_transit.append(data)
        asyncio.get_running_loop().call_later(0.001, self._arrive, context=WORLD)

    def _arrive(self) -> None:
        """In order, as timers of the same moment need not be."""
        self._data += self._in_transit.popleft()
        self._wake()

    def break_off(self) -> None:
        self._broken = True
        self._forget()

    def close(self) -> None:
        self._ends = True
        self._forget()

    def _forget(self) -> None:
        if self in self._transport.streams:
            self._transport.streams.remove(self)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def read(self, patience: float) -> bytes:
        try:
            async with asyncio.timeout(patience):
                await self._something()
        except TimeoutError as cause:
            raise Late("no answer in time") from cause
        data, self._data = self._data, b""
        return data

    async def _something(self) -> None:
        while not self._data and not self._ends:
            if self._broken:
                raise BadAnswer("the connection broke")
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter


class _Access:
    server = SERVER
    generation = 0

    async def refresh(self, **_: object) -> bool:
        return False


class SimClient(KubeClient):
    """The real client of one process, over the simulated transport."""

    def __init__(self, transport: Transport, name: str) -> None:
        access: Any = _Access()
        self.server = SERVER
        self.name = name
        self.dead = False
        self._access = access
        self._bucket = None
        self._calls = None
        self._answer_headers = []
        self._transport = transport

    async def close(self) -> None:
        for stream in [stream for stream in self._transport.streams if stream.client is self]:
            stream.close()

    async def _once(
        self, method: str, path: str, body: bytes | None, content_type: str, deadline: float
    ) -> ApiResponse:
        try:
            async with asyncio.timeout_at(deadline):
                return ApiResponse(*await self._transport.call(self, method, path, body, content_type))
        except TimeoutError as cause:
            raise Late("no answer in time") from cause

    async def _open(self, path: str, deadline: float) -> SimStream:
        if self.dead:
            raise asyncio.CancelledError
        if self.name in self._transport.cut_off:
            raise Closed("cut off")
        await asyncio.sleep(0.002)
        return self._transport.watch(self, path)


def _event(type_: str, raw: bytes) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (type_.encode(), raw)


def _end_of_list(version: int) -> bytes:
    annotations = {"k8s.io/initial-events-end": "true"}
    end = {"metadata": {"resourceVersion": str(version), "annotations": annotations}}
    return _event("BOOKMARK", msgspec.json.encode(end))
