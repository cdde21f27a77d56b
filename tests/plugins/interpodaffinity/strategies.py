"""Random clusters of few nodes, domains and kinds of pods, so that rules meet."""

from hypothesis import strategies as st

from shared.model.objects import (
    Affinity,
    LabelSelector,
    LabelSelectorRequirement,
    Node,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    WeightedPodAffinityTerm,
)
from testing.builders import node, pod
from tests.plugins.interpodaffinity.scalar import Cluster

HOSTNAME = "kubernetes.io/hostname"
KEYS = st.sampled_from(["zone", "rack", HOSTNAME])
NAMESPACES = st.sampled_from(["default", "default", "default", "prod", "unknown"])
LABELS = st.fixed_dictionaries({"app": st.sampled_from("aab")}, optional={"tier": st.sampled_from("xy")})
SELECTORS = st.sampled_from(
    [
        None,
        LabelSelector(),
        LabelSelector(match_labels={"app": "a"}),
        LabelSelector(match_labels={"app": "a"}),
        LabelSelector(match_labels={"app": "a"}),
        LabelSelector(match_labels={"app": "a"}),
        LabelSelector(match_labels={"app": "b"}),
        LabelSelector(match_labels={"app": "b", "tier": "x"}),
        LabelSelector(match_expressions=[LabelSelectorRequirement(key="tier", operator="DoesNotExist")]),
        LabelSelector(match_expressions=[LabelSelectorRequirement(key="app", operator="In", values=["a", "b"])]),
    ]
)
NAMESPACE_SELECTORS = st.sampled_from(
    [
        None,
        None,
        None,
        None,
        LabelSelector(),
        LabelSelector(match_labels={"env": "prod"}),
        LabelSelector(match_expressions=[LabelSelectorRequirement(key="env", operator="DoesNotExist")]),
    ]
)
TERMS = st.builds(
    lambda key, labels, names, selected: PodAffinityTerm(
        topology_key=key, label_selector=labels, namespaces=names, namespace_selector=selected
    ),
    KEYS,
    SELECTORS,
    st.just([]) | st.lists(NAMESPACES, max_size=2),
    NAMESPACE_SELECTORS,
)
Piece = tuple[str, PodAffinityTerm, int]
PIECES = st.tuples(st.sampled_from(["near", "near", "far"]), TERMS, st.sampled_from([0, 0, 10, 100]))
"""A rule: near to or far from whom, and the weight, 0 for a must."""


def _affinity(pieces: list[Piece]) -> Affinity:
    def rules(side: str) -> PodAffinity:
        return PodAffinity(
            required=[term for where, term, weight in pieces if where == side and not weight],
            preferred=[
                WeightedPodAffinityTerm(weight=weight, pod_affinity_term=term)
                for where, term, weight in pieces
                if where == side and weight
            ],
        )

    return Affinity(pod_affinity=rules("near"), pod_anti_affinity=rules("far"))


def _and_its_contrary(piece: Piece) -> list[Piece]:
    side, term, weight = piece
    return [piece, ("far" if side == "near" else "near", term, weight)]


AFFINITIES = st.lists(PIECES, max_size=2) | st.lists(PIECES, min_size=1, max_size=3) | PIECES.map(_and_its_contrary)


@st.composite
def pods(draw: st.DrawFn, name: str) -> Pod:
    built = pod(name, draw(NAMESPACES)).label(draw(LABELS))
    return built.affinity(_affinity(draw(AFFINITIES))).build()


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Node:
    labels = draw(st.fixed_dictionaries({"zone": st.sampled_from("123")}, optional={"rack": st.sampled_from("pq")}))
    labels = labels if draw(st.integers(0, 5)) else {}
    hostname = draw(st.sampled_from([name, name, name, name, "shared", None]))
    return node(name).label(labels | ({} if hostname is None else {HOSTNAME: hostname})).build()


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    count = draw(st.integers(2, 6))
    there = tuple(
        tuple(draw(pods(f"on-{i}-{j}")) for j in range(draw(st.sampled_from([0, 0, 1, 2])))) for i in range(count)
    )
    namespaces = {"default": draw(ENVIRONMENTS), "prod": {"env": "prod"}, "empty": draw(ENVIRONMENTS)}
    return Cluster(tuple(draw(nodes(f"n{i}")) for i in range(count)), there, namespaces)


ENVIRONMENTS = st.sampled_from([{}, {"env": "dev"}, {"env": "prod"}])
ARRIVING = st.integers(1, 3).flatmap(lambda count: st.tuples(*(pods(f"arriving-{i}") for i in range(count))))
