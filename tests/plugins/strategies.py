"""Random nodes, with odd capacities too, and random pods that have something to do with them."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import msgspec
from hypothesis import strategies as st

from shared.model.objects import ImageSource, Node, NodeSelectorTerm, Pod, PodSpec, Toleration, Volume
from testing.builders import NodeBuilder, PodBuilder, expr, node, pod
from tests.plugins.scalar import Host

T = TypeVar("T")
B = TypeVar("B", NodeBuilder, PodBuilder)

GPU, HUGE_PAGES = "example.com/gpu", "hugepages-2Mi"
IMAGES = {"web": 20, "db": 400, "registry:5000/model": 3000}
MAX_NODES = 5

Amounts = st.SearchStrategy[dict[str, str | int]]


def _amounts(cpu: list[str], others: list[str], most_milli: int, most_mib: int) -> Amounts:
    """Amounts by resource: mostly plain ones, some of them missing; now and then each is one of the odd ones."""
    few, mib = st.integers(0, 4), st.integers(0, most_mib).map(lambda amount: f"{amount}Mi")
    extended: dict[str, st.SearchStrategy[str | int]] = {GPU: few, HUGE_PAGES: mib, "other.io/x": few}
    milli = st.integers(0, most_milli).map(lambda amount: f"{amount}m")
    plain: Amounts = st.fixed_dictionaries({"cpu": milli, "memory": mib}, optional={"ephemeral-storage": mib, GPU: few})
    odd_bytes = st.sampled_from(others)
    odd: Amounts = st.fixed_dictionaries(
        {},
        optional={"cpu": st.sampled_from(cpu), "memory": odd_bytes, "ephemeral-storage": odd_bytes, **extended},
    )
    return st.integers(0, 4).flatmap(lambda which: odd if which == 4 else plain)


CAPACITIES = _amounts(["0", "1m", "1e15"], ["0", "1", "7Ei"], 4000, 3000)
REQUESTS = _amounts(["0", "1m", "333m", "1e15"], ["0", "1", "100Mi", "7Ei"], 700, 500)

KEYS = st.sampled_from(["zone", "cores"])
VALUES = st.sampled_from(["a", "b", "", "-4", "7", "+8", "9223372036854775807", "9223372036854775808"])
REQUIREMENTS = st.one_of(
    st.builds(
        lambda key, op, values: expr(key, op, *values),
        KEYS,
        st.sampled_from(["In", "NotIn"]),
        st.lists(VALUES, min_size=1, max_size=3),
    ),
    st.builds(expr, KEYS, st.sampled_from(["Exists", "DoesNotExist"])),
    st.builds(expr, KEYS, st.sampled_from(["Gt", "Lt"]), VALUES),
)
NAMES = st.sampled_from([f"n{i}" for i in range(MAX_NODES + 1)])
FIELDS = st.builds(expr, st.just("metadata.name"), st.sampled_from(["In", "NotIn"]), NAMES)
TERMS = st.builds(
    lambda labels, fields: NodeSelectorTerm(match_expressions=labels, match_fields=fields),
    st.lists(REQUIREMENTS, max_size=2),
    st.lists(FIELDS, max_size=2),
)
EFFECTS: tuple[str, ...] = ("NoSchedule", "PreferNoSchedule", "NoExecute")
TAINTS = st.tuples(
    st.sampled_from(["k", "l", "node.kubernetes.io/unschedulable"]),
    st.sampled_from(["", "1"]),
    st.sampled_from(EFFECTS),
)
TOLERATIONS = st.builds(
    lambda taint, any_effect, exists: Toleration(
        key=taint[0],
        operator="Exists" if exists else "Equal",
        value="" if exists else taint[1],
        effect="" if any_effect else taint[2],
    ),
    TAINTS,
    st.booleans(),
    st.booleans(),
)
PORTS = st.tuples(
    st.sampled_from([80, 443]), st.sampled_from(["TCP", "UDP"]), st.sampled_from(["", "0.0.0.0", "::", "10.0.0.1"])
)


def _each(built: B, items: list[T], add: Callable[[B, T], B]) -> B:
    for item in items:
        built = add(built, item)
    return built


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Node:
    built = node(name).capacity(draw(CAPACITIES)).capacity(pods=draw(st.sampled_from([110, 3, 2, 110, 0])))
    built = built.label(draw(st.dictionaries(KEYS, VALUES, max_size=2)))
    built = _each(built, draw(st.lists(TAINTS, max_size=2)), lambda b, taint: b.taint(*taint))
    images = draw(st.sets(st.sampled_from(sorted(IMAGES))))
    built = _each(built, sorted(images), lambda b, image: b.image(f"{image}:latest", IMAGES[image] * 2**20))
    return (built.unschedulable() if draw(st.booleans()) else built).build()


@st.composite
def pods(draw: st.DrawFn, name: str) -> Pod:
    built = pod(name)
    for container in draw(st.lists(REQUESTS, min_size=1, max_size=2)):
        built = built.container(image=draw(st.sampled_from(["", *IMAGES]))).request(container)
    for container in draw(st.lists(REQUESTS, max_size=1)):
        built = built.init_container(container, image=draw(st.sampled_from(["", *IMAGES])), sidecar=draw(st.booleans()))
    built = _each(built, draw(st.lists(PORTS, max_size=2)), lambda b, port: b.host_port(*port))
    if draw(st.booleans()):
        built = built.volume(Volume(name="v", image=ImageSource(reference="registry:5000/model")))
    if draw(st.integers(0, 3)) == 0:
        built = built.on(draw(NAMES))
    built = built.node_selector(draw(st.just({}) | st.dictionaries(KEYS, VALUES, max_size=1)))
    built = _each(built, draw(st.lists(TERMS, max_size=2)), lambda b, term: b.require_node(term))
    wishes = draw(st.lists(st.tuples(st.sampled_from([1, 7, 100]), TERMS), max_size=2))
    built = _each(built, wishes, lambda b, wish: b.prefer_node(*wish))
    tolerations = draw(st.lists(TOLERATIONS | st.just(Toleration(operator="Exists")), max_size=2))
    return replace(built, spec=_tolerating(built, tolerations)).build()


def _tolerating(built: PodBuilder, tolerations: list[Toleration]) -> PodSpec:
    return msgspec.structs.replace(built.spec, tolerations=tolerations)


@st.composite
def clusters(draw: st.DrawFn) -> list[Host]:
    """Nodes n0, n1 ..., each with some pods on it."""
    hosts: list[Host] = []
    for i in range(draw(st.integers(3, MAX_NODES))):
        there = [draw(pods(f"on-{i}-{j}")) for j in range(draw(st.integers(0, 2)))]
        hosts.append(Host(draw(nodes(f"n{i}")), tuple(there)))
    return hosts


ARRIVING = st.integers(1, 3).flatmap(lambda count: st.tuples(*(pods(f"arriving-{i}") for i in range(count))))
