"""A pod's timeline is put together from what each service remembers."""

from shared.messages.binding import AttemptFound, Step
from shared.messages.explaining import NOMINATED, PLACED, Remembered
from shared.messages.inspection import Move
from tools.explain.timeline import arranged

CREATED = "1970-01-01T00:00:10Z"
MOVES = (
    Move(11.0, "gated", "UnschedulablePodAdd"),
    Move(12.0, "active", "UnschedulablePodUpdate"),
    Move(13.0, "in-flight", "popped"),
    Move(13.5, "binding", "decided"),
    Move(16.2, "done", "bound"),
)
STEPS = (Step(13.6, "waiting"), Step(16.0, "binding"), Step(16.1, "bound"))


def test_from_its_creation_to_its_node() -> None:
    decided = Remembered(PLACED, 13.4, 2, 7, 99, "n1", feasible=3, nodes=5)
    told = arranged(CREATED, MOVES, (decided,), AttemptFound("binder-0", 4, STEPS))
    assert [(each.at, each.what) for each in told] == [
        (10.0, "created"),
        (11.0, "held"),
        (12.0, "queued"),
        (13.0, "attempt"),
        (13.4, "decided: n1"),
        (13.6, "waits for permits"),
        (16.0, "the call that binds"),
        (16.1, "bound"),
        (16.2, "left the queue"),
    ]
    assert (told[4].why, told[7].why) == ("attempt 2, the best of 3 on which it fitted, of 5 nodes", "by binder-0")


def test_what_a_service_forgot_is_left_out() -> None:
    assert [each.what for each in arranged(None, MOVES, (), None)][-2:] == ["decided", "left the queue"]
    assert arranged("no time", (), (), None) == []


def test_repeated_steps_are_one_and_a_failure_has_its_reason() -> None:
    steps = (*(Step(20.0 + i, "preparing") for i in range(3)), Step(30.0, "failed"))
    nominated = Remembered(NOMINATED, 14.0, 1, 7, 99, "n2", victims=("s/v",))
    told = arranged(None, (), (nominated,), AttemptFound("b", 4, steps, "no volume"))
    assert [(each.what, each.why) for each in told] == [
        ("nominated to n2", "for it go s/v"),
        ("PreBind", ""),
        ("binding failed", "no volume"),
    ]


def test_the_decision_comes_before_the_call_although_the_cycle_notes_it_later() -> None:
    decided = Remembered(PLACED, 13.61, 2, 7, 99, "n1", feasible=3, nodes=5)
    told = arranged(None, (), (decided,), AttemptFound("binder-0", 4, STEPS))
    assert [each.what for each in told][:2] == ["decided: n1", "waits for permits"]
    earlier = AttemptFound("binder-0", 4, (Step(3.0, "binding"), Step(4.0, "failed")))
    assert [each.what for each in arranged(None, (), (decided,), earlier)][-1] == "decided: n1"
