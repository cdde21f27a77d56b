import pytest

from flotilla.results import SKIP, SUCCESS, Code, unresolvable
from shared.cluster.view import TableView
from shared.config.args import NodeAffinityArgs
from shared.model.objects import NodeAffinity as NodeAffinitySpec
from shared.model.objects import NodeSelector, NodeSelectorTerm, PreferredSchedulingTerm
from shared.plugins.nodeaffinity import NodeAffinity
from testing.builders import PodBuilder, class_state, expr, node, pod, term
from tests.plugins.cluster import framework, judge, rejected, scores, statuses, table_of

PLAIN = NodeAffinity(NodeAffinityArgs())
NOT_PODS = unresolvable("node(s) didn't match Pod's node affinity/selector")
NOT_ENFORCED = unresolvable("node(s) didn't match scheduler-enforced node affinity")

TABLE = table_of(
    node("a").label(zone="east", cores="8", disk="ssd"),
    node("b").label(zone="west", cores="16"),
    node("c").label(zone="west", cores="many", disk="hdd"),
    node("d").label(zone="", cores="-4"),
    node("e"),
)


def added(*terms: NodeSelectorTerm, prefer: tuple[tuple[int, NodeSelectorTerm], ...] = ()) -> NodeAffinity:
    """The plugin with an addedAffinity."""
    return NodeAffinity(
        NodeAffinityArgs(
            NodeAffinitySpec(
                required=NodeSelector(node_selector_terms=list(terms)) if terms else None,
                preferred=[PreferredSchedulingTerm(weight=weight, preference=wish) for weight, wish in prefer],
            )
        )
    )


def by_name(name: str, *more: str, operator: str = "In") -> NodeSelectorTerm:
    fields = [expr("metadata.name", "NotIn" if operator == "NotIn" else "In", value) for value in (name, *more)]
    return NodeSelectorTerm(match_fields=fields)


def fitting(plugin: NodeAffinity, arriving: PodBuilder) -> str:
    """The names of the nodes that fit, run together."""
    rejected = statuses(plugin, arriving, TABLE)
    return "".join(name for name in TABLE.names if name not in rejected)


@pytest.mark.parametrize(
    ("arriving", "nodes"),
    [
        # nodeSelector
        (pod("p"), "abcde"),
        (pod("p").node_selector(zone="west"), "bc"),
        (pod("p").node_selector(zone="west", disk="hdd"), "c"),
        (pod("p").node_selector(zone=""), "d"),
        (pod("p").node_selector(zone="north"), ""),
        (pod("p").node_selector(rack="1"), ""),
        # one operator each
        (pod("p").require_node(expr("zone", "In", "east", "north")), "a"),
        (pod("p").require_node(expr("zone", "In", "")), "d"),
        (pod("p").require_node(expr("zone", "NotIn", "west")), "ade"),
        (pod("p").require_node(expr("zone", "NotIn", "north")), "abcde"),
        (pod("p").require_node(expr("disk", "Exists")), "ac"),
        (pod("p").require_node(expr("disk", "DoesNotExist")), "bde"),
        (pod("p").require_node(expr("rack", "DoesNotExist")), "abcde"),
        (pod("p").require_node(expr("cores", "Gt", "8")), "b"),
        (pod("p").require_node(expr("cores", "Gt", "7")), "ab"),
        (pod("p").require_node(expr("cores", "Lt", "9")), "ad"),
        (pod("p").require_node(expr("cores", "Lt", "0")), "d"),
        (pod("p").require_node(expr("rack", "Lt", "0")), ""),
        # junk to compare with: the term matches nothing, others still may
        (pod("p").require_node(expr("cores", "Gt", "few")), ""),
        (pod("p").require_node(expr("cores", "Lt", "99999999999999999999")), ""),
        (pod("p").require_node(term(expr("cores", "Gt", "few"), expr("zone", "Exists"))), ""),
        (pod("p").require_node(expr("cores", "Gt", "few"), expr("zone", "In", "east")), "a"),
        # requirements of a term must all hold, one of the terms must match
        (pod("p").require_node(term(expr("zone", "In", "west"), expr("disk", "Exists"))), "c"),
        (pod("p").require_node(expr("zone", "In", "east"), expr("disk", "In", "hdd")), "ac"),
        # empty terms match nothing
        (pod("p").require_node(NodeSelectorTerm()), ""),
        (pod("p").require_node(NodeSelectorTerm(), expr("zone", "In", "east")), "a"),
        (pod("p").require_node(), ""),
        # matchFields
        (pod("p").require_node(by_name("b")), "b"),
        (pod("p").require_node(by_name("b"), by_name("d")), "bd"),
        (pod("p").require_node(by_name("z")), ""),
        (pod("p").require_node(by_name("b", operator="NotIn")), "acde"),
        (pod("p").require_node(by_name("b", "c", operator="NotIn")), "ade"),
        (pod("p").require_node(by_name("z", operator="NotIn")), "abcde"),
        (pod("p").require_node(term(expr("zone", "In", "west"), name="b")), "b"),
        (pod("p").require_node(term(expr("zone", "In", "west"), name="a")), ""),
        (pod("p").require_node(term(expr("zone", "In", "east")), by_name("b")), "ab"),
        # nodeSelector and affinity must both match
        (pod("p").node_selector(zone="west").require_node(expr("disk", "Exists")), "c"),
        (pod("p").node_selector(zone="east").require_node(by_name("b")), ""),
    ],
)
def test_required(arriving: PodBuilder, nodes: str) -> None:
    assert fitting(PLAIN, arriving) == nodes
    assert set(statuses(PLAIN, arriving, TABLE).values()) <= {NOT_PODS}


@pytest.mark.parametrize(
    ("plugin", "arriving", "rejected"),
    [
        (added(term(expr("zone", "In", "west"))), pod("p"), {"a": NOT_ENFORCED, "d": NOT_ENFORCED, "e": NOT_ENFORCED}),
        (added(NodeSelectorTerm()), pod("p"), dict.fromkeys("abcde", NOT_ENFORCED)),
        (added(by_name("a"), by_name("b")), pod("p"), dict.fromkeys("cde", NOT_ENFORCED)),
        # What the scheduler enforces is said first.
        (
            added(term(expr("zone", "In", "west"))),
            pod("p").node_selector(disk="ssd"),
            {"a": NOT_ENFORCED, "b": NOT_PODS, "c": NOT_PODS, "d": NOT_ENFORCED, "e": NOT_ENFORCED},
        ),
        (added(prefer=((1, term(expr("zone", "Exists"))),)), pod("p"), {}),
    ],
)
def test_required_by_the_profile(plugin: NodeAffinity, arriving: PodBuilder, rejected: dict[str, object]) -> None:
    assert statuses(plugin, arriving, TABLE) == rejected


@pytest.mark.parametrize(
    ("plugin", "arriving", "skipped", "nodes"),
    [
        (PLAIN, pod("p"), True, None),
        (PLAIN, pod("p").prefer_node(1, expr("zone", "Exists")), True, None),
        (added(term(expr("zone", "Exists"))), pod("p"), False, None),
        (PLAIN, pod("p").node_selector(zone="west"), False, None),
        (PLAIN, pod("p").require_node(), False, None),
        (PLAIN, pod("p").require_node(expr("zone", "Exists")), False, None),
        (PLAIN, pod("p").require_node(by_name("a")), False, "a"),
        (PLAIN, pod("p").require_node(by_name("a"), by_name("z")), False, "az"),
        (PLAIN, pod("p").require_node(term(expr("zone", "Exists"), name="a")), False, "a"),
        (PLAIN, pod("p").require_node(by_name("a", operator="NotIn")), False, None),
        # A term that names no node leaves all nodes open.
        (PLAIN, pod("p").require_node(by_name("a"), expr("zone", "Exists")), False, None),
        # A term that contradicts itself names none, the other still does.
        (PLAIN, pod("p").require_node(by_name("a", "b"), by_name("c")), False, "c"),
    ],
)
def test_pre_filter_restricts_to_named_nodes(
    plugin: NodeAffinity, arriving: PodBuilder, skipped: bool, nodes: str | None
) -> None:
    result = plugin.pre_filter(class_state(arriving.build()))
    assert result.status == (SKIP if skipped else SUCCESS)
    assert result.nodes == (None if nodes is None else frozenset(nodes))


def test_pre_filter_refuses_contradictions() -> None:
    result = PLAIN.pre_filter(class_state(pod("p").require_node(by_name("a", "b"), by_name("c", "d")).build()))
    assert result.status == unresolvable("pod affinity terms conflict")


@pytest.mark.parametrize(
    ("plugin", "arriving", "raw"),
    [
        (PLAIN, pod("p").prefer_node(5, expr("zone", "In", "west")), [0, 5, 5, 0, 0]),
        (PLAIN, pod("p").prefer_node(5, by_name("a")), [5, 0, 0, 0, 0]),
        (PLAIN, pod("p").prefer_node(5, NodeSelectorTerm()), [0, 0, 0, 0, 0]),
        (PLAIN, pod("p").prefer_node(5, expr("cores", "Gt", "7")), [5, 5, 0, 0, 0]),
        (
            PLAIN,
            pod("p").prefer_node(5, expr("zone", "In", "west")).prefer_node(3, expr("disk", "Exists")),
            [3, 5, 8, 0, 0],
        ),
        (added(prefer=((7, term(expr("disk", "Exists"))),)), pod("p"), [7, 0, 7, 0, 0]),
        (
            added(prefer=((7, term(expr("disk", "Exists"))), (0, NodeSelectorTerm()))),
            pod("p").prefer_node(2, expr("zone", "In", "west")),
            [7, 2, 9, 0, 0],
        ),
        # A term of no weight is not even parsed.
        (
            PLAIN,
            pod("p").prefer_node(0, expr("cores", "Gt", "few")).prefer_node(1, expr("disk", "Exists")),
            [1, 0, 1, 0, 0],
        ),
    ],
)
def test_preferred_weights_add_up(plugin: NodeAffinity, arriving: PodBuilder, raw: list[int]) -> None:
    assert list(scores(plugin, arriving, TABLE).values()) == raw


def test_without_preferences_there_is_no_score() -> None:
    required = class_state(pod("p").require_node(expr("zone", "Exists")).build())
    assert PLAIN.pre_score(required) == SKIP
    assert added(term(expr("zone", "Exists"))).pre_score(required) == SKIP
    assert added(prefer=((1, term(expr("zone", "Exists"))),)).pre_score(required) == SUCCESS


def test_an_unparsable_preference_is_an_error() -> None:
    arriving = pod("p").prefer_node(1, expr("zone", "Exists")).prefer_node(1, expr("cores", "Gt", "few"))
    status = PLAIN.pre_score(class_state(arriving.build()))
    assert status.code is Code.ERROR
    assert status.reasons == (
        "[1].matchExpressions[0].values[0]: Invalid value: \"few\": for 'Gt', 'Lt' operators, "
        "the value must be an integer",
    )


def test_scores_are_scaled_to_the_highest_of_the_feasible_nodes() -> None:
    arriving = (
        pod("p")
        .node_selector(zone="west")
        .prefer_node(1, expr("disk", "Exists"))
        .prefer_node(2, expr("cores", "Exists"))
        .prefer_node(9, expr("zone", "In", "east"))
    )
    explained = judge(framework("NodeAffinity"), arriving, TABLE)
    assert explained.scores == {"b": {"NodeAffinity": 66}, "c": {"NodeAffinity": 100}}
    assert explained.rejected == dict.fromkeys("ade", NOT_PODS.by("NodeAffinity"))


def test_nodes_outside_the_named_ones_are_rejected_by_no_plugin() -> None:
    explained = judge(framework("NodeAffinity"), pod("p").require_node(by_name("b")), TABLE)
    outside = unresolvable("node(s) didn't satisfy plugin(s) [NodeAffinity]")
    assert explained.rejected == dict.fromkeys("acde", outside)


def test_added_affinity_comes_from_the_configuration() -> None:
    east = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["east"]}]}]}
    args: dict[str, object] = {
        "NodeAffinity": {"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": east}}
    }
    explained = judge(framework("NodeAffinity", args=args), pod("p"), TABLE)
    assert list(explained.scores) == ["a"]
    assert explained.rejected == dict.fromkeys("bcde", NOT_ENFORCED.by("NodeAffinity"))


def test_labels_are_read_as_they_are_now() -> None:
    table = table_of(node("n").label(zone="east"))
    state = class_state(pod("p").require_node(expr("zone", "In", "west")).build())
    assert rejected(PLAIN, state, TableView(table)) != [None]
    table.upsert_node(node("n").label(zone="west").build())
    assert rejected(PLAIN, state, TableView(table)) == [None]
