"""Every message arrives as it was sent."""

from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.messages import inspection, recording, status
from shared.messages.codec import Message, copy, decode, encode
from tests.messages.examples import example
from tests.messages.service_messages import SERVICE_MESSAGES
from tests.messages.tool_messages import TOOL_MESSAGES

IN_FULL = (
    inspection.ReadState,
    inspection.StateRead,
    inspection.ReadConfiguration,
    inspection.ListPodsOn,
    inspection.PodsOn,
    inspection.ConfigurationRead,
    recording.RecordDecisions,
    recording.DeciderShown,
    recording.PodsShown,
    recording.RoundDecided,
    recording.SearchDecided,
    recording.CommitAnswered,
    status.AskStatus,
    status.ProcessStatus,
)
"""Messages of which one example stands for all, in which no field has its default."""
MESSAGES: dict[type, st.SearchStrategy[Any]] = {
    **SERVICE_MESSAGES,
    **TOOL_MESSAGES,
    **{message: st.just(example(message)) for message in IN_FULL},
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
        plain = msgspec.msgpack.decode(encode(message))
        arrived = decode(msgspec.msgpack.encode(plain | {"of a later version": 1}))
        assert type(arrived) is kind
        assert msgspec.msgpack.decode(encode(arrived)) == plain

    skips()
