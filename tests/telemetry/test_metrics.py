"""What Prometheus reads."""

import pytest

from shared.telemetry.metrics import Metrics


def test_the_exposition_has_what_was_declared_and_the_process() -> None:
    metrics = Metrics()
    metrics.counter("scheduler_schedule_attempts_total", "Attempts.", ("result",)).labels("scheduled").inc()
    metrics.gauge("scheduler_pending_pods", "Pods.", ("queue",)).labels("active").set(3)
    metrics.histogram("scheduler_pod_scheduling_attempts", "Attempts.", buckets=(1, 2, 4)).observe(2)
    text = metrics.exposition().decode()
    for line in (
        'scheduler_schedule_attempts_total{result="scheduled"} 1.0',
        'scheduler_pending_pods{queue="active"} 3.0',
        'scheduler_pod_scheduling_attempts_bucket{le="2.0"} 1.0',
        "# TYPE process_cpu_seconds_total counter",
        "# TYPE process_resident_memory_bytes gauge",
    ):
        assert line in text


def test_registries_are_separate_and_names_unique() -> None:
    one, two = Metrics(), Metrics()
    one.counter("flotilla_x_total", "X.").inc()
    two.counter("flotilla_x_total", "X.")
    assert "flotilla_x_total 1.0" in one.exposition().decode()
    assert "flotilla_x_total 0.0" in two.exposition().decode()
    with pytest.raises(ValueError, match="flotilla_x"):
        one.counter("flotilla_x_total", "X.")
