"""What Prometheus reads."""

import prometheus_client
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

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


BOUNDS = (0.001, 0.5, 1.0, 250.0)
OBSERVED = st.lists(
    st.tuples(st.sampled_from(["a", 'b"\n\\']), st.one_of(st.sampled_from(BOUNDS), st.floats(-1.0, 1e9))), max_size=30
)


@given(OBSERVED)
def test_histograms_look_like_those_of_the_client_library(observed: list[tuple[str, float]]) -> None:
    ours, theirs = Metrics(), CollectorRegistry()
    histogram = ours.histogram("flotilla_x_seconds", "How long\n x takes.", ("who",), BOUNDS)
    expected = prometheus_client.Histogram(
        "flotilla_x_seconds", "How long\n x takes.", ("who",), registry=theirs, buckets=BOUNDS
    )
    for who, value in observed:
        histogram.labels(who).observe(value)
        expected.labels(who).observe(value)
    assert of_x(ours.exposition()) == of_x(generate_latest(theirs))


def of_x(exposition: bytes) -> list[str]:
    """Without the time of creation."""
    return [line for line in exposition.decode().splitlines() if "flotilla_x" in line and "_created" not in line]


def test_a_histogram_without_labels_exists_from_the_start() -> None:
    metrics = Metrics()
    metrics.histogram("flotilla_x_seconds", "X.", buckets=(1, 2))
    assert 'flotilla_x_seconds_bucket{le="+Inf"} 0.0' in metrics.exposition(["flotilla_x_seconds_bucket"]).decode()
    with pytest.raises(ValueError, match="flotilla_x_seconds"):
        metrics.histogram("flotilla_x_seconds", "X.")


def test_a_histogram_refuses_another_number_of_labels() -> None:
    with pytest.raises(ValueError, match="labels"):
        Metrics().histogram("flotilla_x_seconds", "X.", ("who",)).labels("a", "b")


@given(st.lists(st.one_of(st.sampled_from(BOUNDS), st.integers(-5, 1000)), max_size=30))
def test_values_that_are_observed_together_count_like_single_ones(values: list[float]) -> None:
    together, singly = Metrics(), Metrics()
    together.histogram("flotilla_x_seconds", "X.", ("who",), BOUNDS).labels("a").observe_all(values)
    histogram = singly.histogram("flotilla_x_seconds", "X.", ("who",), BOUNDS).labels("a")
    for value in values:
        histogram.observe(value)
    assert of_x(together.exposition()) == of_x(singly.exposition())
