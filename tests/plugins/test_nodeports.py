import pytest

from flotilla.results import SKIP, unschedulable
from shared.model.objects import Container, ContainerPort, Pod, PodSpec
from shared.plugins.single_node import NodePorts
from testing.builders import PodBuilder, class_state, node, pod
from tests.plugins.cluster import framework, judge, statuses, table_of

TAKEN = unschedulable("node(s) didn't have free ports for the requested pod ports")


def wants(port: int, protocol: str = "TCP", ip: str = "") -> PodBuilder:
    return pod("wants").host_port(port, protocol, ip)


def has(port: int, protocol: str = "TCP", ip: str = "") -> PodBuilder:
    return pod("has").host_port(port, protocol, ip).on("n")


@pytest.mark.parametrize(
    ("present", "arriving", "clash"),
    [
        (has(80), wants(80), True),
        (has(80), wants(81), False),
        (has(80), wants(80, "UDP"), False),
        (has(80, "UDP"), wants(80, "UDP"), True),
        (has(80, "SCTP"), wants(80), False),
        # A definite address clashes with itself and with all addresses.
        (has(80, ip="10.0.0.1"), wants(80, ip="10.0.0.1"), True),
        (has(80, ip="10.0.0.1"), wants(80, ip="10.0.0.2"), False),
        (has(80, ip="10.0.0.1"), wants(80), True),
        (has(80, ip="10.0.0.1"), wants(80, ip="0.0.0.0"), True),
        (has(80), wants(80, ip="10.0.0.1"), True),
        (has(80, ip="0.0.0.0"), wants(80, ip="10.0.0.1"), True),
        (has(80, ip="10.0.0.1"), wants(80, "UDP"), False),
        # Only 0.0.0.0 stands for all addresses.
        (has(80, ip="::"), wants(80, ip="10.0.0.1"), False),
        (has(80, ip="::"), wants(80, ip="::"), True),
        (has(80, ip="::"), wants(80), True),
        # One of several is enough.
        (has(80).host_port(443), wants(8080).host_port(443), True),
        (has(80).host_port(443), wants(8080).host_port(8443), False),
        (has(0), wants(80), False),
    ],
)
def test_ports_clash(present: PodBuilder, arriving: PodBuilder, clash: bool) -> None:
    table = table_of(node("n"), node("empty"), pods=[present])
    assert statuses(NodePorts(), arriving, table) == ({"n": TAKEN} if clash else {})


@pytest.mark.parametrize(
    ("pod_spec", "skipped"),
    [
        (PodSpec(containers=[Container()]), True),
        (PodSpec(containers=[Container(ports=[ContainerPort(container_port=80)])]), True),
        (PodSpec(containers=[Container(ports=[ContainerPort(host_port=80)])]), False),
        (PodSpec(init_containers=[Container(ports=[ContainerPort(host_port=80)])]), True),
        (PodSpec(init_containers=[Container(restart_policy="Always", ports=[ContainerPort(host_port=80)])]), False),
    ],
)
def test_pods_without_host_ports_are_skipped(pod_spec: PodSpec, skipped: bool) -> None:
    status = NodePorts().pre_filter(class_state(Pod(spec=pod_spec))).status
    assert status.ok is not skipped
    assert status == SKIP or not skipped


def test_a_sidecar_holds_its_ports() -> None:
    sidecar = Container(restart_policy="Always", ports=[ContainerPort(host_port=80)])
    present = Pod(spec=PodSpec(node_name="n", init_containers=[sidecar], containers=[Container()]))
    assert statuses(NodePorts(), wants(80), table_of(node("n"), pods=[present])) == {"n": TAKEN}


def test_ports_come_free_with_their_pod() -> None:
    table = table_of(node("n"), node("m"), pods=[has(80)])
    assert list(statuses(NodePorts(), wants(80), table)) == ["n"]
    table.remove_pod("default/has")
    assert statuses(NodePorts(), wants(80), table) == {}
    table = table_of(node("n"), node("m"), pods=[has(80)])
    assert judge(framework("NodePorts"), wants(80), table).rejected == {"n": TAKEN.by("NodePorts")}
