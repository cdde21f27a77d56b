from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from shared.model.objects import (
    Container,
    ContainerPort,
    ContainerStatus,
    Pod,
    PodCondition,
    PodSpec,
    PodStatus,
    ResourceList,
    ResourceRequirements,
)
from shared.model.quantity import Quantity
from shared.model.resources import (
    MAX_AMOUNT,
    HostPort,
    PlacedRequests,
    allocatable,
    balance_score_request,
    filter_requests,
    fit_score_request,
    host_ports,
    is_extended_resource,
    is_scalar_resource,
    placed_requests,
    pod_requests,
)
from testing.builders import PodBuilder, node, pod, resource_list

MI = 1 << 20
DEFAULTS = resource_list(cpu="100m", memory="200Mi")


def granted(name: str, actual: ResourceList | None, allocated: ResourceList | None = None) -> ContainerStatus:
    resources = None if actual is None else ResourceRequirements(requests=actual)
    return ContainerStatus(name=name, resources=resources, allocated_resources=allocated or {})


@pytest.mark.parametrize(
    ("name", "extended", "scalar"),
    [
        ("example.com/gpu", True, True),
        ("cpu", False, False),
        ("pods", False, False),
        ("gpu", False, False),
        ("hugepages-2Mi", False, True),
        ("kubernetes.io/batch", False, True),
        ("node.kubernetes.io/thing", False, True),
        ("attachable-volumes-csi-x", False, True),
        ("requests.example.com/gpu", False, False),
        ("example.com/", False, False),
        ("/gpu", False, False),
        ("example.com/a/b", False, False),
        ("Example.com/gpu", False, False),
        ("example.com/-gpu", False, False),
        (f"example.com/{'g' * 63}", True, True),
        (f"example.com/{'g' * 64}", False, False),
        (f"{'a' * 244}/gpu", True, True),
        (f"{'a' * 245}/gpu", False, False),
    ],
)
def test_kinds_of_resources(name: str, extended: bool, scalar: bool) -> None:
    assert is_extended_resource(name) is extended
    assert is_scalar_resource(name) is scalar


@pytest.mark.parametrize(
    ("built", "requests"),
    [
        (pod("p"), {}),
        (pod("p").request(cpu="1", memory="1Mi"), {"cpu": 1000, "memory": MI}),
        (pod("p").request(cpu="1").container("b").request(cpu="500m", memory="1"), {"cpu": 1500, "memory": 1}),
        (pod("p").request(cpu="1").overhead(cpu="10m", memory="5"), {"cpu": 1010, "memory": 5}),
        (pod("p").request(cpu="1n", memory="1m"), {"cpu": 1, "memory": 1}),
        (pod("p").request(cpu="0"), {"cpu": 0}),
        (pod("p").request({"example.com/gpu": 2, "unknown": 1, "pods": 1}), {"example.com/gpu": 2}),
        (pod("p").request(ephemeral_storage="1Ki"), {"ephemeral-storage": 1024}),
        (pod("p").request(memory="8Ei", cpu="1E"), {"memory": MAX_AMOUNT, "cpu": MAX_AMOUNT}),
        # An init container counts only as far as it needs more than what runs later.
        (pod("p").request(cpu="1", memory="9").init_container(cpu="3", memory="1"), {"cpu": 3000, "memory": 9}),
        # Sidecars run beside the containers, and beside the init containers that start after them.
        (pod("p").request(cpu="1").init_container(cpu="1", sidecar=True).init_container(cpu="2"), {"cpu": 3000}),
        (pod("p").request(cpu="1").init_container(cpu="2").init_container(cpu="1", sidecar=True), {"cpu": 2000}),
        (pod("p").init_container(cpu="1", sidecar=True).init_container(cpu="2", sidecar=True), {"cpu": 3000}),
        # Pod-level requests replace the sums of what they name, and overhead comes on top.
        (
            pod("p").request(cpu="5", memory="7").pod_request(cpu="2").overhead(cpu="1"),
            {"cpu": 3000, "memory": 7},
        ),
        (pod("p").request(ephemeral_storage="7").pod_request(ephemeral_storage="9"), {"ephemeral-storage": 7}),
        (pod("p").pod_request({"hugepages-2Mi": "4Mi"}), {"hugepages-2Mi": 4 * MI}),
    ],
)
def test_requests_of_a_pod(built: PodBuilder, requests: dict[str, int]) -> None:
    assert filter_requests(built.build()) == requests
    assert placed_requests(built.build()).requests == requests


def resized(
    spec: ResourceList, status: ContainerStatus, reason: str | None = None, *, sidecar: bool | None = None
) -> Pod:
    container = Container(name="a", resources=ResourceRequirements(requests=spec), restart_policy=None)
    conditions = [] if reason is None else [PodCondition(type="PodResizePending", status="True", reason=reason)]
    if sidecar is None:
        return Pod(
            spec=PodSpec(containers=[container]), status=PodStatus(conditions=conditions, container_statuses=[status])
        )
    container = Container(name="a", resources=container.resources, restart_policy="Always" if sidecar else None)
    return Pod(
        spec=PodSpec(init_containers=[container]),
        status=PodStatus(conditions=conditions, init_container_statuses=[status]),
    )


@pytest.mark.parametrize(
    ("built", "cpu"),
    [
        (resized(resource_list(cpu="1"), granted("a", resource_list(cpu="2"))), 2000),
        (resized(resource_list(cpu="3"), granted("a", resource_list(cpu="2"))), 3000),
        (resized(resource_list(cpu="1"), granted("a", resource_list(cpu="2"), resource_list(cpu="4"))), 4000),
        (resized(resource_list(cpu="1"), granted("a", None, resource_list(cpu="4"))), 1000),
        (resized(resource_list(cpu="1"), granted("b", resource_list(cpu="2"))), 1000),
        (resized(resource_list(cpu="9"), granted("a", resource_list(cpu="2")), "Infeasible"), 2000),
        (resized(resource_list(cpu="9"), granted("a", resource_list(cpu="2")), "Deferred"), 9000),
        (resized(resource_list(cpu="1"), granted("a", resource_list(cpu="2")), sidecar=True), 2000),
        (resized(resource_list(cpu="1"), granted("a", resource_list(cpu="2")), sidecar=False), 1000),
    ],
)
def test_a_resized_container_counts_with_what_it_has(built: Pod, cpu: int) -> None:
    spec = (built.spec.containers or built.spec.init_containers)[0].resources.requests
    assert placed_requests(built).requests == {"cpu": cpu}
    assert placed_requests(built).non_zero_cpu == cpu
    assert balance_score_request(built, "cpu") == cpu
    assert fit_score_request(built, "cpu") == spec["cpu"].milli
    assert filter_requests(built) == {"cpu": spec["cpu"].milli}


def test_only_the_first_pending_resize_decides() -> None:
    built = resized(resource_list(cpu="9"), granted("a", resource_list(cpu="2")), "Deferred")
    built.status.conditions.append(PodCondition(type="PodResizePending", reason="Infeasible"))
    assert placed_requests(built).requests == {"cpu": 9000}


@pytest.mark.parametrize(
    ("actual", "allocated", "reason", "cpu"),
    [
        ({"cpu": "1"}, {}, "", 2000),
        ({"cpu": "3"}, {}, "", 3000),
        ({"cpu": "1"}, {"cpu": "4"}, "", 4000),
        ({"cpu": "1"}, {}, "Infeasible", 1000),
        ({}, {}, "Infeasible", 0),
    ],
)
def test_a_resized_pod_counts_with_what_it_has(
    actual: dict[str, str], allocated: dict[str, str], reason: str, cpu: int
) -> None:
    status = PodStatus(
        resources=ResourceRequirements(requests=resource_list(actual)),
        allocated_resources=resource_list(allocated),
        conditions=[PodCondition(type="PodResizePending", reason=reason)],
    )
    built = pod("p").pod_request(cpu="2").with_status(status).build()
    assert placed_requests(built).requests == {"cpu": cpu}
    assert filter_requests(built) == {"cpu": 2000}


@pytest.mark.parametrize(
    ("built", "cpu", "memory"),
    [
        (pod("p"), 100, 200 * MI),
        (pod("p").request(cpu="1"), 1000, 200 * MI),
        (pod("p").request(cpu="0", memory="0"), 0, 0),
        (pod("p").request(cpu="1").container("b").request(memory="1"), 1100, 200 * MI + 1),
        (pod("p").overhead(cpu="1"), 1100, 200 * MI),
        (pod("p").init_container(memory="300Mi"), 100, 300 * MI),
        (pod("p").init_container(sidecar=True), 200, 400 * MI),
    ],
)
def test_containers_that_request_nothing_count_with_a_default(built: PodBuilder, cpu: int, memory: int) -> None:
    taken = placed_requests(built.build())
    assert (taken.non_zero_cpu, taken.non_zero_memory) == (cpu, memory)
    assert fit_score_request(built.build(), "cpu") == cpu
    assert fit_score_request(built.build(), "memory") == memory


def test_defaults_beside_pod_level_requests() -> None:
    built = pod("p").request(memory="5").container("b").pod_request(cpu="1").build()
    assert placed_requests(built) == PlacedRequests({"cpu": 1000, "memory": 5}, 1000, 5)
    only_cpu = pod("p").container("b").pod_request(cpu="1").build()
    assert placed_requests(only_cpu) == PlacedRequests({"cpu": 1000}, 1000, 200 * MI)
    both = pod("p").pod_request(cpu="1", memory="7").build()
    assert placed_requests(both) == PlacedRequests({"cpu": 1000, "memory": 7}, 1000, 7)


def test_the_fit_score_ignores_pod_level_requests() -> None:
    built = pod("p").request(cpu="2", memory="5").container("b").pod_request(cpu="7", memory="9").overhead(cpu="1")
    assert fit_score_request(built.build(), "cpu") == 2000 + 100 + 1000
    assert fit_score_request(built.build(), "memory") == 5 + 200 * MI
    assert balance_score_request(built.build(), "cpu") == 7000 + 1000
    assert balance_score_request(built.build(), "memory") == 9


def test_the_balance_score_counts_what_a_resized_pod_has() -> None:
    status = PodStatus(resources=ResourceRequirements(requests=resource_list(cpu="3")))
    built = pod("p").request(cpu="1").pod_request(cpu="2").with_status(status).build()
    assert balance_score_request(built, "cpu") == 3000
    assert fit_score_request(built, "cpu") == 1000


def test_scoring_of_other_resources() -> None:
    built = pod("p").request({"example.com/gpu": 2}, ephemeral_storage="1k").build()
    for request in (fit_score_request, balance_score_request):
        assert request(built, "example.com/gpu") == 2
        assert request(built, "ephemeral-storage") == 1000
        assert request(built, "example.com/fpga") == 0
    assert balance_score_request(built, "cpu") == 0


def test_allocatable() -> None:
    built = node("n").capacity({"example.com/gpu": 4, "unknown": 7}, cpu="3900m", memory="32Gi", pods=50).build()
    assert allocatable(built) == {"cpu": 3900, "memory": 32 << 30, "pods": 50, "example.com/gpu": 4}
    assert allocatable(node("n").capacity(memory="1E", pods="1E").build()) == {"memory": MAX_AMOUNT, "pods": MAX_AMOUNT}


def test_host_ports() -> None:
    built = (
        pod("p").container("a").host_port(80).host_port(53, "UDP", "10.0.0.1").container("b").host_port(81, "").build()
    )
    plain = Container(name="i", ports=[ContainerPort(host_port=1)])
    sidecar = Container(
        name="s", ports=[ContainerPort(host_port=2), ContainerPort(container_port=3)], restart_policy="Always"
    )
    built.spec.init_containers.extend([plain, sidecar])
    assert host_ports(built) == (
        HostPort("0.0.0.0", "TCP", 2),
        HostPort("0.0.0.0", "TCP", 80),
        HostPort("10.0.0.1", "UDP", 53),
        HostPort("0.0.0.0", "TCP", 81),
    )
    assert len({*host_ports(built), *host_ports(built)}) == 4
    assert host_ports(pod("p").build()) == ()


NAMES = st.sampled_from(["cpu", "memory", "hugepages-2Mi", "example.com/gpu"])
AMOUNTS = st.dictionaries(NAMES, st.integers(0, 5 * 10**9).map(Quantity), max_size=3)


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    def containers(prefix: str, size: int, policies: list[str | None]) -> list[Container]:
        return [
            Container(
                name=f"{prefix}{index}",
                resources=ResourceRequirements(requests=draw(AMOUNTS)),
                restart_policy=draw(st.sampled_from(policies)),
            )
            for index in range(draw(st.integers(0, size)))
        ]

    def statuses(of: list[Container]) -> list[ContainerStatus]:
        return [
            granted(container.name, draw(st.none() | AMOUNTS), draw(AMOUNTS)) for container in of if draw(st.booleans())
        ]

    main, init = containers("c", 3, [None]), containers("i", 3, [None, "Always"])
    return Pod(
        spec=PodSpec(
            containers=main,
            init_containers=init,
            overhead=draw(AMOUNTS),
            resources=draw(st.none() | AMOUNTS.map(lambda amounts: ResourceRequirements(requests=amounts))),
        ),
        status=PodStatus(
            container_statuses=statuses(main),
            init_container_statuses=statuses(init),
            conditions=[
                PodCondition(type="PodResizePending", reason=draw(st.sampled_from(["Infeasible", "Deferred"])))
            ],
            resources=draw(st.none() | AMOUNTS.map(lambda amounts: ResourceRequirements(requests=amounts))),
            allocated_resources=draw(AMOUNTS),
        ),
    )


def reference(built: Pod, name: str, use_status: bool, default: int | None) -> int | None:
    """One resource at a time, moment by moment of the pod's life. None if nothing mentions the resource."""
    status = {s.name: s for s in (*built.status.container_statuses, *built.status.init_container_statuses)}
    infeasible = built.status.conditions[0].reason == "Infeasible"

    def most(*amounts: int | None) -> int | None:
        return max((amount for amount in amounts if amount is not None), default=None)

    def total(amounts: list[int | None]) -> int | None:
        known = [amount for amount in amounts if amount is not None]
        return sum(known) if known else None

    def current(wish: Mapping[str, int], actual: Mapping[str, int], allocated: Mapping[str, int]) -> int | None:
        return most(None if infeasible else wish.get(name), actual.get(name), allocated.get(name))

    def of(container: Container, resizable: bool) -> int | None:
        amount: int | None = container.resources.requests.get(name)
        found = status.get(container.name) if use_status and resizable else None
        if found is not None and found.resources is not None:
            amount = current(container.resources.requests, found.resources.requests, found.allocated_resources)
        return default if amount is None else amount

    init = built.spec.init_containers
    sidecars = [of(c, True) if c.restartable else None for c in init]
    moments = [total([*(of(c, True) for c in built.spec.containers), *sidecars])]
    for index, container in enumerate(init):
        moments.append(total([*sidecars[:index], of(container, container.restartable)]))
    amount = most(*moments)
    level = built.spec.resources
    if level is not None and name in level.requests and name != "example.com/gpu":
        amount = level.requests[name]
        if use_status and built.status.resources is not None:
            actual, allocated = built.status.resources.requests, built.status.allocated_resources
            amount = current(level.requests, actual, allocated) or 0
    return total([amount, built.spec.overhead.get(name)])


def up(amount: int | None, name: str) -> int:
    quantity = Quantity(amount or 0)
    return quantity.milli if name == "cpu" else quantity.value


@settings(max_examples=300, deadline=None)
@given(pods(), st.booleans())
def test_requests_agree_with_the_reference(built: Pod, use_status: bool) -> None:
    totals = pod_requests(built, use_status=use_status)
    for name in ("cpu", "memory", "hugepages-2Mi", "example.com/gpu"):
        expected = reference(built, name, use_status, None)
        assert totals.get(name) == expected
    assert all(isinstance(amount, Quantity) for amount in totals.values())


@settings(max_examples=200, deadline=None)
@given(pods())
def test_the_scheduler_numbers_agree_with_the_reference(built: Pod) -> None:
    taken = placed_requests(built)
    level = built.spec.resources.requests if built.spec.resources else {}
    level_set = any(name != "example.com/gpu" for name in level)
    non_zero = {"cpu": taken.non_zero_cpu, "memory": taken.non_zero_memory}
    for name in ("cpu", "memory", "hugepages-2Mi", "example.com/gpu"):
        asked, held = reference(built, name, False, None), reference(built, name, True, None)
        assert filter_requests(built).get(name) == (None if asked is None else up(asked, name))
        assert taken.requests.get(name) == (None if held is None else up(held, name))
        assert balance_score_request(built, name) == up(held, name)
        containers_only = replace(built, spec=replace(built.spec, resources=None))
        assert fit_score_request(built, name) == up(reference(containers_only, name, False, DEFAULTS.get(name)), name)
        defaulted = reference(built, name, True, DEFAULTS.get(name))
        if name in non_zero:
            assert non_zero[name] == up(held if level_set and held is not None else defaulted, name)
