"""What comes with a message."""

from collections.abc import Callable, Mapping

from shared.bus.wire import EPOCH_HEADER, TRACE_HEADER
from shared.messages.codec import Message
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
        """The sender's, if the message has one."""
        text = self._headers.get(EPOCH_HEADER, "")
        return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None

    @property
    def trace(self) -> TraceContext | None:
        header = self._headers.get(TRACE_HEADER)
        return None if header is None else TraceContext.parse(header)

    @property
    def wants_reply(self) -> bool:
        return bool(self._reply_to)

    def respond(self, message: Message, *, trace: TraceContext | None = None) -> None:
        """To whoever asked; now or at any later time. Nothing happens where nobody did."""
        if self._reply_to:
            self._send(self._reply_to, message, trace)
