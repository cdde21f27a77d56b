"""Numbers out of range are refused when a message is decoded."""

import math
from typing import Any

import msgspec
import msgspec.inspect as inspect
import pytest

from shared.errors import ProtocolError
from shared.messages.codec import decode
from shared.model.base import LARGEST, ApiStruct
from tests.messages.description import MESSAGES, parts


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.__name__)
def test_every_number_of_a_message_has_a_range(message: type[msgspec.Struct]) -> None:
    seen: set[Any] = set()
    waiting: list[tuple[str, inspect.Type]] = [(message.__name__, inspect.type_info(message))]
    while waiting:
        name, type_ = waiting.pop()
        if isinstance(type_, inspect.StructType):
            if type_.cls not in seen and not issubclass(type_.cls, ApiStruct):
                seen.add(type_.cls)
                waiting += [(f"{type_.cls.__name__}.{field.name}", field.type) for field in type_.fields]
        elif isinstance(type_, inspect.IntType | inspect.FloatType):
            assert type_.ge is not None and type_.le is not None, name
        elif not isinstance(type_, inspect.TupleType):  # ranges of scores, which the cycle checks
            waiting += [(name, part) for part in parts(type_)]


@pytest.mark.parametrize(
    ("tag", "fields"),
    [
        ("heartbeat", {"epoch": -1, "seq": 1}),
        ("heartbeat", {"epoch": 1, "seq": LARGEST + 1}),
        ("heartbeat", {"epoch": 1, "seq": 1, "at": math.nan}),
        ("heartbeat", {"epoch": 1, "seq": 1, "at": -1.0}),
        ("heartbeat", {"epoch": 1, "seq": 1, "api_ahead": -math.inf}),
        ("assign", {"epoch": 1, "number": 1, "shards": [0, -1], "shard_count": 2}),
        ("commit", {"epoch": 1, "round": 1, "decisions": [], "loads": [{"namespace": "n", "requests": {"cpu": -1}}]}),
    ],
)
def test_a_number_out_of_range_is_refused(tag: str, fields: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError, match="not a message: Expected"):
        decode(msgspec.msgpack.encode({"type": tag, **fields}))


def test_a_clock_may_be_behind() -> None:
    assert decode(msgspec.msgpack.encode({"type": "heartbeat", "epoch": 1, "seq": 1, "api_ahead": -2.5}))
