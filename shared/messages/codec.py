"""Encoding and decoding of messages."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import msgspec

from shared.errors import ProtocolError
from shared.messages import (
    binding,
    explaining,
    identity,
    inspection,
    preemption,
    queue,
    recording,
    rounds,
    state,
    status,
    watch,
    workers,
)
from shared.model.objects import dec_hook, encode_msgpack

Message = (
    watch.Watched
    | watch.WatchBeat
    | watch.Relist
    | watch.WatchSeen
    | watch.ListKind
    | watch.KindListed
    | identity.LeaseReleased
    | queue.Take
    | queue.Batch
    | queue.Outcomes
    | queue.Received
    | queue.Forgotten
    | queue.Assumed
    | queue.Absorbed
    | queue.Activate
    | queue.Inspect
    | queue.QueueContents
    | inspection.ListQueue
    | inspection.QueueListed
    | inspection.ListCache
    | inspection.CacheListed
    | inspection.ListLedger
    | inspection.LedgerListed
    | inspection.ListEvictions
    | inspection.EvictionsListed
    | inspection.ListGroups
    | inspection.GroupsListed
    | inspection.FindPod
    | inspection.PodFound
    | inspection.MeasureNodes
    | inspection.NodesMeasured
    | inspection.CompareCache
    | inspection.CacheCompared
    | inspection.ListPodsOn
    | inspection.PodsOn
    | inspection.ReadState
    | inspection.StateRead
    | inspection.ReadConfiguration
    | inspection.ConfigurationRead
    | explaining.ExplainPod
    | explaining.PodExplained
    | explaining.ExplainNodes
    | explaining.ShardExplained
    | rounds.Propose
    | rounds.Proposals
    | preemption.Preempt
    | preemption.Candidates
    | recording.RecordDecisions
    | recording.DeciderShown
    | recording.PodsShown
    | recording.RoundDecided
    | recording.SearchDecided
    | recording.CommitAnswered
    | workers.WorkerBeat
    | workers.Assign
    | state.Commit
    | state.NeedDeltas
    | state.Committed
    | state.OthersChanged
    | state.Outdated
    | state.Delta
    | state.Heartbeat
    | state.State
    | binding.BindingOrders
    | binding.BinderBeat
    | binding.BindingOutcomes
    | binding.Recall
    | binding.Recalled
    | binding.PermitAnswer
    | binding.FindAttempt
    | binding.AttemptFound
    | binding.ListPermits
    | binding.Permits
    | binding.PermitHeard
    | binding.Withdraw
    | binding.Evict
    | binding.Evicted
    | binding.IsNominated
    | binding.Nominated
    | binding.IsPlaced
    | binding.PlacedNow
    | binding.Notices
    | identity.WhoOwns
    | identity.Owner
    | identity.NameTaken
    | status.AskStatus
    | status.ProcessStatus
)

M = TypeVar("M", bound=Message)


encode: Callable[[Message], bytes] = encode_msgpack


def decoder(*types: type[M]) -> Callable[[bytes | memoryview], M]:
    """A decoder for these message types; it raises ProtocolError for anything else."""
    # A type checker cannot express a union of types that are only known now.
    expected: Any = types[0]
    for further in types[1:]:
        expected = expected | further
    decode_bytes: Callable[[bytes | memoryview], M] = msgspec.msgpack.Decoder(expected, dec_hook=dec_hook).decode
    reads_watch = watch.Watched in types

    def decode_message(raw: bytes | memoryview) -> M:
        try:
            try:
                return decode_bytes(raw)
            except msgspec.ValidationError:
                partly: Any = watch.without_unknown_kinds(raw) if reads_watch else None
                if partly is None:
                    raise
                return cast(M, partly)
        except ValueError as cause:  # invalid UTF-8 is not a DecodeError
            raise ProtocolError(f"not a message: {cause}") from None
        except RecursionError:
            raise ProtocolError("not a message: nested too deeply") from None

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
