"""The console's model: nodes, amounts, pending pods and figures of services."""

from typing import Any

import pytest
from msgspec.structs import replace

from shared.messages.inspection import DescribedPod
from shared.messages.state import Delta, Heartbeat, NodeRemoved, NodeUpserted, PodGone, PodNominated, PodPlaced
from shared.messages.status import Distribution, ProcessStatus
from shared.model.load import load_of
from testing.builders import NodeBuilder, node, pod
from tools.console.cluster import ClusterModel
from tools.console.kinds import node_kinds
from tools.console.overview import Services
from tools.console.pending import PendingPods, matching
from tools.following import GAP_PATIENCE
from tools.live_state import StateBuilder

SMALL = load_of(pod("small").request(cpu="500m", memory="1Gi").build())


def a_node(name: str) -> NodeBuilder:
    return node(name).capacity(cpu=4, memory="8Gi", pods=110).label({"zone": "z1"})


def loaded(*names: str) -> ClusterModel:
    state = StateBuilder()
    state.nodes = {name: a_node(name).build() for name in names}
    state.pods = {"uid-p": (names[0], SMALL, "shop/p", None)}
    model = ClusterModel()
    model.load(state, epoch=1, seq=10, now=0.0)
    model.take_changes()
    return model


def delta(seq: int, *changes: Any, epoch: int = 1) -> Delta:
    return Delta(epoch, seq, list(changes), [SMALL])


def cpu_of(model: ClusterModel) -> dict[str, int]:
    return {name: entry.requested.get("cpu", 0) for name, entry in model.nodes.items()}


def test_deltas_move_amounts_between_nodes_and_name_only_what_changed() -> None:
    model = loaded("a", "b", "c")
    assert cpu_of(model) == {"a": 500, "b": 0, "c": 0}
    model.take(delta(11, PodPlaced("uid-q", "b", 0, "shop/q"), PodNominated("uid-n", "a", 0, "shop/n")), 0.0)
    model.take(delta(12, PodPlaced("uid-p", "b", 0, "shop/p")), 0.0)
    assert cpu_of(model) == {"a": 0, "b": 1000, "c": 0}
    changes = model.take_changes()
    assert [entry.name for entry in changes.used] == ["b", "a"] and not changes.added and not changes.gone
    assert (model.placed, model.nominations["uid-n"].node) == (1, "a")
    model.take(delta(13, PodGone("uid-q"), PodGone("uid-p")), 0.0)
    assert cpu_of(model) == {"a": 0, "b": 0, "c": 0} and not model.pods


def test_nodes_come_and_go_with_their_pods() -> None:
    model = loaded("a")
    model.take(delta(11, NodeUpserted(a_node("b").unschedulable().build()), NodeRemoved("a")), 0.0)
    assert [entry.name for entry in model.take_changes().added] == ["b", "a"]
    assert model.nodes["b"].unschedulable and model.capacity(model.nodes["a"]) == [0, 0, 0, 0]
    model.take(delta(12, PodPlaced("uid-q", "b", 0, "shop/q"), NodeUpserted(a_node("a").build())), 0.0)
    assert model.label_keys() == ["zone"]
    assert model.totals() == [("cpu", 1000, 8000), ("memory", 2 << 30, 16 << 30), ("pods", 2, 220)]


@pytest.mark.parametrize("lost", [delta(12), delta(3, epoch=2), Heartbeat(2, 1)])
def test_a_lost_delta_and_another_term_make_the_model_stale(lost: Delta | Heartbeat) -> None:
    model = loaded("a")
    model.take(delta(10), 0.0)  # is in the state already
    assert not model.stale
    model.take(lost, 0.0)
    model.take(Heartbeat(1, 10), GAP_PATIENCE)
    assert model.stale


def test_a_delta_may_be_later_than_the_heartbeat_that_names_it() -> None:
    model = loaded("a")
    for at in range(3):
        model.take(Heartbeat(1, 11), at * GAP_PATIENCE / 4)
    model.take(delta(11), 0.9 * GAP_PATIENCE)
    model.take(Heartbeat(1, 12), 2 * GAP_PATIENCE)
    assert not model.stale
    model.take(Heartbeat(1, 12), 3 * GAP_PATIENCE)
    assert model.stale


def test_a_model_that_is_loaded_again_has_other_numbers() -> None:
    model = loaded("a")
    (before,) = model.nodes.values()
    model.load(StateBuilder(), 2, 1, 0.0)
    assert model.take_changes().gone == [before.id]
    assert not model.nodes


def test_nodes_of_one_pool_and_size_are_a_kind() -> None:
    model = loaded("n10")
    pool = {"node.kubernetes.io/instance-type": "large"}
    nodes = [
        a_node("a").label(pool).unschedulable(),
        a_node("b").label(pool),
        a_node("c").label(pool),
        a_node("d").label(pool).capacity(cpu="500m"),
        a_node("e").label({"node.kubernetes.io/instance-type": "large-2"}).capacity(cpu="2"),
    ]
    model.take(delta(11, *(NodeUpserted(each.build()) for each in nodes), PodPlaced("uid-q", "gone", 0, "s/q")), 0.0)
    kinds = [(each.name, each.like, each.nodes, each.cpu) for each in node_kinds(model.nodes.values())]
    assert kinds == [
        ("large", "b", 3, 4.0),
        ("n10", "n10", 1, 4.0),
        ("large-2", "d", 1, 0.5),
        ("large-2-2", "e", 1, 2.0),
    ]


def described(name: str, state: str, message: str = "", **more: Any) -> DescribedPod:
    return DescribedPod(f"uid-{name}", "shop", name, "s", state, 1.0, 1.0, 1.0, message=message, **more)


def test_pending_pods_are_grouped_by_reason_and_found_by_text() -> None:
    full = "0/5 nodes are available: 3 Insufficient cpu, 2 node(s) had untolerated taint(s). preemption: none."
    pods = [
        described("a", "unschedulable", full, plugins=("NodeResourcesFit",)),
        described("b", "backoff", "0/5 nodes are available: 5 Insufficient cpu."),
        described("c", "gated", gate="SchedulingGates", gate_reason="waiting for x"),
        described("d", "binding", full, node="n1"),
    ]
    pending = PendingPods()
    pending.take({each.uid: each for each in pods}, len(pods))
    assert [(each.text, each.pods, each.nodes) for each in pending.reasons] == [
        ("Insufficient cpu", 2, 5),
        ("node(s) had untolerated taint(s)", 1, 2),
        ("waiting for x", 1, 0),
    ]
    assert [each.name for each in matching(pods, "Insufficient", "")] == ["a", "b", "d"]
    assert [each.name for each in matching(pods, "n1", "binding")] == ["d"]


def process(now: float, cpu: float, *counts: int) -> ProcessStatus:
    lasted = {"scheduler_pod_scheduling_sli_duration_seconds": Distribution((0.1, 1.0), counts, 1.0)}
    values = {"flotilla_rounds_total": 10 * now}
    return ProcessStatus("1", "queue", "queue", 7, "here", "1", 0.0, now, cpu, 64, values=values, distributions=lasted)


def test_figures_of_services_are_of_the_last_minute() -> None:
    services = Services()
    for at, cpu, counts in ((100.0, 5.0, (1000, 0, 0)), (130.0, 8.0, (1000, 10, 0)), (165.0, 15.0, (1000, 110, 0))):
        services.take([process(at, cpu, *counts)], at)
    shown = services.shown
    assert shown["processes"][0]["cpu"] == pytest.approx(10 / 65, abs=1e-3)
    services.take([process(170.0, 15.0), replace(process(170.0, 15.0), service="cycle", name="cycle")], 170.0)
    assert [each["memory"] for each in services.shown["processes"]] == [64, None], "of one process, once"
    (duration,) = shown["durations"]
    assert duration[:2] == ["from the queue to the node", 110] and duration[2][0] == pytest.approx(0.55)
    assert shown["counters"][0] == ["rounds", 1650.0, 10.0]
