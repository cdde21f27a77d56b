"""Every message that services exchange can be sent, and is known by its tag."""

import importlib
import inspect
import pkgutil
from typing import get_args

import msgspec
import pytest

import shared.messages
from shared.errors import ProtocolError
from shared.messages import binding, queue, state, watch, workers
from shared.messages.codec import Message, copy, decoder, encode
from shared.model.objects import encode_msgpack
from testing.builders import pod

POD = pod("p").build()
EXAMPLES: list[Message] = [
    watch.Watched(
        1,
        2,
        [
            watch.ListingBegins(watch.Kind.POD),
            watch.PodChange("u", "default", "p", body=msgspec.Raw(msgspec.msgpack.encode({"a": 1})), seen_at=1.5),
            watch.PodChange("v", "default", "q", gone=True),
            watch.NodeChange("n", body=msgspec.Raw(msgspec.msgpack.encode([1]))),
            watch.Unreadable(watch.Kind.NODE, "", "", "n", "no name"),
            watch.ListingEnds(watch.Kind.POD),
        ],
    ),
    watch.WatchBeat(1, 2),
    watch.Relist("queue-1"),
    queue.Take(1, 2, 3),
    queue.Outcomes(1, 2, [queue.Outcome("u", queue.Verdict.UNSCHEDULABLE, message="0/1", plugins=("NodePorts",))]),
    queue.Received(1, 2),
    queue.Forgotten(1, [queue.ForgottenPod("u", "overdue")]),
    queue.Inspect(),
    queue.QueueContents(["a"], [], [], ["b"], [], ["c"]),
    workers.WorkerBeat(worker="w", incarnation="i", epoch=1, seq=3),
    workers.Assign(1, 2, [3, 4], 64),
    binding.BindingOrders(
        1, [state.BindingOrder(state.Assignment("u", "default", "p", "default-scheduler", "n"), 1, 2, 30.0)]
    ),
    binding.BinderBeat("b", "i", 100),
    binding.BindingOutcomes("b", 1, 2, [binding.BindingOutcome("u", 3, wait=9.5)]),
    binding.PermitAnswer("u", "Gang", True),
    binding.Notices([binding.Notice("u", "default", "p", "default-scheduler", "Unschedulable", "0/1")]),
]


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_a_message_arrives_as_it_was_sent(message: Message) -> None:
    assert copy(message) == message
    assert decoder(type(message))(encode(message)) == message


def test_a_batch_brings_its_pods() -> None:
    batch = queue.Batch(1, 2, [queue.QueuedPod(msgspec.Raw(encode_msgpack(POD)), 1, 2.0, 3.0)])
    assert copy(batch) == batch


def test_a_decoder_accepts_only_the_expected_types() -> None:
    read = decoder(queue.Take, queue.Received)
    assert read(encode(queue.Received(1, 2))) == queue.Received(1, 2)
    with pytest.raises(ProtocolError, match="not a message"):
        read(encode(watch.WatchBeat(1, 2)))


def test_every_message_is_in_the_union_with_a_unique_tag() -> None:
    parts = (watch.WatchChange, state.Change)
    inner = {struct for union in parts for struct in get_args(union)}
    tagged = {
        struct
        for module in pkgutil.iter_modules(shared.messages.__path__, "shared.messages.")
        for _, struct in inspect.getmembers(importlib.import_module(module.name), inspect.isclass)
        if issubclass(struct, msgspec.Struct) and struct.__struct_config__.tag and struct.__module__ == module.name
    }
    assert tagged - inner == set(get_args(Message))
    assert len({struct.__struct_config__.tag for struct in get_args(Message)}) == len(get_args(Message))


def test_unknown_kinds_in_the_watch_stream_are_skipped() -> None:
    """And only they: what else is wrong with it is refused as ever."""
    read = decoder(watch.Watched, watch.WatchBeat)
    known = watch.ListingBegins(watch.Kind.POD)
    later = {"type": "begins", "kind": "spaceship"}
    told = {"type": "watched", "epoch": 3, "seq": 4}

    def sent(**fields: object) -> bytes:
        return msgspec.msgpack.encode(told | fields)

    (tag,) = {known.__struct_config__.tag}
    later["type"] = str(tag)
    assert read(sent(changes=[later, known, later])) == watch.Watched(3, 4, [known])
    with pytest.raises(ProtocolError, match="seq"):
        read(sent(changes=[later], seq="four"))
    with pytest.raises(ProtocolError):
        read(sent(changes=[later, {"type": "no such change"}]))
    with pytest.raises(ProtocolError):
        read(msgspec.msgpack.encode(later))
