"""A simulated NATS that loses, duplicates, delays and reorders messages on demand.

A message that has arrived belongs to its receiver's Gate: it waits in the inbox while the process is paused.
"""

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cache, partial
from typing import Any

from shared.bus import Envelope, NoAnswer
from shared.bus.wire import (
    PIPELINE_HEADER,
    VERSION,
    VERSION_HEADER,
    MessageReader,
    PipelineIdentity,
    Refusal,
    RefusedMessage,
    Silence,
    pipeline_id,
)
from shared.errors import ProtocolError
from shared.messages.codec import Message, encode
from shared.telemetry.fault import Fault
from shared.telemetry.tracing import TraceContext
from testing.simulation.loop import WORLD, Dice, Gate
from testing.simulation.releases import Translate

LATENCY = 0.001
REMEMBERED = 2000
"""Latest messages that may be replayed."""
MAX_FORGED = 20
"""Messages at a time."""
IN_TURN = 1e-10
"""Seconds between two messages sent at the same moment, to keep them in order."""
DELAYS = (0.003, 0.02, 0.1, 0.4, 1.5, 8.0)
DELAY_WEIGHTS = (4, 4, 4, 4, 4, 1)

PIPELINE = pipeline_id("simulation", "kube-system")
HEADERS = {VERSION_HEADER: VERSION, PIPELINE_HEADER: PIPELINE}

Handler = Callable[[Any, Envelope], Awaitable[None] | None]


@cache
def _reader(kind: type[Message]) -> MessageReader[Any]:
    return MessageReader(kind)


class Subscription:
    def __init__(self, bus: "SimBus", subject: str, types: tuple[type, ...], handler: Handler, group: str) -> None:
        self.bus = bus
        self.subject = subject
        self.reader: MessageReader[Any] = MessageReader(*types)
        self.handler = handler
        self.group = group

    async def close(self) -> None:
        self.bus.wires.forget(self)


class Network:
    """`bad_luck`: the share of deliveries that are lost, late or doubled. `down`: nothing arrives.

    `cut_off`: names of partitioned processes.
    """

    def __init__(self, dice: Dice, failed: Callable[[str], None]) -> None:
        self.bad_luck = 0.0
        self.down = False
        self.cut_off: set[str] = set()
        self.sent = 0
        self.refused: list[str] = []
        """Refused messages: receiver, subject and reason."""
        self.overhears: list[Callable[[Message], None]] = []
        """Called with every message that is sent, even if it is lost."""
        self.on_post: list[Callable[[str, str, Message], None]] = []
        """The same, with sender and subject."""
        self._carried = 0
        self._past: deque[tuple[str, str, bytes]] = deque(maxlen=REMEMBERED)
        self._dice = dice
        self._failed = failed
        self._subscriptions: dict[str, list[Subscription]] = {}
        self._handling: set[asyncio.Task[None]] = set()

    def reaches(self, name: str) -> bool:
        return not self.down and name not in self.cut_off

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
        """All subscribers without a group, and one of each group."""
        alone, groups = [], dict[str, list[Subscription]]()
        for one in self._subscriptions.get(subject, []):
            if one.group:
                groups.setdefault(one.group, []).append(one)
            else:
                alone.append(one)
        return alone + [self._dice.of("group", subject).choice(members) for members in groups.values()]

    def post(
        self,
        sender: str,
        subject: str,
        message: Message,
        respond: Callable[[bytes], None] | None = None,
        raw: bytes | None = None,
    ) -> int:
        """`raw`: the encoded message, if another release or a liar encoded it."""
        for overhear in self.overhears:
            overhear(message)
        for on_post in self.on_post:
            on_post(sender, subject, message)
        raw = encode(message) if raw is None else raw
        if respond is None:
            self._past.append((sender, subject, raw))
        return self.post_raw(sender, subject, raw, respond)

    def replay(self, count: int, salt: int) -> None:
        """Send some of the latest messages once more."""
        dice = self._dice.of("replay", salt)
        for sender, subject, raw in dice.sample(list(self._past), min(count, len(self._past))):
            self.post_raw(sender, subject, raw)

    def forge(self, names: set[str], alter: Callable[[bytes, random.Random], bytes | None], salt: int) -> None:
        """Send some of the latest messages of these processes once more, altered; None leaves one out."""
        dice = self._dice.of("forge", salt)
        own = [(sender, subject, raw) for sender, subject, raw in self._past if sender in names]
        for sender, subject, raw in dice.sample(own, min(MAX_FORGED, len(own))):
            altered = alter(raw, dice)
            if altered is not None:
                self.post_raw(sender, subject, altered)

    def post_raw(self, sender: str, subject: str, raw: bytes, respond: Callable[[bytes], None] | None = None) -> int:
        self.sent += 1
        listeners = self.listeners(subject)
        if listeners:
            for one in listeners:
                self._carry(sender, ("message", sender, subject), partial(self._arrive, one, raw, respond))
        return len(listeners)

    def _carry(self, sender: str, purpose: tuple[str, ...], arrive: Callable[[], object]) -> None:
        """Messages sent at the same moment stay in order, unless one is delayed: `purpose` names the dice for that."""
        for delay in self._delays(sender, purpose):
            self._carried += 1
            asyncio.get_running_loop().call_later(delay + self._carried * IN_TURN, arrive, context=WORLD)

    def _delays(self, sender: str, purpose: tuple[str, ...]) -> tuple[float, ...]:
        if not self.reaches(sender):
            return ()
        if not self.bad_luck:
            return (LATENCY,)  # without dice: to make them costs more than all the rest here
        dice = self._dice.of(*purpose)
        if dice.random() >= self.bad_luck:
            return (LATENCY,)
        mishap = dice.choice(("lost", "late", "doubled"))
        if mishap == "lost":
            return ()
        return tuple(dice.choices(DELAYS, DELAY_WEIGHTS, k=2 if mishap == "doubled" else 1))

    def _arrive(self, one: Subscription, raw: bytes, respond: Callable[[bytes], None] | None) -> None:
        if self.reaches(one.bus.name) and one.bus.talks:
            asyncio.get_running_loop().call_soon(self._deliver, one, raw, respond, context=one.bus.gate.context)

    def _deliver(self, one: Subscription, raw: bytes, respond: Callable[[bytes], None] | None) -> None:
        if not one.bus.talks:
            return
        try:
            message = one.reader.read(one.bus.translated(raw), HEADERS)
        except RefusedMessage as refused:
            self.refused.append(f"{one.bus.name}: {one.subject}: {refused}")
            return

        def answer(inbox: str, reply: Message, trace: TraceContext | None) -> None:
            said = one.bus.said(reply)
            if respond is not None and said is not None and one.bus.talks:
                self._carry(one.bus.name, ("answer", one.bus.name), partial(respond, said))

        try:
            handling = one.handler(message, Envelope(HEADERS, "inbox" if respond is not None else "", answer))
        except Exception as cause:
            self._report(one.bus, message, one.subject, cause)
        else:
            if handling is not None:
                task = asyncio.ensure_future(self._finish(one, message, handling))
                self._handling.add(task)
                task.add_done_callback(self._handling.discard)

    async def _finish(self, one: Subscription, message: Message, handling: Awaitable[None]) -> None:
        try:
            await handling
        except Exception as cause:
            self._report(one.bus, message, one.subject, cause)

    def _report(self, bus: "SimBus", message: Message, subject: str, cause: Exception) -> None:
        what = f"{subject}: the handler of {type(message).__name__}"
        if bus.fault is None:
            self._failed(f"{bus.name}: {what} failed: {cause!r}")
        else:
            bus.fault.report(what, cause)


class SimBus:
    """Stands in for `shared.bus.Bus` in one process. `hears`, `says`: translate messages of another release."""

    def __init__(self, network: Network, name: str, gate: Gate) -> None:
        self.wires = network
        self.name = name
        self.gate = gate
        self.dead = False
        self.fault: Fault | None = None
        self.pipeline = PipelineIdentity()
        self.pipeline.id = PIPELINE
        self.network = "nats"
        self.hears: Translate | None = None
        self.says: Translate | None = None

    @property
    def talks(self) -> bool:
        """False once the process is dead or has failed."""
        return not self.dead and (self.fault is None or not self.fault.found)

    @property
    def connected(self) -> bool:
        return self.wires.reaches(self.name)

    def die(self) -> None:
        self.dead = True
        self.wires.forget_all_of(self)

    async def subscribe(
        self,
        subject: str,
        types: Any,
        handler: Handler,
        *,
        group: str = "",
        ours: bool = True,
        most_pending: int = 0,
        local: bool = True,
    ) -> Subscription:
        """Nothing pends here, and processes share no connection: `most_pending` and `local` do not matter."""
        subscription = Subscription(self, subject, types if isinstance(types, tuple) else (types,), handler, group)
        if not self.dead:
            self.wires.add(subscription)
        return subscription

    def withdraw(self) -> None:
        """No other service shares the process."""

    def post(self, subject: str, message: Message, *, trace: TraceContext | None = None) -> None:
        if self.talks and (raw := self.said(message)) is not None:
            if (sent := self._sent(message, raw)) is None:
                self.wires.post_raw(self.name, subject, raw)
            else:
                self.wires.post(self.name, subject, sent, raw=raw)

    async def publish(self, subject: str, message: Message, *, trace: TraceContext | None = None) -> None:
        self.post(subject, message, trace=trace)

    async def request(
        self,
        subject: str,
        message: Message,
        reply: type,
        *,
        timeout: float,
        trace: TraceContext | None = None,
        ours: bool = True,
    ) -> Any:
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

        def respond(raw: bytes) -> None:
            if not answer.done() and self.wires.reaches(self.name):
                with suppress(ProtocolError):
                    answer.set_result(MessageReader[Any](reply).read(self.translated(raw), HEADERS))

        if self.dead:
            raise asyncio.CancelledError
        raw = self.said(message)
        sent = None if raw is None else self._sent(message, raw)
        if not self.talks or sent is None or not self.wires.post(self.name, subject, sent, respond, raw):
            raise NoAnswer(subject, Silence.NO_LISTENER)
        try:
            async with asyncio.timeout(timeout):
                return await answer
        except TimeoutError:
            raise NoAnswer(subject, Silence.TOO_LATE) from None

    def said(self, message: Message) -> bytes | None:
        """The message as this process sends it; None if its release does not know the message."""
        raw = encode(message)
        return raw if self.says is None else self.says(raw)

    def _sent(self, message: Message, raw: bytes) -> Message | None:
        """The message in `raw`; None if it is a lie that receivers refuse to read."""
        if self.says is None:
            return message
        with suppress(RefusedMessage):
            sent: Message = _reader(type(message)).read(raw, HEADERS)
            return sent
        return None

    def translated(self, raw: bytes) -> bytes:
        """The message as this process reads it; Refused if its release does not know the message."""
        heard = raw if self.hears is None else self.hears(raw)
        if heard is None:
            raise RefusedMessage(Refusal.TYPE, "the other release does not know this message")
        return heard
