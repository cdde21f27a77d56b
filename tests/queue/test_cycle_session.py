"""Takes and Outcomes that are lost, repeated or late."""

from services.queue.events import PodPending, Problem, SendBatch, TermEnds
from services.queue.scheduling.queued_pod_info import PodState
from shared.messages.queue import TAKE_PATIENCE, Outcome, Outcomes, Received, Take, Verdict
from tests.queue.support import FIT, Queue, acknowledged, batch_in, built, names, refusals, uid


def test_the_same_take_gets_the_same_batch() -> None:
    queue = Queue()
    queue.add("a")
    first = queue.ask()
    queue.add("b")
    assert queue.ask_again() == first
    assert queue.effects == [SendBatch(first, again=True)] if first else False
    assert names(queue.ask()) == ["b"]


def test_an_older_take_is_refused() -> None:
    queue = Queue()
    queue.add("a")
    queue.ask()
    queue.add("b")
    queue.ask()
    assert queue.tell(Take(1, 1, 10)) == []
    assert refusals(queue) == ["take 1 of epoch 1: number: 2 has come already"]


def test_a_take_waits_until_there_is_a_pod() -> None:
    queue = Queue()
    assert queue.ask() is None
    assert queue.core.next_deadline() == 100.0 + TAKE_PATIENCE
    assert names(batch_in(queue.tell(PodPending(built("a"), 100.0)))) == ["a"]
    assert queue.core.next_deadline() == 160.0


def test_a_take_gets_an_empty_batch_after_its_timeout() -> None:
    queue = Queue()
    queue.ask()
    queue.now += TAKE_PATIENCE
    batch = queue.core.handle(Take(1, 1, 10), queue.now)
    assert batch == []  # asked again, it waits on
    queue.at(queue.now + TAKE_PATIENCE)
    assert queue.ask_again() is not None and names(queue.ask_again()) == []


def test_a_waiting_take_is_answered_without_pods_when_the_term_ends() -> None:
    queue = Queue()
    assert queue.tell(TermEnds()) == []
    queue.ask()
    batch = batch_in(queue.tell(TermEnds()))
    assert batch is not None and batch.hears_outcomes and names(batch) == []
    assert queue.tell(TermEnds()) == []


def test_the_newest_waiting_take_is_answered() -> None:
    queue = Queue()
    queue.ask()
    queue.ask()
    batch = batch_in(queue.tell(PodPending(built("a"), 100.0)))
    assert batch is not None and batch.number == 2
    assert queue.tell(Take(1, 1, 10)) == []


def test_outcomes_in_a_take_are_handled_once_and_before_pods_are_popped() -> None:
    queue = Queue()
    queue.add("a")
    queue.take()
    take = Take(1, 2, 10, [Outcome(uid("a"), Verdict.DECIDED, "n1")])
    assert batch_in(queue.tell(take)) is None
    assert queue.state("a") is PodState.BINDING
    queue.forget("a")
    assert queue.state("a") is not PodState.BINDING
    waits = queue.state("a")
    assert batch_in(queue.tell(take)) is None
    assert queue.state("a") is waits, "it is the same Take"
    batch = batch_in(queue.tell(PodPending(built("b"), 100.0)))
    assert batch is not None and batch.hears_outcomes
    assert batch_in(queue.tell(take)) == batch
    assert queue.state("a") is waits


def test_a_take_of_zero_pods_is_refused() -> None:
    queue = Queue()
    queue.add("a")
    assert queue.ask(0) is None
    assert refusals(queue) == ["take 1 of epoch 1: most: must be at least 1, not 0"]
    assert queue.state("a") is PodState.ACTIVE


def test_a_new_cycle_gets_the_old_ones_pods_in_their_old_order() -> None:
    queue = Queue()
    queue.add("a", "b")
    queue.take()
    queue.decide("b")
    queue.add("c")
    queue.epoch, queue.takes = 2, 0
    assert queue.take() == ["a", "c"]
    assert queue.state("b") is PodState.BINDING


def test_outcomes_reveal_a_new_cycle_as_well() -> None:
    queue = Queue()
    queue.add("a")
    queue.take()
    queue.epoch = 2
    queue.report(Verdict.DECIDED)
    assert queue.state("a") is PodState.ACTIVE


def test_an_old_cycle_is_refused_and_gets_no_answer() -> None:
    queue = Queue()
    queue.add("a", "b")
    queue.epoch = 2
    queue.take(1)
    assert queue.tell(Take(1, 9, 10)) == []
    assert queue.tell(Outcomes(1, 9, [Outcome(uid("a"), Verdict.DECIDED)])) == []
    assert queue.state("a") is PodState.IN_FLIGHT
    assert refusals(queue) == ["take 9 of epoch 1, now 2", "outcomes 9 of epoch 1, now 2"]
    assert queue.core.counters.refused == 2


def test_a_term_that_goes_silent_is_given_up_and_only_what_came_before_was_refused() -> None:
    queue = Queue()
    queue.add("a")
    queue.epoch = 2
    queue.tell(Outcomes(2, 1, []))
    told = [queue.at(now).tell(Outcomes(1, number, [])) for number, now in enumerate((100.0, 120.0, 140.0), 1)]
    assert [acknowledged(effects) for effects in told] == [[], [], [Received(1, 3)]]
    assert queue.core.counters.refused == 2
    problems = [str(effect.error) for effect in told[-1] if isinstance(effect, Problem)]
    assert problems == ["outcomes 3 of epoch 1 accepted: epoch 2 has gone silent"]


def test_a_take_that_an_old_cycle_left_waiting_is_not_answered() -> None:
    queue = Queue()
    queue.ask()
    queue.epoch = 2
    queue.report(Verdict.DECIDED)
    assert batch_in(queue.tell(PodPending(built("a"), 100.0))) is None
    assert queue.state("a") is PodState.ACTIVE


def test_repeated_outcomes_count_once_and_are_acknowledged_each_time() -> None:
    queue = Queue()
    queue.add("a")
    queue.take()
    message = Outcomes(1, 1, [Outcome(uid("a"), Verdict.UNSCHEDULABLE, plugins=FIT)])
    assert acknowledged(queue.tell(message)) == [Received(1, 1)]
    queue.at(102.0).change()
    assert queue.take() == ["a"]
    assert acknowledged(queue.tell(message)) == [Received(1, 1)]
    assert queue.state("a") is PodState.IN_FLIGHT


def test_outcomes_before_the_last_ones_are_late_and_refused() -> None:
    """The cycle sends the next ones once it knows that these have arrived."""
    queue = Queue()
    queue.add("a", "b")
    queue.take()
    queue.tell(Outcomes(1, 2, [Outcome(uid("a"), Verdict.DECIDED)]))
    assert acknowledged(queue.tell(Outcomes(1, 1, [Outcome(uid("b"), Verdict.DECIDED)]))) == []
    assert (queue.state("a"), queue.state("b")) == (PodState.BINDING, PodState.IN_FLIGHT)
    assert "number: 2 has come already" in str(queue.core.refused[-1])


def test_old_outcomes_never_count_again() -> None:
    queue = Queue()
    queue.add("a")
    for number in range(1, 20_000):
        queue.core.handle(Outcomes(1, number, []), queue.now)
    queue.take()
    for number in (1, 10_000, 19_999):
        queue.tell(Outcomes(1, number, [Outcome(uid("a"), Verdict.FAILED)]))
    assert queue.state("a") is PodState.IN_FLIGHT


def test_a_new_queue_serves_a_running_cycle() -> None:
    queue = Queue()
    queue.epoch, queue.takes, queue.reports = 7, 41, 12
    queue.add("decided", "other")
    queue.report(Verdict.DECIDED, "decided", "never heard of")
    assert queue.take() == ["other"]
    assert queue.state("decided") is PodState.BINDING
