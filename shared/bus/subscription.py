"""Subscription: reads the messages of a subject and passes them to a handler, one at a time and in order."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Generic, TypeVar

from nats import errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as NatsSubscription

from shared.bus.metrics import BusMetrics
from shared.bus.wire import EPOCH_HEADER, TRACE_HEADER, MessageReader, RefusedMessage
from shared.messages.codec import Message
from shared.telemetry.fault import Fault
from shared.telemetry.logs import Repeated
from shared.telemetry.tracing import TraceContext

Send = Callable[[str, Message, TraceContext | None], None]


class Envelope:
    __slots__ = ("_headers", "_reply_to", "_send")

    def __init__(self, headers: Mapping[str, str], reply_to: str, send: Send) -> None:
        self._headers = headers
        self._reply_to = reply_to
        self._send = send

    @property
    def epoch(self) -> int | None:
        """The sender's epoch, if the message has one."""
        text = self._headers.get(EPOCH_HEADER, "")
        return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None

    @property
    def trace(self) -> TraceContext | None:
        header = self._headers.get(TRACE_HEADER)
        return None if header is None else TraceContext.parse(header)

    def respond(self, message: Message, *, trace: TraceContext | None = None) -> None:
        """Reply to a request, now or later; does nothing for other messages."""
        if self._reply_to:
            self._send(self._reply_to, message, trace)


SLICE = 0.01
"""Seconds of consecutive messages after which other tasks get a turn."""
MAX_PENDING_BYTES = 64 << 20
"""Of messages that wait for one handler."""

M = TypeVar("M", bound=Message)

Handler = Callable[[M, Envelope], Awaitable[None] | None]


class Subscription(Generic[M]):
    """An exception of the handler ends the term (`fault`): no further message is handled.

    Replies go only to `inboxes`, because we may publish where the sender of a message may not.
    """

    def __init__(
        self,
        subject: str,
        reader: MessageReader[M],
        handler: Handler[M],
        send: Send,
        metrics: BusMetrics,
        log: logging.Logger,
        fault: Fault,
        admit: Callable[[Mapping[str, str] | None], None],
        *,
        inboxes: str,
        most_pending: int,
    ) -> None:
        """`most_pending`: messages that may wait; further ones are dropped and counted."""
        self.subject = subject
        self._inboxes = inboxes
        self._most_pending = most_pending
        self._reader = reader
        self._handler = handler
        self._send = send
        self._metrics = metrics
        self._traffic = metrics.received(subject)
        self._limited_log = Repeated(log)
        self._fault = fault
        self._admit = admit
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Msg] = deque()
        self._waiting_bytes = 0
        self._works = False
        """Whether a message is being handled, or will be in the next turn of the loop."""
        self._handling: asyncio.Task[None] | None = None
        self._nats: NatsSubscription | None = None
        self._forget: Callable[[], object] = int

    def bind(self, subscription: NatsSubscription, forget: Callable[[], object]) -> None:
        self._nats, self._forget = subscription, forget

    async def close(self) -> None:
        """Waiting messages are dropped, and one that is being handled is given up."""
        self._forget()
        self._waiting.clear()
        if self._handling is not None:
            self._handling.cancel()
        if self._nats is not None:
            with suppress(errors.Error):  # closed already, or the connection is
                await self._nats.unsubscribe()

    async def take(self, msg: Msg) -> None:
        """As nats-py wants it."""
        self.deliver(msg)

    def deliver(self, msg: Msg) -> None:
        """Handle it after those that wait, in the next turn of the loop at the earliest."""
        size = len(msg.data)
        if len(self._waiting) >= self._most_pending or self._waiting_bytes + size > MAX_PENDING_BYTES:
            self.overflowed()
            return
        self._waiting.append(msg)
        self._waiting_bytes += size
        if not self._works:
            self._works = True
            self._loop.call_soon(self._work)

    def _work(self) -> None:
        until = time.monotonic() + SLICE
        while self._waiting:
            msg = self._waiting.popleft()
            self._waiting_bytes -= len(msg.data)
            handling = self._handle(msg)
            if handling is not None:
                self._handling = self._loop.create_task(handling)
                return
            if self._waiting and time.monotonic() > until:
                self._loop.call_soon(self._work)
                return
        self._works = False

    def _handle(self, msg: Msg) -> Coroutine[None, None, None] | None:
        """What is left to do, if the handler must be awaited."""
        self._traffic.count(len(msg.data))
        if self._fault.found:
            return None
        try:
            self._admit(msg.headers)
            message = self._reader.read(msg.data, msg.headers)
        except RefusedMessage as refused:
            self._metrics.refused(self.subject, refused.refusal)
            self._limited_log.warning(refused.refusal, "%s: a message was refused: %s", self.subject, refused)
            return None
        except Exception as cause:
            self._fault.report(f"{self.subject}: reading a message", cause)
            return None
        try:
            reply_to = msg.reply if msg.reply and msg.reply.startswith(self._inboxes) else ""
            handling = self._handler(message, Envelope(msg.headers or {}, reply_to, self._send))
        except (Exception, asyncio.CancelledError) as cause:
            self._report(message, cause)
            return None
        return None if handling is None else self._await(message, handling)

    async def _await(self, message: M, handling: Awaitable[None]) -> None:
        try:
            await handling
        except asyncio.CancelledError as cause:
            task = asyncio.current_task()
            if task is not None and task.cancelling():  # from outside, not by the handler
                raise
            self._report(message, cause)
        except Exception as cause:
            self._report(message, cause)
        self._handling = None
        self._work()

    def overflowed(self) -> None:
        self._metrics.overflowed(self.subject)
        self._limited_log.error("overflow", "%s: a message was dropped: too many were waiting", self.subject)

    def _report(self, message: M, cause: BaseException) -> None:
        self._fault.report(f"{self.subject}: the handler of {type(message).__name__}", cause)
