"""Which waiting pods share the next round."""

from collections import deque
from dataclasses import replace

import msgspec
import pytest

from flotilla.results import Topology
from services.cycle.round.admission import PodInfo
from services.cycle.round.class_cache import ClassCache
from services.cycle.round.next_pods import MAX_POD_BYTES, MAX_QUESTIONS, MIN_UNIFORM, next_pods
from shared.messages.queue import Gang
from testing.builders import pod
from testing.inprocess.batches import pod_info

PACKING = {"packs"}


def waiting(text: str) -> deque[PodInfo]:
    """From `a1 a1:5 +b2`: class, number, priority; `+` is of a profile that packs, `!` of a gang."""
    return deque(_info(number, each) for number, each in enumerate(text.split()))


def _info(number: int, text: str) -> PodInfo:
    class_id, _, priority = text.lstrip("+!").partition(":")
    made = pod(f"{class_id}-{number}").priority(int(priority or 0))
    built = (made.scheduler("packs") if text[0] == "+" else made).build()
    return pod_info(built, class_id, gang=Gang("ns/g", 1) if text[0] == "!" else None)


def names(pods: deque[PodInfo] | list[PodInfo]) -> str:
    return " ".join(info.name for info in pods)


@pytest.mark.parametrize(
    ("pods", "taken", "left", "passed_over"),
    [
        pytest.param("a b a", "a-0 b-1 a-2", "", 0, id="classes of other profiles share a round"),
        pytest.param("+a +b +a +b", "a-0 a-2", "b-1 b-3", 2, id="a class of a packing profile has a round of its own"),
        pytest.param("a +b a +b c", "a-0 a-2 c-4", "b-1 b-3", 2, id="others pass over the pods of packing profiles"),
        pytest.param("+a:5 +b:5 +a:5 +a:4", "a-0 a-2", "b-1 a-3", 1, id="no pod is overtaken by one of lower priority"),
        pytest.param("+a:5 +a:4 +b:4 +a:4", "a-0 a-1 a-3", "b-2", 1, id="nobody is overtaken by the pods of one class"),
        pytest.param("+a +b:9 +a:5 +a:9", "a-0", "b-1 a-2 a-3", 1, id="also if another order than by priority is used"),
        pytest.param("+a +b !g +a", "a-0", "b-1 g-2 a-3", 1, id="a gang is not overtaken"),
        pytest.param(
            "+a +b +b +b +b +b +a", "a-0", "b-1 b-2 b-3 b-4 b-5 a-6", 4, id="a round size is passed over at most"
        ),
        pytest.param("+a +b +a +a +a +a +a", "a-0 a-2 a-3 a-4", "b-1 a-5 a-6", 1, id="a round size is taken at most"),
    ],
)
def test_pods_of_packing_profiles_are_decided_class_by_class(
    pods: str, taken: str, left: str, passed_over: int
) -> None:
    queue = waiting(pods)
    found = next_pods(queue, 4, ClassCache(), PACKING)
    assert (names(found.pods), names(queue), found.passed_over) == (taken, left, passed_over)


@pytest.mark.parametrize("pods", ["+a +b +a", "a +b a"])
def test_in_strict_mode_no_pod_is_passed_over(pods: str) -> None:
    queue = waiting(pods)
    found = next_pods(queue, 1, ClassCache(), PACKING)
    assert (len(found.pods), found.passed_over, names(queue)) == (1, 0, names(list(waiting(pods))[1:]))


def test_without_packing_profiles_the_order_is_the_queue_s() -> None:
    queue = waiting("a +b a +c")
    assert names(next_pods(queue, 3, ClassCache()).pods) == "a-0 b-1 a-2"
    assert names(queue) == "c-3"


def plain_pods(count: int, *, classes: int = 1, gang: Gang | None = None) -> deque[PodInfo]:
    infos = [pod_info(pod(f"p{number}").build(), str(number % classes), gang=gang) for number in range(count)]
    for info in infos:
        info.template = replace(info.template, is_plain=True)
    return deque(infos)


def cache_of(classes: int, topology: Topology | None) -> ClassCache:
    cache = ClassCache()
    cache.learn_topologies({str(number): topology for number in range(classes)})
    return cache


@pytest.mark.parametrize(
    ("classes", "topology", "taken"),
    [
        pytest.param(1, None, 600, id="pods of one class that matters to itself by what it takes only"),
        pytest.param(50, None, 600, id="pods of some such classes"),
        pytest.param(600, None, MAX_QUESTIONS, id="as many classes"),
        pytest.param(1, Topology(), MAX_QUESTIONS, id="pods that are spread"),
    ],
)
def test_a_round_asks_a_bounded_number_of_questions(classes: int, topology: Topology | None, taken: int) -> None:
    queue = plain_pods(600, classes=classes)
    found = next_pods(queue, 1000, cache_of(classes, topology))
    assert (len(found.pods), len(queue), found.is_cut) == (taken, 600 - taken, taken < 600)


def test_pods_of_unknown_classes_may_be_spread() -> None:
    assert len(next_pods(plain_pods(600), 1000, ClassCache()).pods) == MAX_QUESTIONS


def test_each_pod_whose_placement_carries_more_than_a_node_is_a_question() -> None:
    """With devices, each placement carries the parameters of their drivers."""
    queue = plain_pods(600)
    for info in queue:
        info.template = replace(info.template, is_plain=False)
    assert len(next_pods(queue, 1000, cache_of(1, None)).pods) == MAX_QUESTIONS


def test_in_strict_mode_equal_pods_with_claims_still_share_a_round() -> None:
    queue = plain_pods(300)
    for info in queue:
        info.template = replace(info.template, is_plain=False)
    assert len(next_pods(queue, 1, cache_of(1, None)).pods) == MIN_UNIFORM


def test_a_gang_is_decided_together_whatever_it_asks() -> None:
    found = next_pods(plain_pods(600, gang=Gang("ns/g", 600)), 1000, cache_of(1, Topology()))
    assert (len(found.pods), found.is_cut) == (600, False)


@pytest.mark.parametrize(("classes", "shared"), [(1, 40), (40, 8)])
def test_what_pods_mean_for_others_fits_in_a_commit_once_for_each_class(classes: int, shared: int) -> None:
    cache, large = ClassCache(), MAX_POD_BYTES // 8
    queue: deque[PodInfo] = deque()
    for number in range(40):
        info = pod_info(pod(f"p{number}").build(), f"c{number % classes}")
        info.body = msgspec.Raw(bytes(large))
        queue.append(info)
    assert len(next_pods(queue, 256, cache).pods) == shared
