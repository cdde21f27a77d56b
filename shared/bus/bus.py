"""Bus: sends and receives a service's messages.

Every message may be lost: without a connection it is dropped and counted, never kept. Messages of one process arrive in
order. The connection and its subscriptions are restored automatically. Services of one process have a bus each, on one
connection (`shared/bus/link.py`); between them messages need no socket (`shared/bus/local.py`).
"""

import asyncio
import re
import secrets
import time
from collections.abc import Mapping
from typing import Any, TypeVar

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as NatsSubscription
from nats.errors import SlowConsumerError

from shared.bus.access import NatsAccess
from shared.bus.link import PATIENCE, Link
from shared.bus.local import Listener, Reach
from shared.bus.metrics import REPLY, BusMetrics
from shared.bus.outbox import Outbox
from shared.bus.requests import Requests
from shared.bus.rights import LED
from shared.bus.subjects import CLI, INBOXES, check_name, inbox
from shared.bus.subscription import MAX_PENDING_BYTES, Handler, Subscription
from shared.bus.wire import (
    GATES_HEADER,
    UNSENT_HEADER,
    MessageReader,
    NoAnswer,
    PipelineIdentity,
    Refusal,
    RefusedMessage,
    Silence,
    headers_for,
)
from shared.messages.codec import Message, encode
from shared.messages.limits import HEADER_BYTES, MAX_BODY
from shared.telemetry import Telemetry
from shared.telemetry.logs import Repeated
from shared.telemetry.tracing import TraceContext

UNIQUE_BYTES = 12
SMALL = 1 << 16
"""Bytes of a message that every server takes that we connect to."""
MAX_PENDING = 1 << 16
"""Messages that may wait for one handler; further ones are dropped and counted."""
ROOM_PATIENCE = 1.0
"""Seconds to wait until the client has sent what is pending."""
_VIOLATION = re.compile(r'permissions violation for (publish|subscription) to "([^"]*)"', re.IGNORECASE)
"""As the server reports it; nats-py passes the subject on in lower case."""

M = TypeVar("M", bound=Message)
A = TypeVar("A", bound=Message)
B = TypeVar("B", bound=Message)
C = TypeVar("C", bound=Message)
D = TypeVar("D", bound=Message)
E = TypeVar("E", bound=Message)
F = TypeVar("F", bound=Message)
Types = (
    type[A]
    | tuple[type[A], type[B]]
    | tuple[type[A], type[B], type[C]]
    | tuple[type[A], type[B], type[C], type[D]]
    | tuple[type[A], type[B], type[C], type[D], type[E]]
    | tuple[type[A], type[B], type[C], type[D], type[E], type[F]]
)
"""The types of a subject's messages; a handler takes their union."""


class Bus:
    """Create it with `Bus.connect`, or with `Bus.on` for one of several in a process."""

    def __init__(self, link: Link, prefix: str, role: str, telemetry: Telemetry, gates: str) -> None:
        self._prefix = check_name(prefix, "the prefix") + "."
        self._gates = gates
        self._log = telemetry.log
        self._fault = telemetry.fault
        self._metrics = BusMetrics(telemetry.metrics)
        self._limited_log = Repeated(telemetry.log)
        self._link = link
        self._closes_link = False
        self._connection = link.connection
        self.pipeline = PipelineIdentity()
        self._outbox = Outbox(link, self._metrics, self._prefix)
        self._requests = Requests(self._prefix + inbox(role, secrets.token_hex(UNIQUE_BYTES)))
        self._subscriptions: dict[NatsSubscription, Subscription[Any]] = {}
        self._readers: dict[type[Any], MessageReader[Any]] = {}
        self._online = asyncio.Event()

    @classmethod
    async def connect(
        cls,
        access: NatsAccess | str,
        prefix: str,
        name: str,
        telemetry: Telemetry,
        *,
        role: str = CLI,
        patience: float = PATIENCE,
        gates: str = "",
    ) -> "Bus":
        """A bus with a connection of its own, which it closes. For parameters and errors see `on` and `Link.open`."""
        check_name(prefix, "the prefix")
        link = await Link.open(access, name, telemetry.log, patience=patience)
        bus = await cls.on(link, prefix, telemetry, role=role, gates=gates)
        bus._closes_link = True
        return bus

    @classmethod
    async def on(cls, link: Link, prefix: str, telemetry: Telemetry, *, role: str = CLI, gates: str = "") -> "Bus":
        """A bus on this connection. Replies come to an inbox of the `role`. `gates`: the feature gates of a service."""
        bus = cls(link, prefix, role, telemetry, gates)
        link.join(bus)
        link.local.open_inbox(bus._requests)
        await link.connection.client.subscribe(bus._requests.subject, cb=bus._requests.take)
        if bus.connected:
            bus._online.set()
        return bus

    @property
    def connected(self) -> bool:
        return self._connection.connected

    @property
    def network(self) -> str:
        """The identity of NATS, equal for all processes that our messages can reach; empty without a connection.

        A single server draws a new one at each start; the servers of a cluster have the cluster's name.
        """
        return self._connection.client.network if self.connected else ""

    @property
    def server_version(self) -> str:
        """Of NATS; empty before the first connection."""
        return self._connection.client.version

    def withdraw(self) -> None:
        """Leave messages of this process that only one leader gets to another one's leader: our term has ended."""
        self._link.local.withdraw(self._subscriptions.values())

    async def close(self) -> None:
        """Posted messages are still sent, if that is quick; waiting ones are dropped."""
        self._link.local.close_inbox(self._requests)
        for subscription in list(self._subscriptions.values()):
            await subscription.close()
        if self._closes_link:
            await self._link.close()
        self._link.leave(self)
        self._requests.fail()

    # Sending

    def post(self, subject: str, message: Message, *, trace: TraceContext | None = None) -> None:
        """Send without waiting. An oversized message is dropped, counted and logged."""
        self._send_whole(subject, message, trace)

    async def publish(self, subject: str, message: Message, *, trace: TraceContext | None = None) -> None:
        """Like `post`, but wait a bounded time if more is sent than the server accepts."""
        self.post(subject, message, trace=trace)
        await self._outbox.room(ROOM_PATIENCE)

    async def request(
        self,
        subject: str,
        message: Message,
        reply: type[M],
        *,
        timeout: float,
        trace: TraceContext | None = None,
        ours: bool = True,
    ) -> M:
        """The reply; NoAnswer if there is no subscriber or none comes in time, ProtocolError if it cannot be sent
        or read.

        Without a connection, waits for one as long as the timeout allows.
        """
        began = time.monotonic()
        try:
            msg = await self._ask(subject, message, trace, began + timeout)
        except NoAnswer as none:
            self._metrics.unanswered(subject, none.silence)
            raise
        self._metrics.received(REPLY).count(len(msg.data))
        try:
            if ours:
                self._admit(msg.headers)
            if msg.headers and (why := msg.headers.get(UNSENT_HEADER)):
                raise RefusedMessage(Refusal.TOO_LARGE, f"{subject}: the answer cannot be sent: {why}")
            answer = self._reader(reply).read(msg.data, msg.headers)
        except RefusedMessage as refused:
            self._metrics.refused(subject, refused.refusal)
            raise
        self._metrics.answered(subject, time.monotonic() - began)
        return answer

    async def _ask(self, subject: str, message: Message, trace: TraceContext | None, deadline: float) -> Msg:
        if not self.connected:
            self._online.clear()  # `lost` may be called only later, and would fail the request
            try:
                async with asyncio.timeout(deadline - time.monotonic()):
                    await self._online.wait()
            except TimeoutError:
                raise NoAnswer(subject, Silence.NOT_CONNECTED) from None
        reply_to, answer = self._requests.begin(subject, deadline - time.monotonic())
        try:
            reach = self._outbox.send(
                self._outbox.full_subject(subject),
                subject,
                headers_for(message, trace, self.pipeline.id, self._gates),
                self._body(subject, message),
                reply_to,
            )
            if reach is not Reach.NOBODY:
                self._requests.heard(reply_to)
            return await answer
        finally:
            self._requests.end(reply_to)

    def _respond(self, inbox: str, message: Message, trace: TraceContext | None) -> None:
        self._send_whole(REPLY, message, trace, inbox)

    def _send_whole(self, subject: str, message: Message, trace: TraceContext | None, inbox: str = "") -> None:
        """After a fault nothing is sent: the state behind it may be half changed.

        In place of a reply that is too large an error is sent, so that it is not requested again and again.
        """
        if self._fault.found:
            return
        unsent = ""
        try:
            body = self._body(subject, message)
        except RefusedMessage as cause:
            self._limited_log.error(f"{subject} {type(message).__name__}", "a message was dropped: %s", cause)
            if not inbox:
                return
            body, unsent = b"", str(cause)
        headers = headers_for(message, trace, self.pipeline.id, self._gates, unsent)
        self._outbox.send(inbox or self._outbox.full_subject(subject), subject, headers, body)

    def _body(self, subject: str, message: Message) -> bytes:
        body = encode(message)
        if len(body) > SMALL and len(body) > self._most_bytes:
            self._metrics.refused(subject, Refusal.TOO_LARGE)
            what = f"a {type(message).__name__} of {len(body):,} bytes"
            problem = f"{subject}: {what}; at most {self._most_bytes:,} can be sent"
            raise RefusedMessage(Refusal.TOO_LARGE, problem)
        return body

    @property
    def _most_bytes(self) -> int:
        return min(MAX_BODY, self._connection.client.max_payload - HEADER_BYTES)

    # Receiving

    async def subscribe(
        self,
        subject: str,
        types: Types[A, B, C, D, E, F],
        handler: Handler[A | B | C | D | E | F],
        *,
        group: str = "",
        most_pending: int = MAX_PENDING,
        ours: bool = True,
        local: bool = True,
    ) -> Subscription[A | B | C | D | E | F]:
        """Handle messages of these types, one at a time and in order, until the bus is closed; refuse all others.

        Of a `group` of subscribers, one gets each message: one of the sender's process if there is one. Returns once
        the server knows the subscription. Without `ours`, messages of other pipelines are accepted as well. Without
        `local`, only those of other processes.
        """
        reader: MessageReader[A | B | C | D | E | F] = MessageReader(*(types if isinstance(types, tuple) else (types,)))
        subscription = Subscription(
            subject,
            reader,
            handler,
            self._respond,
            self._metrics,
            self._log,
            self._fault,
            self._admit if ours else _admit_all,
            inboxes=self._prefix + INBOXES,
            most_pending=most_pending,
        )
        client = self._connection.client
        nats = await client.subscribe(
            self._prefix + subject,
            queue=group,
            cb=subscription.take,
            pending_msgs_limit=most_pending,
            pending_bytes_limit=MAX_PENDING_BYTES,
        )
        listener = Listener(subscription, bool(group) or subject in LED)
        full_subject = self._prefix + subject

        def forget() -> None:
            self._subscriptions.pop(nats, None)
            self._link.local.remove(full_subject, listener)

        subscription.bind(nats, forget)
        self._subscriptions[nats] = subscription
        if local:
            self._link.local.add(full_subject, listener)
        if self.connected:
            await client.round_trip()
        return subscription

    def _admit(self, headers: Mapping[str, str] | None) -> None:
        """Refuse messages of other pipelines; report, but accept, those of services with other feature gates.

        A change of gates that rolls through the services would otherwise interrupt them.
        """
        self.pipeline.admit(headers)
        theirs = headers.get(GATES_HEADER, "") if headers else ""
        if theirs and self._gates and theirs != self._gates:
            self._metrics.gates_differ()
            text = "a service has other feature gates (%s) than this one (%s): all services need the same"
            self._limited_log.error(GATES_HEADER, text, theirs[:HEADER_BYTES], self._gates)

    def _reader(self, type_: type[M]) -> MessageReader[M]:
        reader = self._readers.get(type_)
        if reader is None:
            reader = self._readers[type_] = MessageReader(type_)
        return reader

    # The connection

    def lost(self) -> None:
        self._online.clear()
        self._metrics.lost()
        self._outbox.clear()
        self._requests.fail()

    def back(self) -> None:
        self._online.set()

    def takes(self, error: Exception) -> bool:
        """Handle errors that nats-py reports, except lost connections."""
        if isinstance(error, SlowConsumerError):
            subscription = self._subscriptions.get(error.sub)
            if subscription is not None:
                subscription.overflowed()
            return subscription is not None
        violation = _VIOLATION.search(str(error))
        if violation is not None:
            self._forbidden(*violation.groups())
        return violation is not None

    def _forbidden(self, direction: str, full_subject: str) -> None:
        subject = full_subject.removeprefix(self._prefix.lower())
        self._metrics.forbidden(direction, subject)
        what = "publish to" if direction == "publish" else "subscribe to"
        self._limited_log.error(subject, "NATS denied to %s %s: a permission is missing", what, full_subject)


def _admit_all(headers: Mapping[str, str] | None) -> None:
    pass
