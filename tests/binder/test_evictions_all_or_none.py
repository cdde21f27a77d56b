"""A binder takes all evictions that it gets for one gang, or none."""

import random
from collections.abc import Iterator

import pytest

from services.binder import eviction_core, eviction_intake
from services.binder.events import Exit, Leave
from services.binder.eviction_core import MAX_RUNNING, MAX_WINDOW
from services.binder.eviction_intake import LEAVING, MAX_WAITING, EvictionIntake
from services.binder.eviction_state import EvictionBegan, Failed
from shared.messages.binding import Evict
from shared.messages.limits import MAX_GANG
from tests.binder.evictions import Script, evict, standing, victim


def evictions_for(gang: str, count: int, attempt: int = 1) -> Iterator[Evict]:
    for number in range(count):
        name = f"{gang}-{number}"
        yield evict(victim(f"{name}-victim"), uid=name, attempt=attempt, gang=gang)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> int:
    """Gangs have 10 members at most. Returns how many evictions fill the binder so that it takes no other gang."""
    monkeypatch.setattr(eviction_intake, "MAX_GANG", 10)
    monkeypatch.setattr(eviction_intake, "MAX_FOR_GANGS", 20)
    monkeypatch.setattr(eviction_core, "MAX_FOR_GANGS", 20)
    return MAX_RUNNING + 11


def fill(script: Script, count: int) -> None:
    gangs = [(f"other{number}", min(10, count - 10 * number)) for number in range(-(-count // 10))]
    for name, size in gangs:
        for each in evictions_for(name, size):
            script.handle(each)
    assert script.told() == []


def failures(script: Script, gang: str, attempt: int = 1) -> list[str]:
    return [told.failure for told in script.told() if told.uid.startswith(f"{gang}-") and told.attempt == attempt]


def test_all_evictions_for_the_largest_gang_are_taken() -> None:
    intake = EvictionIntake()
    assert {intake.refusal(each) for each in evictions_for("g", MAX_GANG)} == {""}
    assert intake.waiting_for_gangs == MAX_GANG > MAX_WAITING


def test_evictions_for_gangs_leave_room_for_those_of_single_pods(small: int) -> None:
    script = Script()
    fill(script, small)
    script.handle(evict(victim("v"), uid="single"))
    assert script.told() == []


def test_a_binder_that_is_full_refuses_all_evictions_for_a_further_gang(small: int) -> None:
    """1. the binder is full; 2. it refuses the first eviction; 3. it has room again; 4. the other one comes."""
    script = Script()
    fill(script, small)
    first, second = evictions_for("g", 2)
    script.handle(first)
    assert failures(script, "g") == ["11 evictions for other gangs wait already"]
    while script.asks:
        script.carry_out(script.asks[0].victim.name)
    script.handle(second)
    assert failures(script, "g") == ["11 evictions for other gangs wait already"] * 2
    for each in evictions_for("g", 2, attempt=2):
        script.handle(each)
    assert script.asked().keys() == {"g-0-victim", "g-1-victim"}, "the next nomination is another matter"


def test_a_gang_that_was_taken_is_taken_whole_although_the_binder_is_full_by_then(small: int) -> None:
    script = Script()
    first, *rest = evictions_for("g", 9)
    fill(script, small - 1)
    script.handle(first)
    for each in evictions_for("late", 3):
        script.handle(each)
    assert len(failures(script, "late")) == 3
    for each in rest:
        script.handle(each)
    assert failures(script, "g") == []


def test_no_more_are_taken_than_can_be_held_whatever_comes(small: int) -> None:
    script = Script()
    for each in evictions_for("g", MAX_RUNNING + 30):
        script.handle(each)
    assert failures(script, "g") == ["20 evictions for gangs wait already"] * 10


def test_a_binder_that_leaves_goes_on_for_gangs_that_it_has_begun_with() -> None:
    """Their victims would be gone for nothing otherwise."""
    script = Script()
    for each in (*evictions_for("begun", MAX_RUNNING + 2), *evictions_for("waiting", 2)):
        script.handle(each)
    script.handle(Leave())
    late, *_ = evictions_for("waiting", 3, attempt=1)
    script.handle(evict(victim("late"), uid="waiting-late", attempt=late.attempt, gang="waiting"))
    assert failures(script, "waiting") == [LEAVING] * 3
    while script.asks:
        script.carry_out(script.asks[0].victim.name)
    assert failures(script, "begun") == [""] * (MAX_RUNNING + 2)


def test_those_that_do_not_begin_in_time_fail(small: int) -> None:
    script = Script()
    for each in evictions_for("g", MAX_RUNNING + 2):
        script.handle(each)
    script.pass_time(MAX_WINDOW)
    assert len(failures(script, "g")) == MAX_RUNNING + 2
    assert script.machine.held == 0


def test_once_one_fails_those_for_its_gang_that_wait_fail_as_well() -> None:
    """And those that come later; evictions for another gang are made."""
    script = Script()
    *sent, late = evictions_for("g", MAX_RUNNING + 5)
    for each in (*sent, *evictions_for("other", 2)):
        script.handle(each)
    script.answer("g-0-victim", Failed("forbidden", final=True))
    script.handle(late)
    assert len(failures(script, "g")) == 1 + 5
    assert all("forbidden" in why for why in failures(script, "g"))
    while script.asks:
        script.carry_out(script.asks[0].victim.name)
    assert failures(script, "other") == [""] * 2


def test_a_single_pod_does_not_wait_for_a_gang_that_came_before() -> None:
    script = Script()
    for each in evictions_for("g", 4 * MAX_RUNNING):
        script.handle(each)
    script.handle(evict(victim("v"), uid="single"))
    carried_out = 0
    while "v" not in script.asked():
        script.carry_out(script.asks[0].victim.name)
        carried_out += 1
    assert carried_out <= MAX_RUNNING + 1, "those that had begun, and one more"


def test_what_has_not_ended_when_the_process_ends_is_reported_as_failed() -> None:
    script = Script()
    for each in (*evictions_for("g", MAX_RUNNING + 5), evict(victim("v"), uid="single")):
        script.handle(each)
    script.handle(Leave())
    script.answer("g-0-victim", standing(victim("g-0-victim")))
    script.handle(Exit())
    assert len(failures(script, "g")) == MAX_RUNNING + 5
    assert all(LEAVING in why for why in failures(script, "g"))
    assert script.machine.held == 0


@pytest.mark.parametrize("seed", range(30))
def test_whatever_comes_in_whatever_order_no_gang_is_taken_in_part(seed: int, small: int) -> None:
    """Evictions of several gangs come from one snapshot in turn, and again when a binder starts; calls are answered."""
    rng = random.Random(seed)
    script = Script()
    sizes = {f"g{number}": rng.randint(1, 10) for number in range(40)}
    sent: list[Evict] = []
    for gang, size in sizes.items():
        for each in evictions_for(gang, size):
            sent.append(each)
            script.handle(each)
            if rng.random() < 0.1:
                script.handle(rng.choice(sent))
            while script.asks and rng.random() < 0.25:
                script.carry_out(rng.choice(script.asks).victim.name)
    while script.asks:
        script.carry_out(script.asks[0].victim.name)
    verdicts = {gang: {bool(why) for why in failures(script, gang)} for gang in sizes}
    assert all(len(verdict) == 1 for verdict in verdicts.values()), f"seed {seed}: {verdicts}"
    assert len(script.all(EvictionBegan)) == sum(size for gang, size in sizes.items() if verdicts[gang] == {False})
    assert {True} in verdicts.values(), f"seed {seed}: the binder was never full"
