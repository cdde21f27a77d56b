"""When processes are started again."""

import pytest

from tools.supervisor.core import HEALTHY_AFTER, LONGEST_PAUSE, SupervisorCore, how_it_ended
from tools.supervisor.events import Effect, Ended, GiveUp, Launch, Started, Stopping, Tell
from tools.supervisor.pipeline import reason_in


def core() -> SupervisorCore:
    return SupervisorCore(["worker", "nats"], configured=["worker"])


def pauses(effects: list[Effect]) -> list[float]:
    return [effect.after for effect in effects if isinstance(effect, Launch)]


def test_a_crash_is_told_and_mended() -> None:
    supervisor = core()
    assert supervisor.handle(Started("worker"), 0.0) == []
    assert supervisor.handle(Ended("worker", -9), 1.0) == [
        Tell("worker", "was ended by SIGKILL; starts again in 0.2 s"),
        Launch("worker", 0.2),
    ]


def test_the_reason_is_told_where_there_is_one() -> None:
    supervisor = core()
    supervisor.handle(Started("worker"), 0.0)
    tell = supervisor.handle(Ended("worker", 1, "KeyError: 'x'"), 1.0)[0]
    assert tell == Tell("worker", "ended with exit code 1 (KeyError: 'x'); starts again in 0.2 s")


def test_pauses_double_up_to_the_longest() -> None:
    supervisor = core()
    found = []
    for now in range(8):
        supervisor.handle(Started("worker"), now)
        found += pauses(supervisor.handle(Ended("worker", 1), now + 0.5))
    assert found == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, LONGEST_PAUSE, LONGEST_PAUSE]


def test_pauses_never_grow_beyond_numbers() -> None:
    supervisor = core()
    for _ in range(5_000):
        last = pauses(supervisor.handle(Ended("worker", 1), 0.0))
    assert last == [LONGEST_PAUSE]


def test_one_that_ran_long_enough_has_a_clean_slate() -> None:
    supervisor = core()
    for now in (0.0, 1.0, 2.0):
        supervisor.handle(Started("worker"), now)
        supervisor.handle(Ended("worker", 1), now)
    supervisor.handle(Started("worker"), 10.0)
    assert pauses(supervisor.handle(Ended("worker", 1), 10.0 + HEALTHY_AFTER)) == [0.2]


def test_failures_are_counted_apart() -> None:
    supervisor = core()
    supervisor.handle(Ended("worker", 1), 0.0)
    assert pauses(supervisor.handle(Ended("nats", 1), 0.0)) == [0.2]


def test_one_that_could_not_be_started_is_tried_again() -> None:
    assert pauses(core().handle(Ended("nats", 1, "port taken"), 100.0)) == [0.2]


def test_an_orderly_end_that_nobody_asked_for_is_mended_as_well() -> None:
    assert pauses(core().handle(Ended("worker", 0), 0.0)) == [0.2]


def test_a_bad_configuration_ends_everything() -> None:
    assert core().handle(Ended("worker", 2, "no such plugin"), 0.0) == [GiveUp("worker", "no such plugin")]


def test_exit_code_2_means_nothing_special_of_others() -> None:
    assert pauses(core().handle(Ended("nats", 2), 0.0)) == [0.2]


def test_nothing_is_started_again_while_all_is_to_end() -> None:
    supervisor = core()
    supervisor.handle(Started("worker"), 0.0)
    supervisor.handle(Stopping(), 1.0)
    assert supervisor.handle(Ended("worker", -15), 1.1) == []
    assert supervisor.handle(Ended("worker", 2), 1.2) == []


def test_how_a_process_ended() -> None:
    assert how_it_ended(3) == "ended with exit code 3"
    assert how_it_ended(-15) == "was ended by SIGTERM"
    assert how_it_ended(-99) == "was ended by signal 99"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("service: is starting\n", "service: is starting"),
        ("service: is starting\nterm: Lease x\nnats: lost\n", "term: Lease x; nats: lost"),
        ("", ""),
    ],
)
def test_reasons_are_one_line_and_starting_is_only_said_alone(body: str, reason: str) -> None:
    assert reason_in(body) == reason
