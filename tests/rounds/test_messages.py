"""Every message arrives as it was sent."""

from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.cluster.load import PodLoad, load_of
from shared.framework.diagnosis import Rejections
from shared.framework.explanation import Explanation
from shared.framework.status import Code, Status
from shared.framework.summary import Summary
from shared.framework.tiebreak import Ties
from shared.messages.codec import Message, copy, decode, encode
from shared.messages.rounds import ClassAnswer, ClassAsk, Explain, Explained, Ladder, Proposals, Propose
from shared.messages.state import (
    BindingOrder,
    Commit,
    Committed,
    Conflict,
    Decision,
    Delta,
    Heartbeat,
    NodeRemoved,
    NodeState,
    NodeUpserted,
    PodGone,
    PodPlaced,
    State,
)
from shared.model.resources import HostPort
from tests.rounds.world import World

TEXT, NUMBERS, COUNTS = st.text(max_size=8), st.integers(-(2**62), 2**62), st.integers(0, 2**40)
WORLDS = st.integers(0, 10**6).map(World)
NODES, PODS = WORLDS.map(lambda world: world.a_node("n")), WORLDS.map(lambda world: world.pods(1)[0])
LOADS = st.one_of(
    PODS.map(load_of),
    st.builds(PodLoad, TEXT, st.dictionaries(TEXT, TEXT), st.dictionaries(TEXT, COUNTS), COUNTS, COUNTS),
    st.builds(PodLoad, TEXT, ports=st.tuples(st.builds(HostPort, TEXT, TEXT, COUNTS)), terminating=st.booleans()),
)
TIES = st.builds(Ties, st.sampled_from(["random", "name"]), COUNTS)
SUMMARIES = st.builds(
    Summary,
    COUNTS,
    COUNTS,
    st.dictionaries(TEXT, st.dictionaries(TEXT, NUMBERS, max_size=2), max_size=2),
    st.dictionaries(TEXT, st.tuples(NUMBERS, NUMBERS), max_size=3),
)
STATUSES = st.builds(Status, st.sampled_from(Code), st.tuples(TEXT, TEXT), TEXT)
ASKS = st.builds(ClassAsk, TEXT, TEXT, COUNTS, st.none() | PODS, st.none() | SUMMARIES)
LADDERS = st.builds(
    Ladder, st.lists(TEXT, max_size=3), st.lists(COUNTS, max_size=3), st.lists(NUMBERS, max_size=3), st.booleans()
)
ANSWERS = st.builds(
    ClassAnswer,
    TEXT,
    st.booleans(),
    st.none() | STATUSES,
    st.none() | STATUSES,
    st.none() | STATUSES,
    SUMMARIES,
    LADDERS,
    st.lists(st.builds(Rejections, STATUSES, COUNTS), max_size=2),
    st.tuples(TEXT),
)
PLACED = st.builds(PodPlaced, TEXT, TEXT, COUNTS)
CHANGES = st.one_of(NODES.map(NodeUpserted), st.builds(NodeRemoved, TEXT), PLACED, st.builds(PodGone, TEXT))
MESSAGES: dict[type, st.SearchStrategy[Any]] = {
    Propose: st.builds(Propose, COUNTS, COUNTS, COUNTS, COUNTS, TIES, st.lists(ASKS, max_size=2)),
    Proposals: st.builds(
        Proposals, TEXT, COUNTS, COUNTS, COUNTS, COUNTS, st.lists(COUNTS), st.lists(ANSWERS, max_size=2)
    ),
    Explain: st.builds(Explain, TEXT, ASKS),
    Explained: st.builds(
        Explained,
        TEXT,
        TEXT,
        COUNTS,
        ANSWERS,
        st.builds(
            Explanation,
            st.dictionaries(TEXT, STATUSES, max_size=2),
            st.dictionaries(TEXT, st.dictionaries(TEXT, NUMBERS), max_size=2),
            st.lists(TEXT),
        ),
    ),
    Commit: st.builds(
        Commit,
        COUNTS,
        COUNTS,
        st.lists(LOADS, max_size=2),
        st.lists(st.builds(Decision, TEXT, TEXT, TEXT, TEXT, TEXT, COUNTS, COUNTS), max_size=2),
    ),
    Committed: st.builds(
        Committed, COUNTS, COUNTS, COUNTS, st.lists(st.builds(Conflict, TEXT, TEXT, st.booleans()), max_size=2)
    ),
    Delta: st.builds(Delta, COUNTS, COUNTS, st.lists(CHANGES, max_size=3), st.lists(LOADS, max_size=2)),
    Heartbeat: st.builds(Heartbeat, COUNTS, COUNTS),
    State: st.builds(
        State,
        COUNTS,
        COUNTS,
        st.lists(st.builds(NodeState, NODES, st.dictionaries(TEXT, COUNTS, max_size=2)), max_size=2),
        st.lists(LOADS, max_size=2),
    ),
    BindingOrder: st.builds(
        BindingOrder, COUNTS, COUNTS, TEXT, TEXT, TEXT, TEXT, TEXT, st.floats(0, 1e9, allow_nan=False)
    ),
}


def test_no_message_is_left_out() -> None:
    assert set(MESSAGES) == set(get_args(Message))


@pytest.mark.parametrize("kind", MESSAGES)
def test_a_message_arrives_as_it_was_sent(kind: type) -> None:
    @settings(deadline=None, max_examples=25)
    @given(MESSAGES[kind])
    def arrives(message: Any) -> None:
        arrived = copy(message)
        assert type(arrived) is kind
        assert arrived == message
        assert arrived is not message

    arrives()


@pytest.mark.parametrize("kind", MESSAGES)
def test_fields_of_a_later_version_are_skipped(kind: type) -> None:
    @settings(deadline=None, max_examples=5)
    @given(MESSAGES[kind])
    def skips(message: Any) -> None:
        plain = msgspec.msgpack.decode(encode(message)) | {"of a later version": 1}
        assert decode(msgspec.msgpack.encode(plain)) == message

    skips()
