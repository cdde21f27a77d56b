"""Limits the size of a worker's answers: one that is too large is never sent, and the cycle would ask for ever.

The first answer that does not fit by itself is cut to the placements that do. A ladder that is cut says so as one does
that has all the placements it was asked for (`Ladder.complete`, `Ladder.cut`): there may be further ones.
"""

from collections import Counter
from collections.abc import Sequence

import msgspec

from flotilla.results import error
from shared.messages.limits import HALF_A_MESSAGE, MAX_BODY
from shared.messages.preemption import Candidate, ShardFindings
from shared.messages.rounds import ClassAnswer, Ladder
from shared.model.objects import encode_msgpack

MAX_BYTES = HALF_A_MESSAGE
"""Of answers or candidates in one message: half of what a message may hold."""
MAX_ANSWER_BYTES = MAX_BODY - (1 << 20)
"""Of a single answer; the rest is for what its message says of other classes and of the worker."""
MIN_RUNGS = 1 << 12
"""Fewer that are names and numbers only are not measured: they fit however long the names are."""
MIN_VICTIMS = 1 << 12
"""Fewer are not measured: they fit however long their names are."""
Domains = tuple[str | None, ...]
"""A combination of values of labels."""
RUNG_BYTES = 64
"""Of numbers in a rung, and of lengths, at most."""


def fitting_answers(answers: list[ClassAnswer]) -> list[ClassAnswer]:
    """Keeps the first answers that fit, at least one, if need be without its last placements.

    The cycle must ask about the other classes again.
    """
    names_only = not any(answer.ladder.devices or answer.ladder.volumes for answer in answers)
    if names_only and sum(_length(answer) for answer in answers) < MIN_RUNGS:
        return answers
    room = MAX_BYTES
    fitting: list[ClassAnswer] = []
    for answer in answers:
        size = len(encode_msgpack(answer))
        room -= size
        if not fitting:
            fitting.append(answer if size <= MAX_ANSWER_BYTES else _cut(answer))
        else:
            fitting.append(answer if room >= 0 else ClassAnswer(answer.class_id, unknown=True))
    return fitting


def _length(answer: ClassAnswer) -> int:
    own = 0 if answer.own_nodes is None else len(answer.own_nodes.fit) + len(answer.own_nodes.unfit)
    listed = sum(len(group.nodes) for group in answer.groups)
    return len(answer.ladder.nodes) + listed + sum(map(len, answer.beside.values())) + len(answer.places) + own


# One answer


def _cut(answer: ClassAnswer) -> ClassAnswer:
    """The answer with as much of its ladder as fits, and without what lasting answers have; or why nothing fits."""
    answer = msgspec.structs.replace(answer, lasts=False, beside={}, ranges={}, followed=False, groups=[])
    ladder = msgspec.structs.replace(answer.ladder, fills=[])
    room = MAX_ANSWER_BYTES - len(encode_msgpack(msgspec.structs.replace(answer, ladder=Ladder())))
    if room < 0:
        what = "what a worker says of its nodes takes more than"
        return _failed(answer, f"{what} the {MAX_ANSWER_BYTES:,} bytes that a message holds")
    sizes = [_bytes_of(ladder, at) for at in range(len(ladder.nodes))]
    if sum(sizes) > room:
        ladder = _first_rungs(ladder, sizes, room)
    if sizes and not ladder.nodes:
        what = (
            f"what is decided about its volumes and devices on node {answer.ladder.nodes[0]} takes {sizes[0]:,} bytes"
        )
        return _failed(answer, f"{what}, and a message holds at most {MAX_ANSWER_BYTES:,}")
    return msgspec.structs.replace(answer, ladder=ladder)


def _failed(answer: ClassAnswer, why: str) -> ClassAnswer:
    return ClassAnswer(answer.class_id, failure=error(why), own_volumes=answer.own_volumes)


def _first_rungs(ladder: Ladder, sizes: Sequence[int], room: int) -> Ladder:
    """As many as fit. If it lacks the labels that it is split by, it is asked for again with them."""
    if not ladder.strata or not ladder.domains.keys() >= set(ladder.strata):
        return _only(ladder, _first_of_all(sizes, room), [])
    domains = _domains(ladder)
    kept = _first_of_each(domains, sizes, room)
    return _only(ladder, kept, domains) if kept else _as_one(ladder, domains, sizes, room)


def _bytes_of(ladder: Ladder, at: int) -> int:
    """At most."""
    columns = ladder.volumes, ladder.devices, ladder.choices
    decided = [column[at] for column in columns if column]
    names = [ladder.nodes[at], *(column[at] for column in ladder.domains.values())]
    # The values of labels may be named once more, as those of a domain that is cut.
    return RUNG_BYTES + len(encode_msgpack(decided)) + 2 * len(encode_msgpack(names))


def _first_of_all(sizes: Sequence[int], room: int) -> list[int]:
    for at, size in enumerate(sizes):
        room -= size
        if room < 0:
            return list(range(at))
    return list(range(len(sizes)))


def _domains(ladder: Ladder) -> list[Domains]:
    """Those that each rung is in."""
    return list(zip(*(ladder.domains[key] for key in ladder.strata), strict=True))


def _first_of_each(domains: Sequence[Domains], sizes: Sequence[int], room: int) -> list[int]:
    """The rungs to keep: equally many of each combination of domains, as far as it has them. Empty if none fit."""
    passed = Counter[Domains]()
    by_rank: dict[int, list[int]] = {}
    for at, of in enumerate(domains):
        by_rank.setdefault(passed[of], []).append(at)
        passed[of] += 1
    kept: list[int] = []
    for rungs in by_rank.values():
        room -= sum(sizes[at] for at in rungs)
        if room < 0:
            break
        kept += rungs
    return sorted(kept)


def _only(ladder: Ladder, kept: Sequence[int], domains: Sequence[Domains]) -> Ladder:
    """These rungs. `domains`: in which combination each rung is; one that has lost any is cut."""
    left = set(kept)
    cut = {*map(tuple, ladder.cut), *(of for at, of in enumerate(domains) if at not in left)}
    return msgspec.structs.replace(
        ladder,
        nodes=[ladder.nodes[at] for at in kept],
        scores=[ladder.scores[at] for at in kept],
        ties=[ladder.ties[at] for at in kept],
        complete=False,
        domains={key: [column[at] for at in kept] for key, column in ladder.domains.items()},
        cut=[list(each) for each in cut],
        volumes=[ladder.volumes[at] for at in kept] if ladder.volumes else [],
        devices=[ladder.devices[at] for at in kept] if ladder.devices else [],
        choices=[ladder.choices[at] for at in kept] if ladder.choices else [],
    )


def _as_one(ladder: Ladder, domains: Sequence[Domains], sizes: Sequence[int], room: int) -> Ladder:
    """The best placements of all domains in one order, where not even the first one of each domain fits.

    They include the ladder's first rung: others may be in domains that are closed now.
    """
    if sizes[0] > room:
        return Ladder()

    def rank(at: int) -> tuple[int, int]:
        return -ladder.scores[at], -ladder.ties[at]

    first_of = {of: at for at, of in reversed(list(enumerate(domains)))}
    others = sorted((at for at in first_of.values() if at), key=rank)
    kept = [others[at] for at in _first_of_all([sizes[at] for at in others], room - sizes[0])]
    return msgspec.structs.replace(_only(ladder, sorted((0, *kept), key=rank), []), strata=(), cut=[])


# Candidates


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
