"""The plugins that look at no node: SchedulingGates, PrioritySort, DefaultBinder."""

import pytest

from flotilla.plugin import BindingState
from flotilla.results import SUCCESS, ApiCall, unresolvable
from shared.plugins.queueandbind import DefaultBinder, PrioritySort, SchedulingGates
from testing.builders import PodBuilder, pod


def test_a_pod_without_gates_may_enter_the_queue() -> None:
    assert SchedulingGates().pre_enqueue(pod("p").build()) == SUCCESS


@pytest.mark.parametrize(
    ("gated", "reason"),
    [
        (pod("p").gate("foo"), "waiting for scheduling gates: [foo]"),
        (pod("p").gate("b.io/x").gate("a.io/y"), "waiting for scheduling gates: [b.io/x a.io/y]"),
    ],
)
def test_gates_keep_a_pod_out(gated: PodBuilder, reason: str) -> None:
    assert SchedulingGates().pre_enqueue(gated.build()) == unresolvable(reason)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((pod("high").priority(10), 2.0), (pod("low").priority(5), 1.0)),
        ((pod("early").priority(5), 1.0), (pod("late").priority(5), 2.0)),
        ((pod("zero").priority(0), 2.0), (pod("negative").priority(-1), 1.0)),
        ((pod("unset"), 2.0), (pod("negative").priority(-1), 1.0)),
        ((pod("unset"), 1.0), (pod("zero").priority(0), 2.0)),
        ((pod("most").priority(2**31 - 1), 2.0), (pod("least").priority(-(2**31)), 1.0)),
    ],
    ids=lambda queued: queued[0].metadata.name,
)
def test_priority_comes_before_time(first: tuple[PodBuilder, float], second: tuple[PodBuilder, float]) -> None:
    keys = [PrioritySort().sort_key(queued.build(), at) for queued, at in (first, second)]
    assert keys[0] < keys[1]


def test_binding_is_a_call_of_the_binding_subresource() -> None:
    state = BindingState(pod("web-1", "shop").uid("1234").build())
    assert DefaultBinder().bind(state, "node-7") == ApiCall(
        method="POST",
        path="/api/v1/namespaces/shop/pods/web-1/binding",
        body={
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": "web-1", "namespace": "shop", "uid": "1234"},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "node-7"},
        },
    )
