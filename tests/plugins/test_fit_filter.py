"""NodeResourcesFit as a filter."""

import pytest

from flotilla.results import Status, unresolvable, unschedulable
from shared.config.args import NodeResourcesFitArgs
from shared.errors import InvalidObject
from shared.plugins.noderesources import MAX_SCALARS, NodeResourcesFit
from testing.builders import NodeBuilder, PodBuilder, class_state, node, pod
from tests.plugins.cluster import framework, judge, statuses, table_of

GPU, FPGA, HUGE = "example.com/gpu", "example.com/fpga", "hugepages-2Mi"
FIT = NodeResourcesFit(NodeResourcesFitArgs())


def capacity() -> NodeBuilder:
    return node("n").capacity({"cpu": "4", "memory": "8Gi", "ephemeral-storage": "100Gi", GPU: 2, HUGE: "1Gi"})


def holds(**amounts: str | int) -> PodBuilder:
    return pod("there").request(amounts).on("n")


def status_of(arriving: PodBuilder, *there: PodBuilder, on: NodeBuilder | None = None) -> Status | None:
    return statuses(FIT, arriving, table_of(on or capacity(), pods=there)).get("n")


@pytest.mark.parametrize(
    ("arriving", "there", "expected"),
    [
        (pod("p"), [], None),
        (pod("p").request(cpu="4", memory="8Gi", ephemeral_storage="100Gi"), [], None),
        (pod("p").request(cpu="1"), [holds(cpu="3")], None),
        # Short now, but not if pods went: another node, or preemption, may help.
        (pod("p").request(cpu="1001m"), [holds(cpu="3")], unschedulable("Insufficient cpu")),
        (pod("p").request(memory="1"), [holds(memory="8Gi")], unschedulable("Insufficient memory")),
        (
            pod("p").request(ephemeral_storage="1Gi"),
            [holds(**{"ephemeral-storage": "100Gi"})],
            unschedulable("Insufficient ephemeral-storage"),
        ),
        (pod("p").request({GPU: 1}), [holds(**{GPU: 2})], unschedulable(f"Insufficient {GPU}")),
        (pod("p").request({HUGE: "2Mi"}), [holds(**{HUGE: "1Gi"})], unschedulable(f"Insufficient {HUGE}")),
        # More than the node has at all.
        (pod("p").request(cpu="4001m"), [], unresolvable("Insufficient cpu")),
        (pod("p").request(memory="9Gi"), [], unresolvable("Insufficient memory")),
        (pod("p").request(ephemeral_storage="101Gi"), [], unresolvable("Insufficient ephemeral-storage")),
        (pod("p").request({GPU: 3}), [], unresolvable(f"Insufficient {GPU}")),
        (pod("p").request({HUGE: "2Gi"}), [], unresolvable(f"Insufficient {HUGE}")),
        (pod("p").request({FPGA: 1}), [], unresolvable(f"Insufficient {FPGA}")),
        # One that cannot be helped is enough.
        (
            pod("p").request(cpu="5", memory="1"),
            [holds(memory="8Gi")],
            unresolvable("Insufficient cpu", "Insufficient memory"),
        ),
        # Requests of nothing are always met, even by an overfull node.
        (pod("p").request({"cpu": 0, "memory": 0, GPU: 0, FPGA: 0}), [holds(cpu="5")], None),
        (pod("p").request(memory="1Gi"), [holds(cpu="5", memory="1Gi")], None),
        # Init containers, sidecars and overhead count as Kubernetes counts them.
        (pod("p").request(cpu="1").init_container(cpu="5"), [], unresolvable("Insufficient cpu")),
        (pod("p").request(cpu="3").init_container(cpu="2", sidecar=True), [], unresolvable("Insufficient cpu")),
        (pod("p").request(cpu="3").init_container(cpu="4"), [], None),
        (pod("p").request(cpu="4").overhead(cpu="1m"), [], unresolvable("Insufficient cpu")),
        # Resources that the scheduler does not count.
        (pod("p").request(storage="1Ti"), [], None),
    ],
)
def test_what_is_short(arriving: PodBuilder, there: list[PodBuilder], expected: Status | None) -> None:
    assert status_of(arriving, *there) == expected


def test_reasons_come_in_order() -> None:
    arriving = pod("p").request({HUGE: "2Mi", GPU: 1, "memory": 1, "ephemeral-storage": 1, FPGA: 1, "cpu": "1m"})
    tiny = node("n").capacity({"pods": 0, "cpu": 0})
    basic = ("Too many pods", "Insufficient cpu", "Insufficient memory", "Insufficient ephemeral-storage")
    others = (f"Insufficient {FPGA}", f"Insufficient {GPU}", f"Insufficient {HUGE}")
    assert status_of(arriving, on=tiny) == unresolvable(*basic, *others)


@pytest.mark.parametrize(("pods", "there", "fits"), [(0, 0, False), (1, 0, True), (1, 1, False), (2, 1, True)])
def test_the_number_of_pods_is_limited(pods: int, there: int, fits: bool) -> None:
    placed = [pod(f"there-{i}").on("n") for i in range(there)]
    expected = None if fits else unschedulable("Too many pods")
    assert status_of(pod("p"), *placed, on=capacity().capacity(pods=pods)) == expected


def test_more_pods_than_allowed_may_be_there() -> None:
    placed = [pod(f"there-{i}").request(cpu="3").on("n") for i in range(3)]
    expected = unschedulable("Too many pods", "Insufficient cpu")
    assert status_of(pod("p").request(cpu="1"), *placed, on=capacity().capacity(pods=2)) == expected


@pytest.mark.parametrize(
    ("ignored", "groups", "expected"),
    [
        ((), (), unresolvable(f"Insufficient {FPGA}", "Insufficient other.io/x")),
        ((FPGA,), (), unresolvable("Insufficient other.io/x")),
        ((FPGA, "other.io/x"), (), None),
        ((), ("example.com",), unresolvable("Insufficient other.io/x")),
        ((), ("example.com", "other.io"), None),
        ((), ("example",), unresolvable(f"Insufficient {FPGA}", "Insufficient other.io/x")),
    ],
)
def test_extended_resources_may_be_left_to_others(
    ignored: tuple[str, ...], groups: tuple[str, ...], expected: Status | None
) -> None:
    plugin = NodeResourcesFit(NodeResourcesFitArgs(ignored_resources=ignored, ignored_resource_groups=groups))
    arriving = pod("p").request({FPGA: 1, "other.io/x": 1})
    assert statuses(plugin, arriving, table_of(capacity())) == ({} if expected is None else {"n": expected})


def test_only_extended_resources_can_be_ignored() -> None:
    plugin = NodeResourcesFit(NodeResourcesFitArgs(ignored_resources=("cpu", HUGE), ignored_resource_groups=(HUGE,)))
    arriving = pod("p").request({"cpu": "5", HUGE: "2Gi"})
    expected = {"n": unresolvable("Insufficient cpu", f"Insufficient {HUGE}")}
    assert statuses(plugin, arriving, table_of(capacity())) == expected


def test_many_extended_resources() -> None:
    names = [f"example.com/r{i:02}" for i in range(MAX_SCALARS)]
    arriving = pod("p").request(dict.fromkeys(names, 2))
    has = dict.fromkeys(names[:-1:2], 2) | {names[-1]: 1}
    short = [name for name in names if has.get(name, 0) < 2]
    assert status_of(arriving, on=node("n").capacity(has)) == unresolvable(*(f"Insufficient {name}" for name in short))
    with pytest.raises(InvalidObject, match=r"Pod default/p: spec\.containers: .*more than 50"):
        FIT.pre_filter(class_state(arriving.request({"example.com/more": 1}).build()))


def test_within_a_profile() -> None:
    table = table_of(capacity(), node("m").capacity(cpu="1"), node("k").capacity(cpu="2", pods=0))
    explained = judge(framework("NodeResourcesFit"), pod("p").request(cpu="2"), table)
    assert list(explained.scores) == ["n"]
    assert explained.rejected == {
        "m": unresolvable("Insufficient cpu").by("NodeResourcesFit"),
        "k": unschedulable("Too many pods").by("NodeResourcesFit"),
    }
