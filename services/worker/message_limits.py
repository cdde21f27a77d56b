"""Limits the size of a worker's answers: one that is too large is never sent, and the cycle would ask for ever."""

from collections.abc import Sequence

import msgspec

from shared.messages.limits import HALF_A_MESSAGE
from shared.messages.preemption import Candidate, ShardFindings
from shared.messages.rounds import ClassAnswer
from shared.model.objects import encode_msgpack

MAX_BYTES = HALF_A_MESSAGE
"""Of answers or candidates in one message: half of what a message may hold."""
MIN_RUNGS = 1 << 12
"""Fewer that are names and numbers only are not measured: they fit however long the names are."""
MIN_VICTIMS = 1 << 12
"""Fewer are not measured: they fit however long their names are."""


def fitting_answers(answers: list[ClassAnswer]) -> list[ClassAnswer]:
    """Keeps the first answers that fit, at least one; the cycle must ask about the other classes again."""
    names_only = not any(answer.ladder.devices or answer.ladder.volumes for answer in answers)
    if names_only and sum(_length(answer) for answer in answers) < MIN_RUNGS:
        return answers
    room = MAX_BYTES
    fitting: list[ClassAnswer] = []
    for answer in answers:
        room -= len(encode_msgpack(answer))
        fitting.append(answer if room >= 0 or not fitting else ClassAnswer(answer.class_id, unknown=True))
    return fitting


def _length(answer: ClassAnswer) -> int:
    own = 0 if answer.own_nodes is None else len(answer.own_nodes.fit) + len(answer.own_nodes.unfit)
    listed = sum(len(group.nodes) for group in answer.groups)
    return len(answer.ladder.nodes) + listed + sum(map(len, answer.beside.values())) + len(answer.places) + own


def fitting_candidates(findings: list[ShardFindings]) -> list[ShardFindings]:
    """Keeps the first candidates of each class that fit, at least one: no search needs all of them."""
    victims = sum(len(candidate.victims) for of_class in findings for candidate in of_class.candidates)
    if victims < MIN_VICTIMS:
        return findings
    share = MAX_BYTES // len(findings)
    return [
        msgspec.structs.replace(of_class, candidates=_first_of(of_class.candidates, share)) for of_class in findings
    ]


def _first_of(candidates: Sequence[Candidate], room: int) -> list[Candidate]:
    fitting: list[Candidate] = []
    for candidate in candidates:
        room -= len(encode_msgpack(candidate))
        if room < 0 and fitting:
            break
        fitting.append(candidate)
    return fitting
