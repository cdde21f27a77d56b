"""flotilla status: what is wrong in words, and a line for each process."""

import msgspec
import pytest

from shared.messages.status import LEADER, STANDBY, ProcessStatus
from tools.cli.status import lines, summary
from tools.status import Finding, findings, in_order, lags

WHERE = "NATS at here, prefix 'flotilla'"


def process(service: str, name: str = "", **fields: object) -> ProcessStatus:
    status = ProcessStatus(
        id="1",
        service=service,
        name=name or f"{service}-1",
        pid=sum(map(ord, name or service)),
        host="here",
        version="1",
        started=0.0,
        now=90.0,
        cpu=1.5,
        memory=64 << 20,
    )
    return msgspec.structs.replace(status, **fields)


def leader(service: str, name: str = "", **fields: object) -> ProcessStatus:
    return process(service, name, **{"role": LEADER, "term": 3, "since": 30.0, **fields})


def whole(*others: ProcessStatus, without: str = "") -> list[ProcessStatus]:
    """A pipeline in which all is well, with others and without this service."""
    usual = [
        leader("watcher", positions={"watch": 100}),
        leader("queue", positions={"watch": 100}),
        leader("snapshot", positions={"watch": 98, "seq": 50}, hears=("binder-1", "watcher")),
        leader("cycle", hears=("worker-1",)),
        process("worker", positions={"seq": 50}),
        process("binder"),
    ]
    return in_order([*(each for each in usual if each.service != without), *others])


def texts(statuses: list[ProcessStatus]) -> list[str]:
    return [finding.text for finding in findings(statuses) if finding.wrong]


def test_a_whole_pipeline_has_no_findings() -> None:
    statuses = whole(process("queue", "queue-2", role=STANDBY, leader="queue-1"))
    assert findings(statuses) == []
    shown = list(lines(statuses, WHERE))
    assert shown[0].startswith("all is well: 7 processes, ")
    assert [line.split()[:3] for line in shown[2:5]] == [
        ["watcher-1", "leads", "(1m)"],
        ["queue-1", "leads", "(1m)"],
        ["queue-2", "standby", "yes"],
    ]
    assert max(map(len, shown)) <= 100


@pytest.mark.parametrize("service", ["watcher", "queue", "snapshot", "cycle", "worker", "binder"])
def test_a_missing_service_is_named(service: str) -> None:
    assert f"no {service} answers" in texts(whole(without=service))


def test_a_standby_says_which_leader_is_silent() -> None:
    standby = process("queue", "queue-2", role=STANDBY, leader="queue-1")
    assert texts(whole(standby, without="queue")) == [
        "queue-1 leads as queue, and does not answer (queue-2 is on standby)"
    ]


def test_a_worker_that_the_cycle_hears_and_that_does_not_answer_is_named() -> None:
    statuses = whole(leader("cycle", hears=("worker-1", "worker-2", "snapshot")), without="cycle")
    (text,) = texts(statuses)
    assert text.startswith("worker-2 does not answer, but the cycle hears it")


def test_a_worker_that_is_gone_is_missed_once_nobody_hears_it() -> None:
    statuses = whole(leader("cycle", hears=("worker-1",), expected_workers=2), without="cycle")
    assert texts(statuses) == ["1 of 2 workers answer"]
    assert any(line.split()[:4] == ["worker-1", "1", "of", "2"] for line in lines(statuses, WHERE))
    assert texts(in_order([*statuses, process("worker", "worker-2"), process("worker", "worker-3")])) == []


def test_one_cause_is_one_line() -> None:
    away = {"cluster": "the API server does not answer"}
    statuses = whole(*(process("binder", f"binder-{n}", problems=away) for n in (2, 3)))
    assert texts(statuses) == ["not ready: binder-2, binder-3: cluster: the API server does not answer"]


def test_a_server_that_is_away_comes_before_what_it_keeps_from_starting() -> None:
    starting = {"service": "is starting", "cluster": "asks http://a which cluster this is"}
    statuses = whole(process("cycle", problems=starting), without="cycle")
    assert texts(statuses) == [
        "not ready: cycle-1: cluster: asks http://a which cluster this is",
        "no cycle leads yet",
        "not ready: cycle-1: service: is starting",
    ]


def test_two_leaders_and_two_pipelines_are_found() -> None:
    statuses = whole(leader("cycle", "cycle-2", term=4, pipeline="b/x"), leader("cycle", "cycle-3", pipeline="a/x"))
    found = texts(statuses)
    assert any(text.startswith("two lead as cycle: ") and "cycle-2 (term 4)" in text for text in found)
    assert any(text.startswith("processes of 2 pipelines use this prefix: a/x, b/x") for text in found)


def test_versions_and_lag_are_worth_knowing_and_not_wrong() -> None:
    statuses = whole(process("worker", "worker-2", version="2", positions={"seq": 1}))
    far = [
        msgspec.structs.replace(each, positions={"watch": 0, "seq": 10**6}) if each.service == "snapshot" else each
        for each in statuses
    ]
    found = findings(far)
    assert [finding.wrong for finding in found] == [False] * 3
    assert Finding("worker-2 is 999,999 behind", wrong=False) in found
    assert any("versions differ" in finding.text for finding in found)


def test_who_reads_nothing_has_no_lag() -> None:
    statuses = whole(process("worker", "spare", positions={"seq": 0}))
    by_name = dict(zip((each.name for each in statuses), lags(statuses), strict=True))
    assert by_name == {
        "watcher-1": None, "queue-1": 0, "snapshot-1": 2, "cycle-1": None, "spare": None, "worker-1": 0,
        "binder-1": None,
    }  # fmt: skip


def test_the_summary_counts_pods() -> None:
    values = {"scheduler_pending_pods/active": 1200.0, "scheduler_pending_pods/gated": 34.0}
    statuses = whole(leader("queue", values=values | {"scheduler_pod_scheduling_attempts_count": 5000.0}))
    assert "1,234 pods pending, 5,000 bound" in summary(statuses, well=True)
    assert summary([leader("queue")], well=False).startswith("not all is well: 1 process, 0 pods pending, 0 bound")
    assert "pods unknown" in summary(whole(process("queue"), without="queue"), well=False)
    moving = {"flotilla_queue_pods/in-flight": 6.0, "flotilla_queue_pods/binding": 2.0}
    assert "0 pods pending, 6 in flight, 2 binding, 0 bound" in summary([leader("queue", values=moving)], well=True)
    assert next(lines([], WHERE)) == f"no process answers ({WHERE})"


def test_services_of_one_process_show_its_cpu_once() -> None:
    statuses = in_order([leader("queue", "core-queue", pid=9), leader("snapshot", "core-snapshot", pid=9)])
    head, one, other = [line.split() for line in lines(statuses, WHERE) if "core-" in line or "PROCESS" in line][-3:]
    assert ("CPU" in head, "1.5s" in one, "1.5s" in other) == (True, True, False)
