"""Messages as bytes."""

from typing import TypeVar

import msgspec

from shared.errors import ProtocolError
from shared.messages.rounds import Explain, Explained, Proposals, Propose
from shared.messages.state import BindingOrder, Commit, Committed, Delta, Heartbeat, State
from shared.model.objects import dec_hook, encode_msgpack

Message = Propose | Proposals | Explain | Explained | Commit | Committed | Delta | Heartbeat | State | BindingOrder

M = TypeVar("M", Propose, Proposals, Explain, Explained, Commit, Committed, Delta, Heartbeat, State, BindingOrder)

_DECODER: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message, dec_hook=dec_hook)


def encode(message: Message) -> bytes:
    return encode_msgpack(message)


def decode(raw: bytes) -> Message:
    """Any message; ProtocolError where the bytes are none."""
    try:
        return _DECODER.decode(raw)
    except msgspec.DecodeError as cause:
        raise ProtocolError(f"not a message: {cause}") from None


def copy(message: M) -> M:
    """The message as it arrives."""
    arrived = decode(encode(message))
    if type(arrived) is not type(message):
        raise ProtocolError(f"{type(message).__name__} arrives as {type(arrived).__name__}")
    return arrived
