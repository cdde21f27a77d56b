"""Encoding and decoding of messages."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import msgspec

from shared.errors import ProtocolError
from shared.messages.binding import (
    BinderBeat,
    BindingOrders,
    BindingOutcomes,
    Evict,
    Evicted,
    IsNominated,
    Nominated,
    Notices,
    PermitAnswer,
    Recall,
    Recalled,
    Withdraw,
)
from shared.messages.identity import NameTaken, Owner, WhoOwns
from shared.messages.inspection import (
    CacheCompared,
    CacheListed,
    CompareCache,
    LedgerListed,
    ListCache,
    ListLedger,
    ListQueue,
    QueueListed,
)
from shared.messages.permits import ListPermits, Permits
from shared.messages.preemption import Candidates, Preempt
from shared.messages.queue import (
    Absorbed,
    Activate,
    Assumed,
    Batch,
    Forgotten,
    Inspect,
    Outcomes,
    QueueContents,
    Received,
    Take,
)
from shared.messages.rounds import Explain, Explained, Proposals, Propose
from shared.messages.state import Commit, Committed, Delta, Heartbeat, Outdated, State
from shared.messages.watch import Relist, WatchBeat, Watched, WatchSeen, without_unknown_kinds
from shared.messages.workers import Assign, WorkerBeat
from shared.model.objects import dec_hook, encode_msgpack

Message = (
    Watched
    | WatchBeat
    | Relist
    | WatchSeen
    | Take
    | Batch
    | Outcomes
    | Received
    | Forgotten
    | Assumed
    | Absorbed
    | Activate
    | Inspect
    | QueueContents
    | ListQueue
    | QueueListed
    | ListCache
    | CacheListed
    | ListLedger
    | LedgerListed
    | CompareCache
    | CacheCompared
    | Propose
    | Proposals
    | Explain
    | Explained
    | Preempt
    | Candidates
    | WorkerBeat
    | Assign
    | Commit
    | Committed
    | Outdated
    | Delta
    | Heartbeat
    | State
    | BindingOrders
    | BinderBeat
    | BindingOutcomes
    | Recall
    | Recalled
    | PermitAnswer
    | ListPermits
    | Permits
    | Withdraw
    | Evict
    | Evicted
    | IsNominated
    | Nominated
    | Notices
    | WhoOwns
    | Owner
    | NameTaken
)

M = TypeVar("M", bound=Message)


def encode(message: Message) -> bytes:
    return encode_msgpack(message)


def decoder(*types: type[M]) -> Callable[[bytes | memoryview], M]:
    """A decoder for these message types; it raises ProtocolError for anything else."""
    # What a union of types known only now is, cannot be told to a type checker.
    expected: Any = types[0]
    for further in types[1:]:
        expected = expected | further
    decode_bytes: Callable[[bytes | memoryview], M] = msgspec.msgpack.Decoder(expected, dec_hook=dec_hook).decode
    hears_watch = Watched in types

    def decode_message(raw: bytes | memoryview) -> M:
        try:
            try:
                return decode_bytes(raw)
            except msgspec.ValidationError:
                partly: Any = without_unknown_kinds(raw) if hears_watch else None
                if partly is None:
                    raise
                return cast(M, partly)
        except ValueError as cause:  # text that is none is not told as an error of the decoder's own
            raise ProtocolError(f"not a message: {cause}") from None
        except RecursionError:
            raise ProtocolError("not a message: it is nested too deep") from None

    return decode_message


_DECODE: Callable[[bytes | memoryview], Message] = decoder(*Message.__args__)


def decode(raw: bytes | memoryview) -> Message:
    """Decode any message, or raise ProtocolError."""
    return _DECODE(raw)


def copy(message: M) -> M:
    """The message as the receiver sees it."""
    arrived = decode(encode(message))
    if type(arrived) is not type(message):
        raise ProtocolError(f"{type(message).__name__} arrives as {type(arrived).__name__}")
    return arrived
