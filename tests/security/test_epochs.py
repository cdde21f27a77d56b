"""An impossible epoch would depose the rightful leader for good: no message with one is read."""

import typing

import msgspec
import pytest

from shared.bus.wire import EPOCHS, VERSION, VERSION_HEADER, MessageReader, RefusedMessage
from shared.messages.codec import Message, encode
from tests.messages.examples import example

WITH_EPOCH = [(type_, name) for type_ in typing.get_args(Message) for name in EPOCHS if name in type_.__struct_fields__]


@pytest.mark.parametrize(("type_", "name"), WITH_EPOCH, ids=[f"{type_.__name__}-{name}" for type_, name in WITH_EPOCH])
@pytest.mark.parametrize("epoch", [1 << 40, 1 << 62])
def test_no_message_with_an_absurd_epoch_is_read(type_: type[msgspec.Struct], name: str, epoch: int) -> None:
    forged = msgspec.structs.replace(example(type_), **{name: epoch})
    with pytest.raises(RefusedMessage):
        MessageReader(type_).read(encode(forged), {VERSION_HEADER: VERSION})  # type: ignore[arg-type,type-var]
