"""A bus between processes that loses, doubles, delays and reorders what they say, as long as it is told to."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from shared.bus import Envelope, NoAnswer
from shared.bus.errors import Refused, Silence
from shared.bus.pipeline import PIPELINE_HEADER, PipelineIdentity, pipeline_id
from shared.bus.wire import VERSION, VERSION_HEADER, Reader
from shared.messages.codec import Message, copy, encode
from shared.telemetry.fault import Fault
from shared.telemetry.tracing import TraceContext

LATENCY = 0.001
IN_TURN = 1e-10
"""Seconds between two messages: timers of the same moment go off in any order."""
DELAYS = (0.003, 0.02, 0.1, 0.4, 1.5)

PIPELINE = pipeline_id("simulation", "kube-system")

Handler = Callable[[Any, Envelope], Awaitable[None] | None]


class Subscription:
    def __init__(self, bus: "SimBus", subject: str, types: tuple[type, ...], handler: Handler, group: str) -> None:
        self.bus = bus
        self.subject = subject
        self.types = types
        self.reader: Reader[Any] = Reader(*types)
        self.handler = handler
        self.group = group

    async def close(self) -> None:
        self.bus.network.forget(self)


class Network:
    """`bad_luck`: the share of deliveries that something happens to. `down`: nothing arrives at all."""

    def __init__(self, dice: random.Random, failed: Callable[[str], None]) -> None:
        self.bad_luck = 0.0
        self.down = False
        self.sent = 0
        self.refused: list[str] = []
        """Messages that were not taken, with who did not and why."""
        self.overhears: list[Callable[[Message], None]] = []
        """Told of everything that is sent, whatever becomes of it."""
        self._carried = 0
        self._dice = dice
        self._failed = failed
        self._subscriptions: dict[str, list[Subscription]] = {}

    def add(self, subscription: Subscription) -> None:
        self._subscriptions.setdefault(subscription.subject, []).append(subscription)

    def forget(self, subscription: Subscription) -> None:
        known = self._subscriptions.get(subscription.subject, [])
        if subscription in known:
            known.remove(subscription)

    def forget_all_of(self, bus: "SimBus") -> None:
        for subject, known in self._subscriptions.items():
            self._subscriptions[subject] = [one for one in known if one.bus is not bus]

    def listeners(self, subject: str) -> list[Subscription]:
        """One of each group."""
        alone, groups = [], dict[str, list[Subscription]]()
        for one in self._subscriptions.get(subject, []):
            if one.group:
                groups.setdefault(one.group, []).append(one)
            else:
                alone.append(one)
        return alone + [self._dice.choice(members) for members in groups.values()]

    def post(
        self,
        subject: str,
        message: Message,
        respond: Callable[[Message], None] | None = None,
        pipeline: str = PIPELINE,
    ) -> int:
        """As of a process of this pipeline, forged or not."""
        for overhear in self.overhears:
            overhear(message)
        return self.post_raw(subject, encode(message), respond, pipeline)

    def post_raw(
        self,
        subject: str,
        body: bytes,
        respond: Callable[[Message], None] | None = None,
        pipeline: str = PIPELINE,
    ) -> int:
        """Whatever these bytes are."""
        self.sent += 1
        listeners = self.listeners(subject)
        for one in listeners:
            self.carry(lambda one=one: self._deliver(one, body, respond, pipeline))  # type: ignore[misc]
        return len(listeners)

    def carry(self, deliver: Callable[[], None]) -> None:
        """What is sent at the same moment stays in order, unless something happens to it."""
        for delay in self._delays():
            self._carried += 1
            asyncio.get_running_loop().call_later(delay + self._carried * IN_TURN, deliver)

    def _delays(self) -> tuple[float, ...]:
        if self.down:
            return ()
        if self._dice.random() >= self.bad_luck:
            return (LATENCY,)
        mishap = self._dice.choice(("lost", "late", "doubled"))
        if mishap == "lost":
            return ()
        return tuple(self._dice.choice(DELAYS) for _ in range(2 if mishap == "doubled" else 1))

    def _deliver(
        self, one: Subscription, body: bytes, respond: Callable[[Message], None] | None, pipeline: str
    ) -> None:
        if not one.bus.talks or self.down:
            return
        headers = {VERSION_HEADER: VERSION, PIPELINE_HEADER: pipeline}
        try:
            one.bus.pipeline.admit(headers)
            message = one.reader.read(body, headers)
        except Refused as refused:
            self.refused.append(f"{one.bus.name}: {one.subject}: {refused}")
            return

        def answer(inbox: str, reply: Message, trace: TraceContext | None) -> None:
            if respond is not None and one.bus.talks:
                self.carry(lambda: respond(copy(reply)))

        try:
            one.handler(message, Envelope(headers, "inbox" if respond is not None else "", answer))
        except Exception as cause:
            what = f"{one.subject}: the handler of {type(message).__name__}"
            if one.bus.fault is None:
                self._failed(f"{one.bus.name}: {what} failed: {cause!r}")
            else:
                one.bus.fault.report(what, cause)


class SimBus:
    """As `shared.bus.Bus`, of one process."""

    def __init__(self, network: Network, name: str) -> None:
        self.network = network
        self.name = name
        self.dead = False
        self.pipeline = PipelineIdentity()
        self.pipeline.id = PIPELINE
        self.fault: Fault | None = None
        """That of the process, if it has one."""

    @property
    def talks(self) -> bool:
        """Until it is dead, or the process has failed."""
        return not self.dead and (self.fault is None or not self.fault.found)

    @property
    def connected(self) -> bool:
        return not self.network.down

    def die(self) -> None:
        self.dead = True
        self.network.forget_all_of(self)

    async def subscribe(self, subject: str, types: Any, handler: Handler, *, group: str = "") -> Subscription:
        subscription = Subscription(self, subject, types if isinstance(types, tuple) else (types,), handler, group)
        self.network.add(subscription)
        return subscription

    def post(self, subject: str, message: Message, *, trace: TraceContext | None = None) -> None:
        if self.talks:
            self.network.post(subject, message, pipeline=self.pipeline.id)

    async def request(self, subject: str, message: Message, reply: type, *, timeout: float) -> Any:
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

        def respond(message: Message) -> None:
            if not answer.done():
                answer.set_result(message)

        if self.dead or not self.network.post(subject, message, respond, self.pipeline.id):
            raise NoAnswer(subject, Silence.NOBODY_LISTENS)
        try:
            return await asyncio.wait_for(answer, timeout)
        except TimeoutError:
            raise NoAnswer(subject, Silence.TOO_LATE) from None
