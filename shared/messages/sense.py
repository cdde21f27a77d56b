"""Checks beyond types: a message that decodes but cannot be true is refused before it reaches a core.

An exception in a core ends its process, so such a message would end it again and again. All numbers of every
message are checked: integers fit into 64 bits and are not negative (except for a few fields), times and durations
are finite. Each type has further rules: load indices are in range, names can be part of a subject, shards exist,
parallel lists have equal lengths. Kubernetes objects inside messages are not checked here; their decoders have
rules of their own.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any

import msgspec.inspect as inspect

from shared.errors import ProtocolError
from shared.messages.binding import BinderBeat, BindingOrders, BindingOutcomes, Recalled
from shared.messages.permits import Permits
from shared.messages.preemption import Candidates
from shared.messages.queue import Take
from shared.messages.rounds import Ladder, Proposals, Propose
from shared.messages.state import EPOCH_SHIFT, Commit, Delta, Heartbeat, PodNominated, PodPlaced
from shared.messages.workers import Assign, WorkerBeat
from shared.model.objects import ClusterObject, Node, Pod

LARGEST = (1 << 63) - 1
LONGEST = 1e12
"""Seconds, for durations and Unix times alike."""
MOST_SHARDS = 1 << 16
MOST_ASKED = 1 << 20
"""Pods, or orders, that a receiver can ask for at once."""
MOST_PARTS = 1 << 10
"""Parts of one answer."""
SIGNED = frozenset(
    {"priority", "budgets", "scores", "ties", "weight", "seed", "age", "due_in", "low", "high", "api_ahead"}
)
"""Fields whose numbers may be negative."""
NOT_LOOKED_AT: tuple[type, ...] = (Pod, Node, *ClusterObject.__args__)
_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")
_NUMBERS = (inspect.IntType, inspect.FloatType)

Check = Callable[[Any], None]


def check_sense(message: Any) -> None:
    """Raise ProtocolError if the message cannot be true."""
    kind = type(message)
    check = _CHECKS[kind] if kind in _CHECKS else _check_of(inspect.type_info(kind))
    if check is not None:
        check(message)
    rule = _RULES.get(kind)
    if rule is not None:
        rule(message)


# Numbers


_CHECKS: dict[type, Check | None] = {}


def _check_of(struct: inspect.Type) -> Check | None:
    """For all numbers in structs of this type; None where there are none."""
    assert isinstance(struct, inspect.StructType)
    if struct.cls not in _CHECKS:
        _CHECKS[struct.cls] = None  # of one that is inside itself, further down
        _CHECKS[struct.cls] = _made_for(struct)
    return _CHECKS[struct.cls]


def _made_for(struct: inspect.StructType) -> Check | None:
    if issubclass(struct.cls, NOT_LOOKED_AT):
        return None
    types = {field.name: field.type for field in struct.fields}
    checks = [
        *_checks_of_plain(types, inspect.IntType, _check_integers),
        *_checks_of_plain(types, inspect.FloatType, _check_times),
    ]
    for name, type_ in types.items():
        inner = None if isinstance(type_, _NUMBERS) else _check_inside(name, type_)
        if inner is not None:
            checks.append(_of_field(attrgetter(name), inner))
    if not checks:
        return None
    if len(checks) == 1:
        return checks[0]

    def check_all(value: Any) -> None:
        for check in checks:
            check(value)

    return check_all


def _checks_of_plain(
    types: dict[str, inspect.Type], kind: type[inspect.Type], check: Callable[[str, Iterable[Any], bool], None]
) -> Iterable[Check]:
    """Of fields that are one number: all that may be negative together, and all that may not."""
    for signed in (False, True):
        names = [name for name, type_ in types.items() if isinstance(type_, kind) and (name in SIGNED) is signed]
        if names:
            yield _of_numbers(names, check, signed=signed)


def _of_numbers(names: Sequence[str], check: Callable[[str, Iterable[Any], bool], None], *, signed: bool) -> Check:
    get: Callable[[Any], Any] = attrgetter(*names)
    what = ", ".join(names)
    if len(names) > 1:
        return lambda value: check(what, get(value), signed)
    most: float = LONGEST if check is _check_times else LARGEST
    least = -most if signed else 0

    def check_one(value: Any) -> None:
        if not least <= get(value) <= most:
            raise ProtocolError(f"{what}: a number is out of range")

    return check_one


def _check_integers(what: str, values: Iterable[int], signed: bool) -> None:
    if values and (max(values) > LARGEST or min(values) < (~LARGEST if signed else 0)):
        raise ProtocolError(f"{what}: a number is out of range")


def _check_times(what: str, values: Iterable[float], signed: bool) -> None:
    least = -LONGEST if signed else 0.0
    for value in values:
        if not least <= value <= LONGEST:
            raise ProtocolError(f"{what}: {value} is no time")


def _check_inside(name: str, type_: inspect.Type) -> Check | None:
    """For a value that is more than a number, or may be None."""
    match type_:
        case inspect.StructType():
            return _check_of(type_)
        case inspect.UnionType():
            return _check_of_union(name, type_)
        case inspect.ListType() | inspect.VarTupleType() | inspect.SetType() | inspect.FrozenSetType():
            return _check_of_items(name, type_.item_type, lambda items: items)
        case inspect.DictType():
            return _check_of_items(name, type_.value_type, lambda items: items.values())
    return None


def _check_of_items(name: str, item: inspect.Type, items: Callable[[Any], Any]) -> Check | None:
    signed = name in SIGNED
    if isinstance(item, inspect.IntType):
        return lambda value: _check_integers(name, items(value), signed)
    if isinstance(item, inspect.FloatType):
        return lambda value: _check_times(name, items(value), signed)
    inner = _check_inside(name, item)
    if inner is None:
        return None

    def check_each(value: Any) -> None:
        for each in items(value):
            inner(each)

    return check_each


def _check_of_union(name: str, union: inspect.UnionType) -> Check | None:
    """By the type of the value: of a kind of struct, or a number, or nothing."""
    signed = name in SIGNED
    checks: dict[type, Check] = {}
    for type_ in union.types:
        if isinstance(type_, inspect.StructType) and (of_struct := _check_of(type_)) is not None:
            checks[type_.cls] = of_struct
        elif isinstance(type_, inspect.IntType):
            checks[int] = lambda value: _check_integers(name, (value,), signed)
        elif isinstance(type_, inspect.FloatType):
            checks[float] = lambda value: _check_times(name, (value,), signed)
        elif isinstance(type_, inspect.ListType) and (of_list := _check_inside(name, type_)) is not None:
            checks[list] = of_list
        elif isinstance(type_, inspect.DictType) and (of_dict := _check_inside(name, type_)) is not None:
            checks[dict] = of_dict
    if not checks:
        return None
    of = checks.get

    def check(value: Any) -> None:
        if value is not None and (of_type := of(type(value))) is not None:
            of_type(value)

    return check


def _of_field(get: Callable[[Any], Any], check: Check) -> Check:
    return lambda value: check(get(value))


# Rules of single kinds


def _named(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ProtocolError(f"{name[:32]!r} is no name of a process")


def _in_term(epoch: int, seq: int) -> None:
    """A snapshot's sequence numbers belong to its term, or to earlier ones."""
    if seq >> EPOCH_SHIFT > epoch:
        raise ProtocolError(f"sequence number {seq} is beyond term {epoch}")


def _of_loads(indices: Iterable[int], count: int) -> None:
    if max(indices, default=-1) >= count:
        raise ProtocolError(f"a load is referred to that is not among the {count} of this message")


def _sharded(shards: Sequence[int], shard_count: int) -> None:
    if shard_count > MOST_SHARDS or max(shards, default=-1) >= shard_count:
        raise ProtocolError(f"shard {max(shards, default=0)} of {shard_count} cannot be")


def _on_worker_beat(beat: WorkerBeat) -> None:
    _named(beat.worker)
    _sharded(beat.shards, beat.shard_count)


def _on_binder_beat(beat: BinderBeat) -> None:
    _named(beat.binder)
    if beat.room > MOST_ASKED:
        raise ProtocolError(f"a binder has no room for {beat.room} orders")


def _on_assign(assign: Assign) -> None:
    _sharded(assign.shards, assign.shard_count)
    if not assign.shard_count:
        raise ProtocolError("nodes cannot be divided into no shards")


def _on_take(take: Take) -> None:
    if take.most > MOST_ASKED:
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
        if ask.count > MOST_ASKED:
            raise ProtocolError(f"{ask.count} pods of one class are too many to ask about")


def _on_proposals(proposals: Proposals) -> None:
    _named(proposals.worker)
    _of_shards(proposals.shards)
    for answer in proposals.answers:
        _on_ladder(answer.ladder)
        keys = answer.topology.keys if answer.topology is not None else ()
        if not set(answer.ladder.strata) <= set(keys):
            raise ProtocolError("a ladder has strata that its topology does not name")


def _on_ladder(ladder: Ladder) -> None:
    length = len(ladder.nodes)
    beside: tuple[Sequence[object], ...] = (ladder.scores, ladder.ties, *ladder.domains.values())
    if any(len(each) != length for each in beside) or len(ladder.volumes) not in (0, length):
        raise ProtocolError(f"a ladder of {length} nodes has other lists of another length")
    if any(len(values) != len(ladder.strata) for values in ladder.cut):
        raise ProtocolError("a ladder is cut in domains that are none of its strata")


def _on_candidates(found: Candidates) -> None:
    _named(found.worker)
    _of_shards(found.shards)


def _of_shards(shards: Sequence[int]) -> None:
    if max(shards, default=0) >= MOST_SHARDS:
        raise ProtocolError(f"shard {max(shards)} cannot be")


def _on_outcomes(outcomes: BindingOutcomes) -> None:
    _named(outcomes.binder)


def _on_orders(orders: BindingOrders) -> None:
    for order in orders.orders:
        _in_term(orders.epoch, order.attempt)


def _on_recalled(recalled: Recalled) -> None:
    _named(recalled.binder)
    if not recalled.part < recalled.parts <= MOST_PARTS:
        raise ProtocolError(f"part {recalled.part} of {recalled.parts} cannot be")
    for each in recalled.attempts:
        _in_term(recalled.epoch, each.attempt)


_RULES: dict[type, Check] = {
    WorkerBeat: _on_worker_beat,
    BinderBeat: _on_binder_beat,
    Assign: _on_assign,
    Take: _on_take,
    Commit: _on_commit,
    Delta: _on_delta,
    Heartbeat: lambda beat: _in_term(beat.epoch, beat.seq),
    Propose: _on_propose,
    Proposals: _on_proposals,
    Candidates: _on_candidates,
    BindingOutcomes: _on_outcomes,
    BindingOrders: _on_orders,
    Recalled: _on_recalled,
    Permits: lambda permits: _named(permits.binder),
}
