"""python -m tools.whatif.child: answers one question in a process of its own, so that a server stays responsive.

Reads a Job as msgpack from standard input, and writes an Answer or a Problem as JSON to standard output.
"""

import sys

import msgspec

from shared.errors import FlotillaError, UserError
from shared.model.objects import dec_hook, enc_hook, pod_from_msgpack
from tools.live_state import LiveState
from tools.whatif.answer import Question
from tools.whatif.answering import answer


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


def main() -> None:
    job = _DECODER.decode(sys.stdin.buffer.read())
    pods_on = {node: [pod_from_msgpack(body) for body in bodies] for node, bodies in job.pods_on.items()}
    try:
        told = msgspec.json.encode(answer(job.live, job.question, pods_on))
    except FlotillaError as cause:
        told = msgspec.json.encode(Problem(str(cause), isinstance(cause, UserError)))
    sys.stdout.buffer.write(told)


if __name__ == "__main__":
    main()
