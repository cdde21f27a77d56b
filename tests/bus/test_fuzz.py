"""Any bytes give a message or a refusal, and nothing else."""

from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.bus.wire import VERSION, VERSION_HEADER, MessageReader, RefusedMessage
from shared.messages.codec import Message
from shared.model.objects import encode_msgpack
from tests.messages.description import MESSAGES
from tests.messages.examples import example

HEADERS = {VERSION_HEADER: VERSION}
READERS: list[MessageReader[Any]] = [MessageReader(message) for message in MESSAGES]
EVERY: MessageReader[Any] = MessageReader(*MESSAGES)
GOOD = [encode_msgpack(example(message)) for message in MESSAGES]
TAGS = [str(message.__struct_config__.tag) for message in MESSAGES]
FIELDS = sorted({name for message in MESSAGES for name in message.__struct_encode_fields__})
QUICK = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats()
    | st.text(max_size=8)
    | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4),
    max_leaves=12,
)
messages = st.builds(
    lambda tag, fields: {"type": tag, **fields},
    st.sampled_from(TAGS),
    st.dictionaries(st.sampled_from(FIELDS), values, max_size=8),
)


def is_read_or_refused(raw: bytes, headers: dict[str, str] | None = HEADERS) -> Message | None:
    try:
        read: Message = EVERY.read(raw, headers)
    except RefusedMessage as refused:
        assert "\n" not in str(refused) and len(str(refused)) < 1000
        return None
    return read


@QUICK
@given(raw=st.binary(max_size=200), headers=st.none() | st.dictionaries(st.text(max_size=5), st.text(max_size=5)))
def test_any_bytes_and_headers(raw: bytes, headers: dict[str, str] | None) -> None:
    is_read_or_refused(raw, headers)
    is_read_or_refused(raw)


@QUICK
@given(message=messages)
def test_any_fields_of_any_type(message: dict[str, Any]) -> None:
    read = is_read_or_refused(msgspec.msgpack.encode(message))
    if read is not None:
        assert read.__struct_config__.tag == message["type"]


@QUICK
@given(data=st.data())
def test_damaged_messages(data: st.DataObject) -> None:
    raw = bytearray(data.draw(st.sampled_from(GOOD)))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw) - 1)) if raw else 0
        match data.draw(st.sampled_from(["flip", "cut", "insert"])):
            case "flip" if raw:
                raw[at] ^= data.draw(st.integers(1, 255))
            case "cut":
                del raw[at : at + data.draw(st.integers(1, 20))]
            case _:
                raw[at:at] = data.draw(st.binary(min_size=1, max_size=9))
    is_read_or_refused(bytes(raw))


@pytest.mark.parametrize("nest", [b"\x91", b"\x81\xa1a"], ids=["lists", "maps"])
def test_too_deeply_nested_messages(nest: bytes) -> None:
    """By itself, and in every field of every message, known or not."""
    deep = nest * 200_000 + b"\xc0"
    assert is_read_or_refused(deep) is None
    for reader, tag, message in zip(READERS, TAGS, MESSAGES, strict=True):
        for field in (*message.__struct_encode_fields__, "unheard-of"):
            spelt = [msgspec.msgpack.encode(text) for text in ("type", tag, field)]
            with pytest.raises(RefusedMessage):
                reader.read(b"\x82" + b"".join(spelt) + deep, HEADERS)


def test_messages_with_a_false_length() -> None:
    for message in (b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff"):
        assert is_read_or_refused(message) is None
        assert is_read_or_refused(b"\x82\xa4type\xa5batch\xa4pods" + message) is None
