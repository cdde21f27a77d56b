"""python -m tools.whatif.child: answers one question in a process of its own, so that a server stays responsive.

Reads a Job as msgpack from standard input, and writes an Answer or a Problem as JSON to standard output.
"""

import sys

import msgspec

from shared.errors import FlotillaError, UserError
from shared.model.objects import pod_from_msgpack
from tools.whatif.answering import answer
from tools.whatif.extending import calls
from tools.whatif.job import Problem, decode


def main() -> None:
    job = decode(sys.stdin.buffer.read())
    pods_on = {node: [pod_from_msgpack(body) for body in bodies] for node, bodies in job.pods_on.items()}
    try:
        with calls() as converse:
            asks = job.question.config is None  # a question must not name the servers that this process calls
            told = msgspec.json.encode(answer(job.live, job.question, pods_on, converse=converse if asks else None))
    except FlotillaError as cause:
        told = msgspec.json.encode(Problem(str(cause), isinstance(cause, UserError)))
    sys.stdout.buffer.write(told)


if __name__ == "__main__":
    main()
