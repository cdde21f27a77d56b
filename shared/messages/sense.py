"""Checks beyond types: a message that decodes but cannot be true is refused before it reaches a core.

An exception in a core ends its process, so such a message would end it again and again. That numbers are in range is
part of their types (`shared/model/base.py`), so decoding checks it. The rules here relate fields to each other: load
indices are in range, names can be part of a subject, shards exist, parallel lists have equal lengths. Kubernetes
objects inside messages have rules of their own.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from shared.errors import ProtocolError
from shared.messages.binding import BinderBeat, BindingOrders, BindingOutcomes, Permits, Recalled
from shared.messages.preemption import Candidates, Preempt
from shared.messages.queue import Take
from shared.messages.rounds import Proposals, Propose
from shared.messages.state import EPOCH_SHIFT, Commit, Delta, Heartbeat, PodNominated, PodPlaced
from shared.messages.workers import Assign, WorkerBeat

MAX_SHARDS = 1 << 16
"""Shards of a pipeline."""
MAX_ASKED = 1 << 20
"""Pods, or orders, that a receiver can ask for at once."""
MAX_PARTS = 1 << 10
"""Parts of one answer."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")


def rule_of(type_: type) -> Callable[[Any], None] | None:
    """Raises ProtocolError for messages of this type that cannot be true; None if each of them can."""
    return _RULES.get(type_)


def check_sense(message: Any) -> None:
    """Raise ProtocolError if the message cannot be true."""
    rule = rule_of(type(message))
    if rule is not None:
        rule(message)


def _named(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ProtocolError(f"{name[:32]!r} is not a name of a process")


def _in_term(epoch: int, seq: int) -> None:
    """A snapshot's sequence numbers belong to its term, or to earlier ones."""
    if seq >> EPOCH_SHIFT > epoch:
        raise ProtocolError(f"sequence number {seq} is beyond term {epoch}")


def _of_loads(indices: Iterable[int], count: int) -> None:
    if max(indices, default=-1) >= count:
        raise ProtocolError(f"a load is referred to that is not among the {count} of this message")


def _sharded(shards: Sequence[int], shard_count: int) -> None:
    if shard_count > MAX_SHARDS or max(shards, default=-1) >= shard_count:
        raise ProtocolError(f"shard {max(shards, default=0)} of {shard_count} cannot be")


def _on_worker_beat(beat: WorkerBeat) -> None:
    _named(beat.worker)
    _sharded(beat.shards, beat.shard_count)


def _on_binder_beat(beat: BinderBeat) -> None:
    _named(beat.binder)
    if beat.room > MAX_ASKED:
        raise ProtocolError(f"a binder has no room for {beat.room} orders")


def _on_assign(assign: Assign) -> None:
    _sharded(assign.shards, assign.shard_count)
    if not assign.shard_count:
        raise ProtocolError("nodes cannot be divided into no shards")


def _on_take(take: Take) -> None:
    if take.most > MAX_ASKED:
        raise ProtocolError(f"a cycle has no room for {take.most} pods")


def _on_commit(commit: Commit) -> None:
    loads = len(commit.loads)
    _of_loads((each.load for each in commit.decisions), loads)
    _of_loads((each.load for each in commit.nominations), loads)


def _on_delta(delta: Delta) -> None:
    _in_term(delta.epoch, delta.seq)
    _of_loads((each.load for each in delta.changes if isinstance(each, PodPlaced | PodNominated)), len(delta.loads))


def _on_propose(propose: Propose) -> None:
    _of_loads((each.load for each in propose.given), len(propose.loads))
    for ask in propose.classes:
        if ask.count > MAX_ASKED:
            raise ProtocolError(f"{ask.count} pods of one class are too many to ask about")


def _on_preempt(preempt: Preempt) -> None:
    if preempt.gang is not None:
        _of_loads((each.load for each in preempt.gang.given), len(preempt.gang.loads))
    for ask in preempt.classes:
        if ask.members > MAX_ASKED:
            raise ProtocolError(f"{ask.members} members of one class are too many to find room for")


def _on_proposals(proposals: Proposals) -> None:
    _from_worker(proposals)
    for answer in proposals.answers:
        ladder, keys = answer.ladder, answer.topology.keys if answer.topology is not None else ()
        length = len(ladder.nodes)
        beside: tuple[Sequence[object], ...] = (ladder.scores, ladder.ties, *ladder.domains.values())
        optional: tuple[Sequence[object], ...] = (ladder.volumes, ladder.devices)
        if any(len(each) != length for each in beside) or any(len(each) not in (0, length) for each in optional):
            raise ProtocolError(f"a ladder of {length} nodes has other lists of another length")
        if any(len(values) != len(ladder.strata) for values in ladder.cut):
            raise ProtocolError("a ladder is cut in domains that are none of its strata")
        if not set(ladder.strata) <= set(keys):
            raise ProtocolError("a ladder has strata that its topology does not name")


def _from_worker(found: Proposals | Candidates) -> None:
    _named(found.worker)
    if max(found.shards, default=0) >= MAX_SHARDS:
        raise ProtocolError(f"shard {max(found.shards)} cannot be")


def _on_orders(orders: BindingOrders) -> None:
    for order in orders.orders:
        _in_term(orders.epoch, order.attempt)


def _on_recalled(recalled: Recalled) -> None:
    _named(recalled.binder)
    if not recalled.part < recalled.parts <= MAX_PARTS:
        raise ProtocolError(f"part {recalled.part} of {recalled.parts} cannot be")
    for each in recalled.attempts:
        _in_term(recalled.epoch, each.attempt)


_RULES: dict[type, Callable[[Any], None]] = {
    WorkerBeat: _on_worker_beat,
    BinderBeat: _on_binder_beat,
    Assign: _on_assign,
    Take: _on_take,
    Commit: _on_commit,
    Delta: _on_delta,
    Heartbeat: lambda beat: _in_term(beat.epoch, beat.seq),
    Propose: _on_propose,
    Preempt: _on_preempt,
    Proposals: _on_proposals,
    Candidates: _from_worker,
    BindingOutcomes: lambda outcomes: _named(outcomes.binder),
    BindingOrders: _on_orders,
    Recalled: _on_recalled,
    Permits: lambda permits: _named(permits.binder),
}
