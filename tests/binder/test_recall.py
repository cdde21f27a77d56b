"""What a binder answers the snapshot of a new term, and what it does from then on."""

from services.binder.core import MAX_IN_PART
from services.binder.events import Call, Problem
from shared.messages.binding import BindingOrders, HeldAttempt, Recall, Recalled
from tests.binder.support import OTHER, VERSION, Script, binding_framework, only, wait
from tests.framework.plugins import scripted

NEW = 2


def recalled(script: Script, epoch: int = NEW, number: int = 1, incarnation: str = "") -> list[Recalled]:
    return only(Recalled, script.handle(Recall(epoch, number, incarnation)))


def test_a_recall_is_answered_with_version_and_wait_of_each_attempt() -> None:
    script = Script(binding_framework(scripted("Gate", [], permit=wait(60))))
    script.order("p", 1)
    script.pass_time(20.0)
    (answer,) = recalled(script, number=7)
    assert answer == Recalled("b", "", NEW, 7, 0, 1, [HeldAttempt("p", 1, VERSION, 40.0)])


def test_attempts_that_bind_are_held_and_finished_ones_are_not() -> None:
    script = Script()
    (call,) = only(Call, script.order("p", 1))
    script.order("q", 2)
    script.answer(call)
    (answer,) = recalled(script)
    assert answer.attempts == [HeldAttempt("q", 2, VERSION)]


def test_nothing_is_an_answer_too() -> None:
    assert recalled(Script()) == [Recalled("b", "", NEW, 1, 0, 1)]


def test_much_comes_in_parts() -> None:
    script = Script()
    orders = [script.an_order(f"p{number}", number) for number in range(1, MAX_IN_PART + 2)]
    script.handle(BindingOrders(1, orders))
    first, second = recalled(script)
    assert [(each.part, each.parts, len(each.attempts)) for each in (first, second)] == [
        (0, 2, MAX_IN_PART),
        (1, 2, 1),
    ]


def test_from_then_on_orders_of_earlier_terms_are_refused_and_numbers_begin_again() -> None:
    script = Script()
    script.handle(BindingOrders(1, [script.an_order("p", 1)], number=5))
    recalled(script)
    late = script.handle(BindingOrders(1, [script.an_order("q", 2)], number=6))
    assert only(Call, late) == []
    assert len(only(Problem, late)) == 1
    new = BindingOrders(NEW, [script.an_order("r", 3, epoch=NEW)], number=1)
    assert len(only(Call, script.handle(new))) == 1


def test_it_is_asked_twice_and_answers_twice_and_goes_on() -> None:
    script = Script(binding_framework(scripted("Gate", [], permit=wait(60))))
    script.order("p", 1)
    assert recalled(script)[0].attempts == recalled(script, number=2)[0].attempts
    script.order("p", 1, epoch=NEW, version=OTHER)
    assert len(only(Call, script.permit("Gate"))) == 1


def test_it_does_not_answer_an_older_term_nor_for_another_process() -> None:
    script = Script()
    recalled(script)
    assert recalled(script, epoch=NEW - 1) == []
    assert recalled(script, incarnation="another") == []
