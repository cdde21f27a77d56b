"""When processes are started again."""

import pytest

from tools.supervisor.children import HEALTHY_AFTER, LONGEST_PAUSE, RestartPolicy, end_of
from tools.supervisor.pipeline import reason_in


@pytest.fixture
def policy() -> RestartPolicy:
    return RestartPolicy(configured=["worker"])


def test_pauses_double_up_to_the_longest(policy: RestartPolicy) -> None:
    found = []
    for now in range(8):
        policy.on_start("worker", now)
        found.append(policy.on_end("worker", 1, now + 0.5))
    assert found == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, LONGEST_PAUSE, LONGEST_PAUSE]


def test_thousands_of_failures_do_not_overflow(policy: RestartPolicy) -> None:
    assert [policy.on_end("worker", 1, 0.0) for _ in range(5_000)][-1] == LONGEST_PAUSE


def test_failures_before_a_long_run_do_not_count(policy: RestartPolicy) -> None:
    for now in (0.0, 1.0, 2.0):
        policy.on_start("worker", now)
        policy.on_end("worker", 1, now)
    policy.on_start("worker", 10.0)
    assert policy.on_end("worker", 1, 10.0 + HEALTHY_AFTER) == 0.2
    assert policy.on_end("worker", 1, 10.0 + HEALTHY_AFTER) == 0.4


def test_failures_are_counted_by_process(policy: RestartPolicy) -> None:
    policy.on_end("worker", 1, 0.0)
    assert policy.on_end("nats", 1, 0.0) == 0.2


@pytest.mark.parametrize("code", [0, 1, -9])
def test_processes_are_restarted_however_they_end(policy: RestartPolicy, code: int) -> None:
    assert policy.on_end("worker", code, 100.0) == 0.2


def test_a_bad_configuration_is_not_retried(policy: RestartPolicy) -> None:
    assert policy.on_end("worker", 2, 0.0) is None


def test_exit_code_2_of_a_server_is_a_failure_like_others(policy: RestartPolicy) -> None:
    assert policy.on_end("nats", 2, 0.0) == 0.2


def test_ends_in_words() -> None:
    assert end_of(3) == "ended with exit code 3"
    assert end_of(-15) == "was ended by SIGTERM"
    assert end_of(-99) == "was ended by signal 99"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("service: is starting\n", "service: is starting"),
        ("service: is starting\nterm: Lease x\nnats: lost\n", "term: Lease x; nats: lost"),
        ("queue.service: is starting\nqueue.term: x\ncycle.service: is starting\ncycle.term: x\ncycle.nats: lost\n",
         "queue.term, cycle.term: x; cycle.nats: lost"),
        ("queue.service: is starting\ncycle.service: is starting\n", "queue.service, cycle.service: is starting"),
        ("", ""),
    ],
)  # fmt: skip
def test_reasons_are_in_one_line_and_starting_counts_only_alone(body: str, reason: str) -> None:
    assert reason_in(body) == reason
