"""Worker: what it says fits into a message, and a search is not done twice."""

import pytest
from msgspec.structs import replace

from services.worker.core import WorkerCore
from services.worker.events import Answer
from services.worker.message_limits import MIN_RUNGS, fitting_answers, fitting_candidates
from shared.cluster.volumes import VolumeDecision
from shared.messages.codec import encode
from shared.messages.limits import MAX_BODY
from shared.messages.preemption import Candidate, Candidates, Preempt, PreemptAsk, ShardFindings, Victim
from shared.messages.rounds import ClassAnswer, Ladder, Proposals
from shared.messages.state import State
from testing.builders import pod
from tests.rounds.support import FRAMEWORKS


def answer(number: int, rungs: int) -> ClassAnswer:
    names = [f"{i:0253}" for i in range(rungs)]
    return ClassAnswer(f"class-{number}", ladder=Ladder(names, [1 << 30] * rungs, [1 << 30] * rungs))


def test_answers_that_find_no_room_are_to_be_asked_for_again() -> None:
    answers = fitting_answers([answer(number, 300) for number in range(100)])
    assert [each.class_id for each in answers] == [f"class-{number}" for number in range(100)]
    said = [not each.unknown for each in answers]
    assert said == sorted(said, reverse=True)
    assert 0 < said.count(True) < 100
    assert len(encode(Proposals("w", 1, 1, 1, 1, [0], answers))) <= MAX_BODY


@pytest.mark.parametrize("rungs", [1, MIN_RUNGS - 1, 40_000])
def test_the_first_answer_is_given_in_any_case(rungs: int) -> None:
    """Otherwise no pod would ever be decided."""
    answers = fitting_answers([answer(0, rungs), answer(1, 1)])
    assert not answers[0].unknown
    assert answers[0].failure is None
    assert answers[0].ladder.nodes
    assert len(encode(Proposals("w", 1, 1, 1, 1, [0], answers))) <= MAX_BODY


def with_volumes(rungs: int, size: int, domains: int = 0) -> ClassAnswer:
    """Placements of this size: those in the first of `domains`, then those in the next, with falling scores in each."""
    nodes = [f"n{at}" for at in range(rungs)]
    per_domain = -(-rungs // max(domains, 1))
    scores = [1000 - at % per_domain * 10 + at // per_domain for at in range(rungs)]
    made = Ladder(nodes, scores, [0] * rungs, False)
    made = replace(made, volumes=[VolumeDecision([("default/claim", "v" * size)]) for _ in range(rungs)])
    if domains:
        zones: list[str | None] = [f"z{at // per_domain}" for at in range(rungs)]
        made = replace(made, domains={"zone": zones}, strata=("zone",), cut=[["z0"]])
    return ClassAnswer("x", ladder=made, lasts=True, beside={"y": [1] * rungs})


def cut(of: ClassAnswer) -> ClassAnswer:
    (found,) = fitting_answers([of])
    assert len(encode(Proposals("w", 1, 1, 1, 1, [0], [found]))) <= MAX_BODY
    return found


@pytest.mark.parametrize("size", [20_000, 60_000, 3_000_000])
def test_a_ladder_is_cut_to_its_first_placements(size: int) -> None:
    """There may be further ones, and what remains does not last: what it would say of other classes is left out."""
    whole = with_volumes(512, size)
    found, most = cut(whole), MAX_BODY // size
    rungs = len(found.ladder.nodes)
    assert most // 2 <= rungs <= most
    assert found.ladder.nodes == whole.ladder.nodes[:rungs]
    assert found.ladder.volumes == whole.ladder.volumes[:rungs]
    assert not found.ladder.complete
    assert (found.lasts, found.beside) == (False, {})


def test_a_ladder_by_domains_keeps_as_many_of_each() -> None:
    found = cut(with_volumes(40, 300_000, domains=4)).ladder
    assert found.nodes == [f"n{10 * zone + at}" for zone in range(4) for at in range(len(found.nodes) // 4)]
    assert len(found.nodes) >= 16
    assert sorted(map(str, found.cut)) == [f"['z{zone}']" for zone in range(4)]
    assert found.strata == ("zone",)


def test_a_ladder_by_domains_is_one_of_the_best_if_not_even_one_of_each_fits() -> None:
    """The first one stays in any case; the others come in the order of their scores."""
    found = cut(with_volumes(40, 1_000_000, domains=20)).ladder
    assert (found.strata, found.cut, found.complete) == ((), [], False)
    assert found.nodes[-1] == "n0"
    assert found.nodes[:3] == ["n38", "n36", "n34"]
    assert found.scores == sorted(found.scores, reverse=True)
    assert len(found.nodes) >= 6


def test_a_placement_that_fits_in_no_message_fails_its_class() -> None:
    failure = cut(with_volumes(2, MAX_BODY)).failure
    assert failure is not None
    assert "what is decided about its volumes and devices on node n0 takes 8,3" in failure.message


def test_answers_with_few_but_large_placements_are_measured() -> None:
    """Each placement carries its volumes, or its devices with the parameters of their drivers."""
    volumes = [VolumeDecision([("default/claim", "v" * 40_000)]) for _ in range(100)]
    large = [
        replace(answer(number, 100), ladder=replace(answer(0, 100).ladder, volumes=volumes)) for number in range(3)
    ]
    assert [each.unknown for each in fitting_answers(large)] == [False, True, True]


def test_a_search_keeps_some_candidates_of_each_class() -> None:
    victims = [Victim(f"{i:036}", f"default/{i:060}") for i in range(50)]
    many = [Candidate(f"n{i}", victims) for i in range(500)]
    found = fitting_candidates([ShardFindings(str(i), candidates=many if i else []) for i in range(20)])
    assert [bool(of_class.candidates) for of_class in found] == [False] + [True] * 19
    assert all(of_class.candidates == many[: len(of_class.candidates)] for of_class in found)
    assert len(encode(Candidates("w", 1, 1, 1, 1, [0], found))) <= MAX_BODY


def test_a_search_that_is_asked_for_again_is_not_done_again() -> None:
    """It may take longer than its asker waits; repeated each time, the worker would fall ever further behind."""
    core = WorkerCore("w", frozenset({0}), 1, FRAMEWORKS)
    core.start(0.0)
    core.handle(State(1, 10, [], []), 0.0)
    name = next(iter(FRAMEWORKS))

    def candidates(search: int, ask: int, min_seq: int = 10) -> Candidates:
        asks = [PreemptAsk("c", name, pod("p").build())]
        (effect,) = core.handle(Preempt(1, search, ask, min_seq, asks), 0.0)
        assert isinstance(effect, Answer)
        assert isinstance(effect.message, Candidates)
        return effect.message

    first = candidates(1, 1)
    assert candidates(1, 1) is first
    assert candidates(1, 2) is not first
    assert candidates(2, 1).search == 2
