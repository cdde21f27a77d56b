"""What does not hold yet, each with the shortest way to see it. A test here that begins to pass is to be moved."""

from collections.abc import Sequence

import pytest

from services.cycle.core import Decided
from services.snapshot.core import BindingFailed, NodeSeen
from shared.messages.state import Delta
from tests.builders import expr, node, pod
from tests.rounds.support import BY_NAME, SnapshotLog, commit, small_node, small_pod
from tests.rounds.test_strict_mode import reference, scheduled
from tests.rounds.world import Audited


@pytest.mark.xfail(reason="a ladder keeps the score range that its round began with")
def test_a_larger_round_of_one_class_with_preferences_is_strict_mode() -> None:
    """1. The best liked node fills up. 2. From then on likings are scaled to the next best. 3. The ladder is not."""
    kinds = [(4, "b"), (2, "a"), (1, "b"), (16, "c"), (1, "b"), (1, "c")]
    nodes = [
        node(f"n{i}").capacity(cpu=cpu, memory="32Gi").label(g=label).build() for i, (cpu, label) in enumerate(kinds)
    ]
    pods = [
        pod(f"p{i}")
        .request(cpu=1, memory="1Gi")
        .prefer_node(100, expr("g", "In", "a"))
        .prefer_node(30, expr("g", "In", "b"))
        .build()
        for i in range(14)
    ]
    expected = reference(nodes, pods, BY_NAME)
    assert scheduled(nodes, pods, BY_NAME, shards=2, round_size=1) == expected
    assert scheduled(nodes, pods, BY_NAME, shards=2, round_size=256) == expected


@pytest.mark.xfail(reason="a binder's word names the pod and not the attempt")
def test_the_failure_of_an_earlier_attempt_does_not_undo_a_later_one() -> None:
    log, wanted = SnapshotLog(small_node("a"), small_node("b")), small_pod("p")
    log.handle(commit(1, (wanted, "a", 2)))
    log.handle(BindingFailed(wanted.uid))
    log.handle(commit(2, (wanted, "b", 4)))
    log.handle(BindingFailed(wanted.uid))  # doubled, or late
    assert log.pods() == {wanted.uid: "b"}


@pytest.mark.xfail(reason="a lost delta is only noticed by the next one, or by a commit's sequence number")
def test_a_worker_that_missed_the_last_delta_finds_out_before_it_answers() -> None:
    lossy = True

    def fate(message: object) -> Sequence[float]:
        return () if lossy and isinstance(message, Delta) else (0.0,)

    run = Audited(shards=1, round_size=1, fate=fate)
    run.observe(NodeSeen(small_node("a")))
    run.settle()
    lossy = False
    run.submit([small_pod("p")])
    run.settle()
    assert isinstance(run.outcomes["default/p"], Decided)
