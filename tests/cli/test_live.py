"""The status line of flotilla up."""

from shared.telemetry.metrics import Metrics
from tools.cli.live import BOUND, PENDING, Rates, counts_in, described


def test_counts_are_read_from_metrics_and_shown_with_separators() -> None:
    metrics = Metrics()
    pending = metrics.gauge(PENDING, "Pending pods.", ["queue"])
    pending.labels("active").set(1200)
    pending.labels("gated").set(34)
    pending.labels("backoff").set(0)
    attempts = metrics.histogram(BOUND.removesuffix("_count"), "Attempts.")
    for _ in range(5000):
        attempts.observe(1)
    counts = counts_in(metrics.exposition([PENDING, BOUND]).decode())
    assert counts == {"active": 1200, "gated": 34, "backoff": 0, BOUND: 5000}
    assert described(counts, 1234.6) == "pods: 1,234 pending (1,200 active, 34 gated), 5,000 bound, 1,235 pods/s"
    assert counts_in("") == {}


def test_the_rate_is_that_of_the_last_looks_and_survives_a_restart_of_the_queue() -> None:
    rates = Rates()
    assert [rates.add(float(at), bound) for at, bound in ((0, 0), (1, 100), (2, 300))] == [0, 100, 150]
    for at in range(3, 20):
        rate = rates.add(float(at), 300)
    assert rate == 0
    assert rates.add(20.0, 10) == 0  # a new queue counts from zero
    assert rates.add(21.0, 40) == 30
