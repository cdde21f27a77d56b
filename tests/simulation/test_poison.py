"""No message on any subject ends a process: nonsense is refused, everything else is survived."""

import asyncio
import math
import random
from typing import Any

import msgspec
import msgspec.inspect as inspect
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from shared.bus import subjects
from shared.messages import binding, explaining, inspection, preemption, queue, rounds, state, watch, workers
from shared.messages.codec import Message, encode
from shared.model.objects import Node, Pod, encode_msgpack
from shared.model.quantity import Quantity, QuantityText, parse_quantity
from testing.builders import node, pod
from testing.simulation.drawing import NODES, PROCESSES
from testing.simulation.lying import falsify
from testing.simulation.schedule import Schedule
from testing.simulation.substitutes import run_on_virtual_time
from testing.simulation.world import World
from tests.messages.examples import example

SENT = {
    subjects.WATCH: (watch.Watched, watch.WatchBeat),
    subjects.WATCHER_SEEN: (watch.WatchSeen,),
    subjects.QUEUE_TAKE: (queue.Take,),
    subjects.QUEUE_OUTCOMES: (queue.Outcomes,),
    subjects.QUEUE_FORGOTTEN: (queue.Forgotten, queue.Assumed, queue.Absorbed),
    subjects.QUEUE_EVICTED: (binding.Evicted,),
    subjects.QUEUE_ACTIVATE: (queue.Activate,),
    subjects.QUEUE_LIST: (inspection.ListQueue, inspection.ListEvictions, inspection.ListGroups),
    subjects.WORKER_BEATS: (workers.WorkerBeat,),
    subjects.CYCLE_ANSWERS: (rounds.Proposals, preemption.Candidates, explaining.ShardExplained),
    subjects.CYCLE_EXPLAIN: (explaining.ExplainPod,),
    subjects.CYCLE_COMMITTED: (state.Committed,),
    subjects.SNAPSHOT_COMMITS: (state.Commit,),
    subjects.SNAPSHOT_DELTAS: (state.Delta, state.Heartbeat),
    subjects.SNAPSHOT_BOUND: (binding.BindingOutcomes, binding.Recalled),
    subjects.SNAPSHOT_LIST: (inspection.ListCache, inspection.ListLedger, inspection.FindPod, inspection.MeasureNodes),
    subjects.SNAPSHOT_NOMINATED: (binding.IsNominated, binding.IsPlaced),
    subjects.BINDER_BEATS: (binding.BinderBeat,),
    subjects.BINDER_NOTICES: (binding.Notices,),
    subjects.BINDER_PERMITS: (binding.PermitAnswer, binding.ListPermits),
    subjects.BINDER_LIST: (binding.FindAttempt,),
    subjects.BINDER_WITHDRAWALS: (binding.Withdraw,),
    subjects.BINDER_EVICTIONS: (binding.Evict,),
    subjects.worker("w1"): (rounds.Propose, preemption.Preempt, explaining.ExplainNodes, workers.Assign),
    subjects.binder("b1"): (binding.BindingOrders, binding.Recall),
}
CASES = [(subject, kind) for subject, kinds in SENT.items() for kind in kinds]

SEQ = 1 << state.EPOCH_SHIFT
INTEGERS = st.sampled_from([0, 1, 2, 3, -1, 255, SEQ, SEQ + 1, SEQ + 50, 2 * SEQ, 1 << 40, (1 << 63) - 1, 1 << 63])
FLOATS = st.sampled_from([0.0, 1.0, 1010.0, -1.0, 1e11, 1e300, math.inf, math.nan])
WORDS = st.sampled_from(
    ["", "u1", "u2", "u3", "p1", "n1", "w1", "w2", "b1", "b2", "default", *NODES[:2], "x" * 300, "a.*>"]
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | INTEGERS | FLOATS | WORDS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=2),
    max_leaves=4,
)
PODS = st.sampled_from([pod(f"p{n}").uid(f"u{n}").request(cpu="1").build() for n in range(1, 4)])
OBJECTS = st.sampled_from([node(NODES[0]).capacity(cpu=4).build()])
BODIES = st.sampled_from([b"\x80", b"\xc0", b"", encode_msgpack(pod("p1").uid("u1").build())]) | st.binary(max_size=8)


def arbitrary(type_: inspect.Type) -> SearchStrategy[Any]:
    """Values that can be encoded as this type, sense or none."""
    match type_:
        case inspect.StructType(cls=cls) if cls is Pod:
            return PODS
        case inspect.StructType(cls=cls) if cls is Node:
            return OBJECTS
        case inspect.StructType(cls=cls) if cls.__module__.startswith("shared.model"):
            return st.just(example(cls))
        case inspect.StructType():
            return of_struct(type_.cls)
        case inspect.UnionType():
            return st.one_of([arbitrary(each) for each in type_.types])
        case inspect.ListType() | inspect.VarTupleType() | inspect.SetType() | inspect.FrozenSetType():
            return st.lists(arbitrary(type_.item_type), max_size=2).map(_container(type_))
        case inspect.TupleType():
            return st.tuples(*map(arbitrary, type_.item_types))
        case inspect.DictType():
            return st.dictionaries(arbitrary(type_.key_type), arbitrary(type_.value_type), max_size=2)
        case inspect.EnumType():
            return st.sampled_from(list(type_.cls))
        case inspect.LiteralType():
            return st.sampled_from(type_.values)
        case inspect.CustomType(cls=cls) if cls is Quantity:
            return st.sampled_from([parse_quantity("1500m"), parse_quantity("-1"), parse_quantity("9E")])
        case inspect.CustomType(cls=cls) if cls is QuantityText:
            return st.sampled_from([QuantityText("1500m"), QuantityText("-1"), QuantityText("9E")])
    return SIMPLE[type(type_)]


def _container(type_: inspect.Type) -> Any:
    return tuple if isinstance(type_, inspect.VarTupleType) else list


BY_DESIGN = ("going on in a term above", "believes this process no more")
"""Ends that messages from nowhere may cause: a watcher leaves its term for a later one, a worker is not believed."""

SIMPLE: dict[type[inspect.Type], SearchStrategy[Any]] = {
    inspect.IntType: INTEGERS,
    inspect.FloatType: FLOATS,
    inspect.StrType: WORDS,
    inspect.BoolType: st.booleans(),
    inspect.BytesType: st.binary(max_size=4),
    inspect.RawType: BODIES.map(msgspec.Raw),
    inspect.AnyType: ANYTHING,
    inspect.NoneType: st.none(),
}
_STRUCTS: dict[type, SearchStrategy[Any]] = {}


def of_struct(struct: type[Any]) -> SearchStrategy[Any]:
    if struct not in _STRUCTS:
        _STRUCTS[struct] = st.deferred(lambda: _built(struct))
    return _STRUCTS[struct]


def _built(struct: type[Any]) -> SearchStrategy[Any]:
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    names = {field.encode_name: field.name for field in msgspec.structs.fields(struct)}
    made = {names[field.encode_name]: _value(struct, field) for field in info.fields}
    return st.builds(struct, **made)


def _value(struct: type[Any], field: inspect.Field) -> SearchStrategy[Any]:
    """Epochs are mostly those that there are, because others are refused before the rest is read."""
    value = arbitrary(field.type)
    if field.name in ("epoch", "sender_epoch"):
        return st.sampled_from([1, 1, 1, 1, 2, 0, 1 << 27, 1 << 62])
    return value


@pytest.mark.filterwarnings("ignore:Generating overly large repr")
@pytest.mark.parametrize(("subject", "kind"), CASES, ids=[f"{subject}-{kind.__name__}" for subject, kind in CASES])
def test_no_message_ends_a_process(subject: str, kind: type[Any]) -> None:
    @settings(
        max_examples=4,
        derandomize=True,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(of_struct(kind), min_size=10, max_size=40))
    def feed(messages: list[Message]) -> None:
        run_on_virtual_time(lambda: feed_all(subject, messages))

    feed()


async def feed_all(subject: str, messages: list[Any]) -> None:
    """To a pipeline that works, some pods waiting and some on their way."""
    world = a_world()
    await asyncio.sleep(2.0)
    for number, message in enumerate(messages):
        if number % 2 == 0:
            world.create()
        try:
            world.network.post("forger", subject, message)
        except (OverflowError, ValueError, RecursionError):
            continue  # it cannot be encoded
        await asyncio.sleep(0.05)
        check(world, message)
    await asyncio.sleep(5.0)
    check(world, None)
    await world.end()


def a_world() -> World:
    world = World(Schedule(1, "wishes", 3, 0.0, ()))
    world.furnish()
    for name in PROCESSES:
        world.start(name)
    return world


def check(world: World, message: object) -> None:
    for name, process in list(world.processes.items()):
        if not process.running and any(why in process.ended_with for why in BY_DESIGN):
            world.start(name)
            continue
        assert process.running, (process.name, message, world.around.failures, process.ended_with)


@pytest.mark.parametrize("seed", range(6))
def test_no_message_that_is_nearly_right_ends_a_process(seed: int) -> None:
    """What services say to each other, with one value exchanged for another: it comes further than what is made up."""
    run_on_virtual_time(lambda: feed_falsified(random.Random(seed)))


async def feed_falsified(dice: random.Random) -> None:
    world = a_world()
    subject_of: dict[type[Any], str] = {kind: subject for subject, kinds in SENT.items() for kind in kinds}

    def overhear(message: Message) -> None:
        subject = subject_of.get(type(message))
        if subject is not None and dice.random() < 0.3:
            plain = msgspec.msgpack.decode(encode(message), strict=False)
            falsify(plain, dice)
            asyncio.get_running_loop().call_soon(
                world.network.post_raw, "forger", subject, msgspec.msgpack.encode(plain)
            )

    world.network.overhears.append(overhear)
    for _ in range(400):
        world.create()
        await asyncio.sleep(0.05)
        check(world, None)
    await world.end()
