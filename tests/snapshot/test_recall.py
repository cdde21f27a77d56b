"""What a new term learns from binders, also if messages are lost, doubled or late."""

from services.snapshot.dispatch.order_dispatcher import BINDER_TIMEOUT, REPORT_TIMEOUT
from services.snapshot.dispatch.recall import RECALL_TIMEOUT, BinderRecall, Claimed
from shared.messages.binding import LONGEST_WAIT, BindingOutcome, HeldAttempt, Recall, Recalled, Withdraw
from tests.rounds.support import waits
from tests.snapshot.test_dispatch import ONE, TWO, Play, V, W, attempt, sent

EPOCH = 2
LONG = 100.0
Process = tuple[str, str]


class Term(Play):
    """A second term, in which binders have been listened to for long enough; attempts 1 to 3 stand in the ledger."""

    def __init__(self, *names: str, listened_for: float = BINDER_TIMEOUT) -> None:
        super().__init__(*names)
        self.ledger.epoch = EPOCH
        self.ledger.windows = {attempt(number): self.now + LONG for number in (1, 2, 3)}
        self.recalls = BinderRecall(self.dispatcher, self.ledger.windows.__contains__, self.now - listened_for)

    def begin(self) -> dict[str, Recall]:
        return dict(self.recalls.begin(EPOCH, list(self.ledger.windows), self.now))

    def tells(self, process: Process, asked: Recall, *numbers: int, **fields: object) -> Claimed:  # type: ignore[override]
        held = [HeldAttempt(*attempt(number), **{"version": V, **fields}) for number in numbers]  # type: ignore[arg-type]
        return self.part(process, asked, held)

    def part(self, process: Process, asked: Recall, held: list[HeldAttempt], part: int = 0, parts: int = 1) -> Claimed:
        name, incarnation = process
        return self.recalls.on_answer(Recalled(name, incarnation, EPOCH, asked.number, part, parts, held), self.now)

    def tick(self) -> dict[str, list[int]]:
        return sent(self.recalls.tick(self.now))

    def order_is_with(self, process: Process, number: int) -> bool:
        return self.dispatcher.holds(process, attempt(number))


def test_binders_keep_what_they_hold_and_the_rest_is_dispatched() -> None:
    term = Term("one", "two")
    asked = term.begin()
    assert term.tells(TWO, asked["two"], 2) == Claimed()
    assert term.tick() == {}, "the other one may hold the rest"
    term.tells(ONE, asked["one"])
    assert sorted(number for numbers in term.tick().values() for number in numbers) == [1, 3]
    assert term.order_is_with(TWO, 2)
    assert term.tick() == {}


def test_new_commits_need_not_wait() -> None:
    term = Term("one")
    term.begin()
    assert term.give(7) == {"one": [7]}
    assert term.give(1) == {}, "it is of an earlier term"


def test_a_waiting_attempt_is_not_sent_again_before_its_wait_ends() -> None:
    term = Term("one")
    learnt = term.tells(ONE, term.begin()["one"], 1, 2, 3, wait=40.0)
    assert learnt.waits == [waits(*attempt(number), 40.0) for number in (1, 2, 3)]
    assert term.tick() == {}
    assert term.pass_time(40.0) == []
    assert term.pass_time(40.0 + REPORT_TIMEOUT) == [(43.0, {"one": [1, 2, 3]})]


def test_an_impossible_wait_is_bounded() -> None:
    term = Term("one")
    term.ledger.windows = {attempt(1): 1e12}
    term.tells(ONE, term.begin()["one"], 1, wait=1e12)
    assert term.pass_time(LONGEST_WAIT + REPORT_TIMEOUT) == [(LONGEST_WAIT + REPORT_TIMEOUT, {"one": [1]})]


def test_a_version_that_the_binder_has_not_heard_of_is_sent_at_once() -> None:
    term = Term("one")
    term.ledger.versions[attempt(1)] = W
    assert sent(term.tells(ONE, term.begin()["one"], 1).sends) == {"one": [1]}


def test_attempts_that_are_not_in_the_ledger_are_withdrawn() -> None:
    term = Term("one")
    learnt = term.tells(ONE, term.begin()["one"], 9)
    (withdraw,) = learnt.withdrawn
    assert (withdraw.uid, withdraw.attempt, withdraw.plugin, withdraw.epoch) == (*attempt(9), "", EPOCH)
    assert learnt == Claimed(withdrawn=[Withdraw(*attempt(9), "", withdraw.reason, EPOCH)])


def test_no_holder_is_believed_alone() -> None:
    term = Term("one", "two")
    asked = term.begin()
    term.tells(ONE, asked["one"], 1)
    term.tells(TWO, asked["two"], 1)
    assert term.order_is_with(ONE, 1), "who said so first"
    assert not any(term.dispatcher.is_sole(process, attempt(1), V) for process in (ONE, TWO))


def test_a_binder_is_asked_with_each_beat_until_all_parts_of_one_answer_have_come() -> None:
    term = Term("one")
    first = term.begin()["one"]
    term.part(ONE, first, [HeldAttempt(*attempt(1), V)], 0, 2)
    second = term.recalls.question(ONE, term.now)
    assert second is not None
    assert second.number > first.number
    term.part(ONE, second, [HeldAttempt(*attempt(2), V)], 1, 2)
    assert term.tick() == {}, "parts of two answers"
    term.part(ONE, first, [HeldAttempt(*attempt(3), V)], 1, 2)
    assert term.recalls.question(ONE, term.now) is None
    assert term.tick() == {}
    assert all(term.order_is_with(ONE, number) for number in (1, 2, 3))


def test_a_binder_that_does_not_answer_is_not_waited_for_without_end() -> None:
    term = Term("one")
    term.begin()
    assert term.pass_time(RECALL_TIMEOUT) == []
    assert term.tick() == {}
    term.pass_time(RECALL_TIMEOUT + 0.5)
    assert term.recalls.question(ONE, term.now) is None
    assert term.tick() == {"one": [1, 2, 3]}


def test_a_lost_binder_is_not_waited_for() -> None:
    term = Term("one", "two")
    asked = term.begin()
    term.tells(ONE, asked["one"], 1)
    del term.living["two"]
    term.pass_time(BINDER_TIMEOUT + 0.5)
    assert term.tick() == {"one": [2, 3]}


def test_binders_that_have_not_beaten_yet_are_waited_for() -> None:
    term = Term(listened_for=0.0)
    assert term.begin() == {}
    term.living = {"one": "first"}
    term.pass_time(0.5)
    asked = term.recalls.question(ONE, term.now)
    assert asked is not None
    term.tells(ONE, asked, 1)
    assert term.tick() == {}
    term.pass_time(BINDER_TIMEOUT)
    assert term.tick() == {"one": [2, 3]}


def test_a_late_claim_is_of_use_until_the_order_is_with_another() -> None:
    term = Term()
    term.begin()
    assert term.tick() == {}
    assert term.dispatcher.waiting == 3
    late = HeldAttempt(*attempt(2), V)
    assert term.dispatcher.claim(ONE, late, term.now) is None, "it does not beat"
    term.room, term.living = 1, {"one": "first"}
    assert term.beat() == {"one": [1]}
    assert term.dispatcher.claim(ONE, late, term.now) == []
    term.living["two"] = "first"
    assert term.beat() == {"two": [3]}, "2 waits no more"
    assert term.dispatcher.claim(TWO, HeldAttempt(*attempt(1), V), term.now) is None


def test_answers_to_another_term_or_of_another_process_are_nothing() -> None:
    term = Term("one")
    asked = term.begin()["one"]
    held = [HeldAttempt(*attempt(9), V)]
    assert term.recalls.on_answer(Recalled("one", "first", EPOCH - 1, asked.number, 0, 1, held), 0.0) == Claimed()
    assert term.recalls.on_answer(Recalled("one", "second", EPOCH, asked.number, 0, 1, held), 0.0) == Claimed()


def test_claimed_orders_end_and_are_lost_like_others() -> None:
    term = Term("one", "two")
    asked = term.begin()
    term.tells(TWO, asked["two"], 1, 2, 3)
    term.tells(ONE, asked["one"])
    term.dispatcher.on_outcome(TWO, BindingOutcome(*attempt(1), "no", version=V), term.now)
    assert term.dispatcher.fill(term.now) == []
    assert term.dispatcher.held == 2
    del term.living["two"]
    assert [numbers for _, numbers in term.pass_time(BINDER_TIMEOUT + 0.5)] == [{"one": [2, 3]}]
