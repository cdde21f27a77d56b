"""The wire format: msgpack in the body, and in NATS headers what is needed before the body is read.

Two pipelines with one prefix on one NATS would depose each other's leaders, whose epochs come from different clusters.
So every message names its sender's pipeline in a header, and receivers refuse those of another one. This guards against
mistakes; it is no secret and proves nothing.
"""

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Generic, TypeVar

import msgspec

from shared.errors import FlotillaError, ProtocolError
from shared.messages.codec import Message, decoder
from shared.messages.limits import MAX_BYTES
from shared.messages.sense import rule_of
from shared.telemetry.tracing import TraceContext
from shared.terms import MAX_AHEAD, is_possible

VERSION = "1"
VERSION_HEADER = "Flotilla-Version"
EPOCH_HEADER = "Flotilla-Epoch"
TRACE_HEADER = "traceparent"
PIPELINE_HEADER = "Flotilla-Pipeline"
GATES_HEADER = "Flotilla-Feature-Gates"
UNSENT_HEADER = "Flotilla-Unsent"
"""Of a reply without a body: why there is none."""

EPOCHS = ("epoch", "sender_epoch", "watch_epoch", "newest")
"""The fields from which a reader may learn of a later term."""

_PIPELINE_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}/[A-Za-z0-9._-]{1,128}")

M = TypeVar("M", bound=Message)


class Silence(StrEnum):
    NO_LISTENER = "no listener"
    """Known at once: wait before retrying."""
    TOO_LATE = "no answer in time"
    NOT_CONNECTED = "not connected"


class NoAnswer(FlotillaError):
    """A request without a reply. It may have been executed, unless there was no subscriber."""

    def __init__(self, subject: str, silence: Silence) -> None:
        self.subject = subject
        self.silence = silence
        super().__init__(f"{subject}: {silence}")


class Refusal(StrEnum):
    VERSION = "version"
    TYPE = "type"
    UNDECODABLE = "undecodable"
    TOO_LARGE = "too large"
    PIPELINE = "pipeline"
    """Of another pipeline with the same prefix."""
    SENSELESS = "senseless"
    """It decodes, but its values are impossible."""


class RefusedMessage(ProtocolError):
    """A message that was not accepted from the bus, or not sent."""

    def __init__(self, refusal: Refusal, problem: str) -> None:
        self.refusal = refusal
        super().__init__(problem)


class _Tag(msgspec.Struct):
    type: str


_TAG = msgspec.msgpack.Decoder(_Tag)


def headers_for(
    message: Message, trace: TraceContext | None, pipeline: str = "", gates: str = "", unsent: str = ""
) -> bytes:
    """The encoded headers. `gates`: the sender's feature gates. `unsent`: why the reply cannot be sent itself."""
    headers = _common_headers(getattr(message, "epoch", None), pipeline, gates)
    if unsent:
        headers += f"{UNSENT_HEADER}: {unsent}\r\n".encode()
    if trace is not None:
        headers += f"{TRACE_HEADER}: {trace.traceparent()}\r\n".encode()
    return headers + b"\r\n"


@lru_cache(maxsize=64)
def _common_headers(epoch: int | None, pipeline: str, gates: str) -> bytes:
    text = f"NATS/1.0\r\n{VERSION_HEADER}: {VERSION}\r\n"
    if pipeline:
        text += f"{PIPELINE_HEADER}: {pipeline}\r\n"
    if gates:
        text += f"{GATES_HEADER}: {gates}\r\n"
    if epoch is not None:
        text += f"{EPOCH_HEADER}: {epoch}\r\n"
    return text.encode()


class MessageReader(Generic[M]):
    """Reads messages of some types and refuses all others."""

    def __init__(self, *types: type[M]) -> None:
        self._decode: Callable[[bytes], M] = decoder(*types)
        self._tags = frozenset(type_.__struct_config__.tag for type_ in types)
        self._checks = {
            type_: (rule_of(type_), [name for name in EPOCHS if name in type_.__struct_fields__]) for type_ in types
        }
        """By type: what makes no sense, and which fields name epochs."""

    def read(self, raw: bytes, headers: Mapping[str, str] | None) -> M:
        version = headers.get(VERSION_HEADER) if headers else None
        if version != VERSION:
            found = "no version" if version is None else f"version {version[:16]!r}"
            raise RefusedMessage(Refusal.VERSION, f"{found}; this is version {VERSION}")
        if len(raw) > MAX_BYTES:
            raise RefusedMessage(Refusal.TOO_LARGE, f"{len(raw):,} bytes; at most {MAX_BYTES:,} are accepted")
        try:
            message = self._decode(raw)
        except ProtocolError as cause:
            raise self._refused(raw, cause) from None
        try:
            rule, epochs = self._checks[type(message)]
            if rule is not None:
                rule(message)
            for name in epochs:
                epoch = getattr(message, name)
                if epoch > MAX_AHEAD and not is_possible(epoch, time.time()):
                    raise ProtocolError(f"epoch {epoch} is years ahead")
        except ProtocolError as cause:
            raise RefusedMessage(Refusal.SENSELESS, f"{type(message).__name__}: {cause}") from None
        return message

    def _refused(self, raw: bytes, cause: ProtocolError) -> RefusedMessage:
        try:
            tag = _TAG.decode(raw).type
        except (ValueError, RecursionError):
            return RefusedMessage(Refusal.UNDECODABLE, str(cause))
        if tag not in self._tags:
            return RefusedMessage(Refusal.TYPE, f"{tag[:32]!r} is not expected here")
        return RefusedMessage(Refusal.UNDECODABLE, f"{tag}: {cause}")


def pipeline_id(cluster: str, namespace: str) -> str:
    """`cluster`: the uid of its namespace kube-system. `namespace`: that of the leaders' Leases."""
    return f"{cluster}/{namespace}"


def same_cluster(pipeline: str, other: str) -> bool:
    """Whether these two identities differ at most in the namespace of the Leases."""
    return pipeline.partition("/")[0] == other.partition("/")[0]


def described(pipeline: str) -> str:
    """As text."""
    cluster, _, namespace = pipeline.partition("/")
    return f"the pipeline of cluster {cluster} with its Leases in namespace {namespace}"


class PipelineIdentity:
    """`id`: empty until known. A process that never joins, such as the command line, adopts the first one it hears.

    A message without the header is accepted: its sender is of the last release.
    """

    def __init__(self) -> None:
        self.id = ""
        self.foreign = asyncio.Event()
        """Set whenever a message of another pipeline was refused."""

    def admit(self, headers: Mapping[str, str] | None) -> None:
        """Raises Refused if the message is of another pipeline."""
        sender = headers.get(PIPELINE_HEADER) if headers else None
        if sender is None or sender == self.id:
            return
        if not _PIPELINE_ID.fullmatch(sender):
            raise RefusedMessage(Refusal.PIPELINE, f"{PIPELINE_HEADER} {sender[:32]!r} is none")
        if not self.id:
            self.id = sender
            return
        self.foreign.set()
        raise RefusedMessage(Refusal.PIPELINE, f"it is of {described(sender)}; this is {described(self.id)}")
