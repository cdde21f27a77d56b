"""What a worker may say at once: a message that is too large is never sent, and would be asked for again for ever."""

from collections.abc import Sequence

import msgspec

from shared.messages.limits import HALF_A_MESSAGE
from shared.messages.preemption import Candidate, ShardFindings
from shared.messages.rounds import ClassAnswer
from shared.model.objects import encode_msgpack

MOST_BYTES = HALF_A_MESSAGE
"""Of answers or candidates in one message, half of what it may hold."""
FEW_RUNGS = 1 << 12
FEW_VICTIMS = 1 << 12
"""Fewer are not weighed: they fit however long their names are."""


def within_a_message(answers: list[ClassAnswer]) -> list[ClassAnswer]:
    """As many of the first answers as find room; the other classes are to be asked about again."""
    if sum(len(answer.ladder.nodes) for answer in answers) < FEW_RUNGS:
        return answers
    room = MOST_BYTES
    kept: list[ClassAnswer] = []
    for answer in answers:
        room -= len(encode_msgpack(answer))
        kept.append(answer if room >= 0 or not kept else ClassAnswer(answer.class_id, unknown=True))
    return kept


def fewer_candidates(found: list[ShardFindings]) -> list[ShardFindings]:
    """As many candidates of each class as fit, and at least one: no search looks for all of them."""
    if sum(_victims(of_class.candidates) for of_class in found) < FEW_VICTIMS:
        return found
    share = MOST_BYTES // len(found)
    return [
        msgspec.structs.replace(of_class, candidates=_that_fit(of_class.candidates, share))
        if of_class.candidates
        else of_class
        for of_class in found
    ]


def _that_fit(candidates: Sequence[Candidate], room: int) -> list[Candidate]:
    kept: list[Candidate] = []
    for candidate in candidates:
        room -= len(encode_msgpack(candidate))
        if room < 0 and kept:
            break
        kept.append(candidate)
    return kept


def _victims(candidates: Sequence[Candidate]) -> int:
    return sum(len(candidate.victims) for candidate in candidates)
