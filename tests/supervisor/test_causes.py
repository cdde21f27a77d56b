"""One line for one cause."""

import pytest

from tools.supervisor.causes import SETTLE, WINDOW, Causes, cause_in
from tools.supervisor.pipeline import by_reason


def line(level: str, service: str, message: str) -> str:
    return f"11:01:08.346 {level:<7} {service}: {message}"


AWAY = "http://h:1: GET /api/v1/{}: cannot be reached: Connection refused; trying again"


def test_several_processes_with_one_cause_are_one_line_and_the_names_of_the_others() -> None:
    causes = Causes()
    assert causes.is_new("watcher", line("WARNING", "watcher", AWAY.format("pods")), 0.0)
    assert not causes.is_new("queue", line("WARNING", "queue", AWAY.format("namespaces/kube-system")), 0.1)
    assert not causes.is_new("cycle", line("WARNING", "cycle", AWAY.format("x").replace("GET", "PUT")), 0.2)
    assert causes.due(SETTLE / 2) == []
    assert causes.due(SETTLE) == ["the same at queue, cycle: http://h:1: cannot be reached: Connection refused"]
    assert causes.due(SETTLE + 1) == []
    assert not causes.is_new("queue", line("WARNING", "queue", AWAY.format("pods")), WINDOW - 1)
    assert causes.is_new("queue", line("WARNING", "queue", AWAY.format("pods")), WINDOW)


def test_another_cause_another_server_and_information_are_printed() -> None:
    causes = Causes()
    for told in (
        line("WARNING", "queue", AWAY.format("pods")),
        line("WARNING", "queue", AWAY.format("pods").replace("refused", "reset")),
        line("WARNING", "queue", AWAY.format("pods").replace("http://h:", "http://other:")),
        line("INFO", "queue", "term begins"),
        line("INFO", "queue", "term begins"),
        "Traceback (most recent call last):",
        "Traceback (most recent call last):",
    ):
        assert causes.is_new("queue", told, 0.0), told


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        ("not ready: cluster: http://h:1: GET /api/v1/x: 401 Unauthorized", "http://h:1: 401 Unauthorized"),
        ("https://h: GET Lease kube-system/flotilla-queue: 403 no", "https://h: 403 no"),
        ("Redis at h:1 cannot be reached: x; trying again for another 3 s (and 8 more like it)",
         "Redis at h:1 cannot be reached: x"),
        ("flotilla-queue cannot be taken: flotilla-snapshot is held by x", "flotilla-snapshot is held by x"),
        ("nothing has been heard for 12 s", "nothing has been heard for 12 s"),
    ],
)  # fmt: skip
def test_the_cause_is_without_the_request_and_what_is_done_about_it(message: str, cause: str) -> None:
    assert cause_in(message) == cause


def test_services_that_are_not_ready_are_grouped_by_cause_most_of_them_first() -> None:
    away = "redis: Redis at h:1 cannot be reached"
    unready = {"queue": "listing: not yet", "worker-0": away, "worker-1": away}
    assert by_reason(unready) == [("worker-0, worker-1", away), ("queue", "listing: not yet")]
    requests = {"queue": "http://h:1: GET /a/b: 401 x", "cycle": "http://h:1: PUT /c: 401 x"}
    assert by_reason(requests) == [("queue, cycle", "http://h:1: GET /a/b: 401 x")]
