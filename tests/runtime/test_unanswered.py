"""Requests that are repeated until they are answered."""

from hypothesis import given
from hypothesis import strategies as st

from shared.runtime.unanswered import Unanswered, doubling


def test_a_request_is_due_again_until_it_is_answered() -> None:
    requests = Unanswered[str, int]((2.0,))
    assert requests.next_deadline() is None
    requests.sent("a", 1, 10.0)
    assert requests.next_deadline() == 12.0
    assert requests.due(11.9) == []
    assert requests.due(12.0) == [1]
    assert requests.due(13.9) == []
    assert requests.due(14.0) == [1]
    assert requests.answered("a") == 1
    assert requests.answered("a") is None
    assert requests.due(99.0) == []
    assert requests.next_deadline() is None


def test_waits_grow_and_the_last_one_repeats() -> None:
    requests = Unanswered[str, int]((1.0, 2.0, 4.0))
    requests.sent("a", 1, 0.0)
    due: list[float] = []
    while len(due) < 5:
        deadline = requests.next_deadline()
        assert deadline is not None and requests.due(deadline) == [1]
        due.append(deadline)
    assert due == [1.0, 3.0, 7.0, 11.0, 15.0]


def test_an_answer_resets_the_wait_and_a_new_request_before_it_does_not() -> None:
    requests = Unanswered[str, int]((1.0, 2.0))
    requests.sent("a", 1, 0.0)
    requests.sent("a", 2, 0.5)
    assert (len(requests), requests.next_deadline()) == (1, 2.5)
    assert requests.answered("a") == 2
    requests.sent("a", 3, 3.0)
    assert requests.next_deadline() == 4.0


def test_a_request_that_is_due_again_at_once_is_returned_once() -> None:
    """All waits but the last are over, and the clock has passed them all."""
    requests = Unanswered[str, int]((0.0, 0.0))
    requests.sent("a", 1, 5.0)
    assert requests.due(5.0) == [1]
    assert requests.due(5.0) == [1]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["sent", "answered", "due"]), st.floats(0, 3))))
def test_as_a_dictionary_that_is_searched(script: list[tuple[str, str, float]]) -> None:
    waits = (1.0, 2.0, 2.5)
    requests, now = Unanswered[str, int](waits), 0.0
    expected: dict[str, tuple[int, int, float]] = {}
    for number, (key, what, passes) in enumerate(script):
        now += passes
        if what == "sent":
            step = min(expected[key][1] + 1, 2) if key in expected else 0
            expected[key] = number, step, now + waits[step]
            requests.sent(key, number, now)
        elif what == "answered":
            request, _, _ = expected.pop(key, (None, 0, 0.0))
            assert requests.answered(key) == request
        else:
            due = {key: (request, min(step + 1, 2)) for key, (request, step, at) in expected.items() if at <= now}
            assert sorted(requests.due(now)) == sorted(request for request, _ in due.values())
            expected |= {key: (request, step, now + waits[step]) for key, (request, step) in due.items()}
        requests.validate()
        assert len(requests) == len(expected)
        assert requests.next_deadline() == min((at for _, _, at in expected.values()), default=None)


def test_waits_double_up_to_the_longest() -> None:
    assert doubling(1.0, 16.0) == (1.0, 2.0, 4.0, 8.0, 16.0)
    assert doubling(2.0, 7.0) == (2.0, 4.0, 7.0)
    assert doubling(3.0, 3.0) == (3.0,)
