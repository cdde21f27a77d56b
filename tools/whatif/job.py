"""A question with the state that it is about, as bytes for another process: see tools/whatif/child.py."""

import msgspec

from shared.model.objects import dec_hook, enc_hook
from tools.live_state import LiveState
from tools.whatif.answer import Question


class Job(msgspec.Struct, frozen=True):
    """`pods_on`: the full pods of some nodes, as msgpack."""

    live: LiveState
    question: Question
    pods_on: dict[str, list[bytes]]


class Problem(msgspec.Struct, frozen=True):
    """Why there is no answer. `asked`: the question is wrong, not what answers it."""

    problem: str
    asked: bool


_DECODER = msgspec.msgpack.Decoder(Job, dec_hook=dec_hook)


def encode(job: Job) -> bytes:
    return msgspec.msgpack.encode(job, enc_hook=enc_hook)


def decode(raw: bytes) -> Job:
    return _DECODER.decode(raw)
