"""No two pods on a node use the same host port."""

import pytest

from testing.auditor.violations import Invariant
from testing.builders import PodBuilder, pod
from tests.auditor.support import LAG, Audit, entry, invariants, small

CASES = [
    ((80, "TCP", ""), (80, "TCP", ""), True),
    ((80, "TCP", ""), (81, "TCP", ""), False),
    ((80, "TCP", ""), (80, "UDP", ""), False),
    ((80, "TCP", "0.0.0.0"), (80, "TCP", "10.0.0.1"), True),
    ((80, "TCP", "10.0.0.1"), (80, "TCP", ""), True),
    ((80, "TCP", "10.0.0.1"), (80, "TCP", "10.0.0.2"), False),
    ((80, "TCP", "10.0.0.1"), (80, "TCP", "10.0.0.1"), True),
]


def serving(name: str, port: int = 80, protocol: str = "TCP", ip: str = "") -> PodBuilder:
    return pod(name).host_port(port, protocol, ip)


@pytest.mark.parametrize(("one", "other", "clash"), CASES)
def test_ports_clash_unless_protocol_number_or_definite_addresses_differ(
    one: tuple[int, str, str], other: tuple[int, str, str], clash: bool
) -> None:
    audit = Audit(small("a"))
    audit.bind(serving("p", *one), "a")
    audit.bind(serving("q", *other), "a")
    assert invariants(audit.settle()) == [Invariant.HOST_PORTS] * clash


def test_a_port_clash_names_the_other_pod() -> None:
    audit = Audit(small("a"))
    audit.bind(serving("p"), "a")
    (violation,) = audit.bind(serving("q"), "a")
    assert (violation.pod, violation.node) == ("default/q", "a")
    assert violation.what == "TCP port 80 on 0.0.0.0 is taken by pod default/p"


def test_the_same_port_on_another_node_is_free() -> None:
    audit = Audit(small("a"), small("b"))
    audit.bind(serving("p"), "a")
    audit.bind(serving("q"), "b")
    assert audit.settle() == []


def test_a_port_is_free_again_when_its_pod_has_finished() -> None:
    audit = Audit(small("a"))
    audit.bind(serving("p"), "a")
    audit.see(serving("p").on("a").phase("Succeeded"))
    audit.bind(serving("q"), "a")
    assert audit.settle() == []


def test_a_pod_does_not_clash_with_itself() -> None:
    audit = Audit(small("a"))
    audit.bind(serving("p").host_port(80, "TCP", "10.0.0.1"), "a")
    audit.lose(serving("p"))
    audit.bind(serving("q"), "a")
    assert audit.settle() == []


def test_a_container_port_is_not_a_host_port() -> None:
    audit = Audit(small("a"))
    audit.bind(serving("p", 0), "a")
    audit.bind(serving("q", 0), "a")
    assert audit.settle() == []


def test_a_decision_may_miss_a_port_that_someone_else_just_took() -> None:
    audit = Audit(small("a"))
    audit.see(serving("p"))
    audit.see(serving("foreign").on("a"))
    audit.see(serving("p").on("a"))
    assert audit.settle() == []


def test_assumed_pods_clash_with_bound_ones_and_with_each_other() -> None:
    audit = Audit(small("a"), small("b"))
    audit.bind(serving("p"), "a")
    audit.see(serving("q"), serving("r"), serving("s"))
    entries = (entry(serving("q"), "a"), entry(serving("r"), "b"), entry(serving("s"), "b"))
    assert audit.ledger(*entries) == []
    audit.wait(LAG)
    found = audit.ledger(*entries)
    assert [(v.invariant, v.pod) for v in found] == [
        (Invariant.HOST_PORTS, "default/q"),
        (Invariant.HOST_PORTS, "default/s"),
    ]
