"""What the queue knows of one pod: its state, its attempts, what rejected it, and what of that survives a restart."""

from collections.abc import Container, Mapping
from enum import StrEnum
from hashlib import blake2b
from math import floor
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from shared.framework.profile import Framework
from shared.messages.queue import ForgottenPod
from shared.model.objects import Pod, encode_msgpack

if TYPE_CHECKING:
    from services.queue.scheduling.queued_gang import QueuedGang

MAX_TRANSITIONS = 16
"""Transitions in the log of one pod."""

# Quantities are integers of a type of their own; a digest needs no more than their digits.
_NO_BODY = msgspec.Raw()
_ENCODER = msgspec.msgpack.Encoder(enc_hook=int.__repr__, order="deterministic")


class PodState(StrEnum):
    NEW = "new"
    """Just seen; no pod is in this state after an event has been handled."""
    GATED = "gated"
    """Kept out by a PreEnqueue plugin, by its pod group, or until its victims have been evicted."""
    ACTIVE = "active"
    BACKOFF = "backoff"
    """Rejected and backing off; popped early when the active queue is empty."""
    ERROR_BACKOFF = "error-backoff"
    """Backing off after an error; never popped early."""
    UNSCHEDULABLE = "unschedulable"
    """Rejected; waits for an event that may help, or for the time limit."""
    IN_FLIGHT = "in-flight"
    """Handed to cycle, no outcome yet."""
    BINDING = "binding"
    """Decided, not yet seen bound."""
    DONE = "done"
    """Bound, deleted or of no profile any more: the queue forgets it."""

    __hash__ = str.__hash__  # every transition looks up several states, and Enum's own hash is slow


_S = PodState
TRANSITIONS: Mapping[PodState, frozenset[PodState]] = {
    _S.NEW: frozenset({_S.GATED, _S.ACTIVE, _S.BACKOFF, _S.ERROR_BACKOFF}),
    _S.GATED: frozenset({_S.ACTIVE, _S.BACKOFF, _S.ERROR_BACKOFF, _S.BINDING, _S.DONE}),
    _S.ACTIVE: frozenset({_S.GATED, _S.IN_FLIGHT, _S.BINDING, _S.DONE}),
    _S.BACKOFF: frozenset({_S.GATED, _S.ACTIVE, _S.ERROR_BACKOFF, _S.IN_FLIGHT, _S.BINDING, _S.DONE}),
    _S.ERROR_BACKOFF: frozenset({_S.ACTIVE, _S.BACKOFF, _S.BINDING, _S.DONE}),
    _S.UNSCHEDULABLE: frozenset({_S.GATED, _S.ACTIVE, _S.BACKOFF, _S.ERROR_BACKOFF, _S.BINDING, _S.DONE}),
    _S.IN_FLIGHT: frozenset(_S) - {_S.NEW, _S.IN_FLIGHT},
    _S.BINDING: frozenset(_S) - {_S.NEW, _S.IN_FLIGHT, _S.BINDING},
    _S.DONE: frozenset(),
}
"""The states that may follow each. BINDING follows every state: the queue may learn late of a decision."""


# There may be a million of them. They are in no cycles of references, so the garbage collector need not track them: it
# would stop the queue for seconds each time.
class QueuedPodInfo(msgspec.Struct, eq=False, gc=False):
    """Changed by the core alone; exactly one container, the one of `state`, has it."""

    uid: str
    pod: Pod
    """The newest version, also while an older one is in flight."""
    framework: Framework
    seen_at: float
    body: msgspec.Raw = _NO_BODY
    """The newest version as the watcher encoded it, if it is at hand."""
    state: PodState = PodState.NEW

    queued_at: float = 0.0
    """When it was first seen, or its last attempt failed; QueueSort orders by it after priority."""
    sequence: int = 0
    """Breaks ties between pods queued at the same time."""
    sort_key: Any = None
    """The key of the profile's QueueSort, then `sequence`. None if QueueSort has failed: the pod is gated then."""
    heap_number: int = 0
    """Of its current item in a PodHeap; other items of it are stale."""
    gang: "QueuedGang | None" = None
    """The entry that it shares with the other members of its gang that wait for their turn; None if it has its own."""
    active_at: float | None = None
    """When it was active for the first time: time spent gated before does not count as scheduling."""
    ungated_at: float | None = None
    """Of a member of a pod group: when its own gates first opened; its group, or its victims, may still hold it."""
    deadline: float = 0.0
    """When the queue takes it back from cycle or the binder."""

    attempts: int = 0
    rejections: int = 0
    errors: int = 0
    """Consecutive; a rejection resets it."""
    backoff_until: int = -1
    """The last whole second in which it still backs off."""
    was_flushed: bool = False
    """Only the time limit moved it since its last attempt."""
    last_failure: str = ""
    """The message of its last failed attempt."""
    failed_at: float | None = None

    unschedulable_plugins: tuple[str, ...] = ()
    """The plugins that rejected it last, and the one that gates it."""
    pending_plugins: tuple[str, ...] = ()
    """The plugins that rejected it last with "pending": when one of them is helped, it skips the back-off."""
    gating_plugin: str | None = None
    """Empty if something raised that names no plugin."""
    gate_reason: str = ""
    """What the gating plugin says."""
    equals: Any = None
    """The group of equivalent pods that it waits with."""

    popped: Pod | None = None
    """The version that was handed out."""
    node: str = ""
    """The node it was decided for."""
    snapshot_epoch: int = 0
    """The snapshot's epoch when it was handed out; 0 if unknown."""
    has_own_event: bool = False
    """It changed, or was activated, since it was handed out."""
    forgotten: ForgottenPod | None = None
    """Its failed binding, if that is reported before the decision."""

    transitions: tuple[float | str, ...] = ()
    """Time, state and reason, repeated. Flat, because there are many of them."""
    _equivalence: tuple[bool, bytes] | None = None

    @property
    def equivalence(self) -> bytes:
        """Equal for pods that the same events help."""
        whole = not self.framework.tells_apart.isdisjoint(self.rejecting_plugins)
        if self._equivalence is None or self._equivalence[0] != whole:
            self._equivalence = whole, _digest(self.pod, whole)
        return self._equivalence[1]

    @property
    def rejecting_plugins(self) -> tuple[str, ...]:
        """Unschedulable and pending plugins, each once."""
        if not self.pending_plugins:
            return self.unschedulable_plugins
        return tuple(dict.fromkeys((*self.unschedulable_plugins, *self.pending_plugins)))

    @property
    def backoff_ends(self) -> float:
        return self.backoff_until + 1.0

    def backs_off(self, now: float) -> bool:
        return self.backoff_until >= floor(now)

    def update(self, pod: Pod, body: msgspec.Raw) -> None:
        self.pod, self.body, self._equivalence = pod, body, None

    def encoded(self, pod: Pod) -> msgspec.Raw:
        """The pod, which is this one or differs in its nomination, as the cycle gets it."""
        return self.body if pod is self.pod and len(self.body) else msgspec.Raw(encode_msgpack(pod))

    def assumed(self) -> Pod | None:
        """The pod as it was decided, with its node; None if that is unknown."""
        pod = self.popped or self.pod
        return replace(pod, spec=replace(pod.spec, node_name=self.node)) if self.node else None

    def record(self, now: float, state: PodState, why: str) -> None:
        self.transitions = (*self.transitions[-3 * (MAX_TRANSITIONS - 1) :], now, state.value, why)

    def history(self) -> str:
        log = self.transitions
        moves = zip(log[::3], log[1::3], log[2::3], strict=True)
        return "; ".join(f"{at:.3f} {state} ({why})" for at, state, why in moves) or "no transitions"


def _digest(pod: Pod, whole: bool) -> bytes:
    """Equal for pods of one controller that differ only in name, uid and conditions; with `whole`, for no two pods.

    Pods whose claims are named after them differ as well.
    """
    if whole:
        return blake2b(_ENCODER.encode(pod), digest_size=16).digest()
    meta = pod.metadata
    owns_claims = bool(pod.spec.resource_claims) or any(volume.ephemeral is not None for volume in pod.spec.volumes)
    status = replace(pod.status, conditions=[]) if pod.status.conditions else pod.status
    name = (meta.name, pod.uid) if owns_claims else None
    controller = next((owner.uid for owner in meta.owner_references if owner.controller), None)
    parts = (meta.namespace, meta.labels, pod.spec, status, name, controller)
    return blake2b(_ENCODER.encode(parts), digest_size=16).digest()


class RetryRecord(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What the queue stores of a pod whose last attempt failed. `errors` are consecutive; 0 after a rejection.

    `queued_at` (when it failed) and `backoff_until` are seconds of the queue's own clock; in Redis, Unix times.
    """

    attempts: int
    rejections: int
    errors: int
    queued_at: float
    backoff_until: int

    def shifted(self, seconds: int) -> "RetryRecord":
        """Translates it to a clock that is ahead by `seconds`."""
        return replace(self, queued_at=self.queued_at + seconds, backoff_until=self.backoff_until + seconds)

    def restored(self, seconds: int, now: float) -> "RetryRecord":
        """As `shifted`, but not later than `now`: the clock that wrote it may have been ahead of ours."""
        shifted = self.shifted(seconds)
        return replace(shifted, queued_at=min(shifted.queued_at, now))


class RetryHistory:
    """Retry records of pods whose last attempt failed, and of pods not seen yet since the queue started."""

    def __init__(self, records: Mapping[str, RetryRecord]) -> None:
        self.changes: dict[str, RetryRecord | None] = {}
        """Records to store, or to delete if None; the reader clears it."""
        self._records = dict(records)

    def restore(self, records: Mapping[str, RetryRecord]) -> None:
        """Of earlier terms."""
        self._records.update(records)

    def get(self, uid: str) -> RetryRecord | None:
        return self._records.get(uid)

    def set(self, uid: str, record: RetryRecord) -> None:
        self._records[uid] = self.changes[uid] = record

    def delete(self, uid: str) -> None:
        if self._records.pop(uid, None) is not None:
            self.changes[uid] = None

    def retain(self, known: Container[str]) -> None:
        """Deletes the records of pods that are not known."""
        for uid in [uid for uid in self._records if uid not in known]:
            self.delete(uid)
