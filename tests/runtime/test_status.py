"""What a process says when it is asked for its status, on a real NATS."""

import asyncio
import os
import random
import time
from itertools import pairwise

import pytest

from shared.bus import Bus
from shared.bus.subjects import STATUS_ANSWERS, STATUS_ASK
from shared.config.settings import Settings
from shared.messages.status import LEADER, AskStatus, Distribution, ProcessStatus
from shared.runtime import Context, Health
from shared.runtime.context import StandsBy
from shared.runtime.status import MAX_TEXT, MAX_VALUES, StatusReporter, distributions_of, values_of
from shared.telemetry.metrics import Metrics
from tests.bus.support import a_bus, a_telemetry, until
from tests.servers import nats_server
from tools.status import asking


def a_context(bus: Bus, service: str = "queue", name: str = "queue-1") -> Context:
    telemetry = a_telemetry()
    return Context(
        service=service,
        name=name,
        settings=Settings(expected_workers=2),
        bus=bus,
        telemetry=telemetry,
        health=Health(),
        http_url="http://127.0.0.1:1",
        wall=lambda: 1000.0,
    )


@pytest.mark.asyncio
async def test_a_process_answers_once_with_its_role_and_why_it_is_not_ready() -> None:
    answers: list[ProcessStatus] = []
    async with nats_server() as server, a_bus(server) as bus, a_bus(server) as asker:
        bus.pipeline.id = "cluster/kube-system"
        context = a_context(bus)
        context.health.lead(7, 990.0)
        context.health.check("watcher", lambda: "x" * (MAX_TEXT + 1))
        context.reported.positions["watch"] = lambda: 41
        context.reported.peers = lambda: ["watcher"]
        await StatusReporter(context, 900.0).listen()
        await asker.subscribe(STATUS_ANSWERS, ProcessStatus, lambda answer, _: answers.append(answer))
        asker.post(STATUS_ASK, AskStatus("first"))
        asker.post(STATUS_ASK, AskStatus("second"))
        await until(lambda: len(answers) >= 2)
    one = answers[0]
    assert [each.id for each in answers] == ["first", "second"]
    assert (one.service, one.name, one.pid, one.started, one.now) == ("queue", "queue-1", os.getpid(), 900.0, 1000.0)
    assert (one.role, one.term, one.since, one.pipeline) == (LEADER, 7, 990.0, "cluster/kube-system")
    assert one.problems == {"service": "is starting", "watcher": "x" * MAX_TEXT}
    assert (one.positions, one.hears) == ({"watch": 41}, ("watcher",))
    assert one.expected_workers == 2
    assert one.memory > 1 << 20
    assert one.cpu > 0.0


@pytest.mark.asyncio
async def test_processes_that_answer_late_are_waited_for_and_lost_ones_only_for_a_while() -> None:
    async with nats_server() as server, a_bus(server) as bus, a_bus(server) as mine:
        for service in ("watcher", "queue", "snapshot", "cycle", "worker"):
            context = a_context(bus, service, f"{service}-1")
            context.health.lead(1, 0.0)
            await StatusReporter(context, 0.0).listen()
        async with asking(mine) as asker:
            began = time.monotonic()
            statuses = await asker.ask(patience=0.5)
            waited = time.monotonic() - began
            assert [each.service for each in statuses] == ["watcher", "queue", "snapshot", "cycle", "worker"]
            assert waited >= 0.5  # no binder

            binder = StatusReporter(a_context(bus, "binder", "binder-1"), 0.0)
            questions: list[str] = []
            await bus.subscribe(STATUS_ASK, AskStatus, lambda asked, _: questions.append(asked.id))
            asking_again = asyncio.create_task(asker.ask(patience=20.0))
            await until(lambda: bool(questions))
            bus.post(STATUS_ANSWERS, binder.status(questions[-1]))
            assert [each.service for each in await asking_again][-1] == "binder"


def test_metrics_are_summed_by_one_label() -> None:
    metrics = Metrics()
    attempts = metrics.counter("scheduler_schedule_attempts_total", "", ["result", "profile"])
    for result, profile, count in (("scheduled", "a", 3), ("scheduled", "b", 4), ("error", "a", 1)):
        attempts.labels(result, profile).inc(count)
    metrics.gauge("scheduler_pending_pods", "", ["queue"]).labels("active").set(0)
    metrics.counter("flotilla_rounds_total", "")
    metrics.counter("flotilla_unknown_total", "").inc()
    assert values_of(metrics) == {
        "scheduler_schedule_attempts_total/scheduled": 7,
        "scheduler_schedule_attempts_total/error": 1,
        "flotilla_rounds_total": 0,
    }


def test_an_answer_is_bounded_however_many_labels_there_are() -> None:
    metrics = Metrics()
    rejecting = metrics.gauge("scheduler_unschedulable_pods", "", ["plugin", "profile"])
    for number in range(MAX_VALUES + 50):
        rejecting.labels(f"plugin-{number}", "default").set(1)
    assert len(values_of(metrics)) == MAX_VALUES


def test_histograms_are_counts_by_bucket_over_all_labels() -> None:
    """Against the observations themselves."""
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng, bounds, metrics = random.Random(seed), (0.1, 1.0, 10.0), Metrics()
    histogram = metrics.histogram("scheduler_scheduling_attempt_duration_seconds", "", ["result"], bounds)
    observed = [rng.expovariate(0.3) for _ in range(200)]
    for number, seconds in enumerate(observed):
        histogram.labels("ab"[number % 2]).observe(seconds)
    (found,) = distributions_of(metrics).values()
    edges = (0.0, *bounds, float("inf"))
    counts = tuple(sum(low < seconds <= high for seconds in observed) for low, high in pairwise(edges))
    assert (found.bounds, found.counts) == (bounds, counts)
    assert found.total == pytest.approx(sum(observed))
    assert isinstance(found, Distribution)


def test_a_standby_names_who_leads_and_since_when() -> None:
    health = Health()
    health.stand_by("queue-2", 100.0)
    health.stand_by("queue-2", 200.0)
    assert (health.role, health.standing_by) == ("standby: queue-2 leads", True)
    assert health.leadership == StandsBy("queue-2", 100.0)
