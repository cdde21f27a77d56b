"""Plugin arguments: defaults, reading, and the path of each fault."""

from typing import Any

import pytest

from shared.config.args import (
    DEFAULT_RESOURCES,
    DefaultPreemptionArgs,
    DynamicResourcesArgs,
    InterPodAffinityArgs,
    NodeAffinityArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    PodTopologySpreadArgs,
    RequestedToCapacityRatioParam,
    ResourceSpec,
    ScoringStrategy,
    UtilizationShapePoint,
    VolumeBindingArgs,
)
from shared.config.args_validation import label_key_faults, label_value_faults
from shared.config.reading import load_config
from shared.errors import InvalidConfig
from shared.model.objects import (
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PreferredSchedulingTerm,
    TopologySpreadConstraint,
)

RTCR = "RequestedToCapacityRatio"
RATIO = "requestedToCapacityRatio"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def load_args(name: str, args: Any, **profile: Any) -> object:
    obj = {"profiles": [{"pluginConfig": [{"name": "Other", "args": 1}, {"name": name, "args": args}], **profile}]}
    return load_config(obj).profiles[0].args[name]


def strategy(**fields: Any) -> dict[str, Any]:
    return {"scoringStrategy": {"type": "LeastAllocated", **fields}}


def shaped(*points: tuple[int, int]) -> dict[str, Any]:
    shape = [{"utilization": utilization, "score": score} for utilization, score in points]
    return strategy(type=RTCR, requestedToCapacityRatio={"shape": shape})


def required(*expressions: Any, field: str = "matchExpressions") -> dict[str, Any]:
    return {"addedAffinity": {REQUIRED: {"nodeSelectorTerms": [{}, {field: list(expressions)}]}}}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


def spreading(kind: str = "List", **fields: Any) -> dict[str, Any]:
    constraint = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", **fields}
    return {"defaultingType": kind, "defaultConstraints": [constraint]}


READ: list[tuple[str, str, Any, object]] = [
    ("fit: none given", "NodeResourcesFit", None, NodeResourcesFitArgs()),
    ("fit: an empty map", "NodeResourcesFit", {}, NodeResourcesFitArgs()),
    ("fit: a null strategy", "NodeResourcesFit", {"scoringStrategy": None}, NodeResourcesFitArgs()),
    (
        "fit: kind and version",
        "NodeResourcesFit",
        {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "NodeResourcesFitArgs"},
        NodeResourcesFitArgs(),
    ),
    (
        "fit: a type alone has the default resources",
        "NodeResourcesFit",
        {"scoringStrategy": {"type": "MostAllocated", "resources": []}},
        NodeResourcesFitArgs(scoring_strategy=ScoringStrategy("MostAllocated", DEFAULT_RESOURCES)),
    ),
    (
        "fit: no weight and a weight of 0 are 1",
        "NodeResourcesFit",
        {
            "ignoredResources": ["example.com/foo"],
            "ignoredResourceGroups": ["vendor.io"],
            **strategy(
                resources=[{"name": "cpu", "weight": 100}, {"name": "memory"}, {"name": "x.io/gpu", "weight": 0}]
            ),
        },
        NodeResourcesFitArgs(
            ("example.com/foo",),
            ("vendor.io",),
            ScoringStrategy(
                "LeastAllocated", (ResourceSpec("cpu", 100), ResourceSpec("memory", 1), ResourceSpec("x.io/gpu", 1))
            ),
        ),
    ),
    (
        "fit: a shape",
        "NodeResourcesFit",
        shaped((0, 10), (100, 0)),
        NodeResourcesFitArgs(
            scoring_strategy=ScoringStrategy(
                "RequestedToCapacityRatio",
                DEFAULT_RESOURCES,
                RequestedToCapacityRatioParam((UtilizationShapePoint(0, 10), UtilizationShapePoint(100, 0))),
            )
        ),
    ),
    (
        "balanced: no resources are the default ones",
        "NodeResourcesBalancedAllocation",
        {"resources": []},
        NodeResourcesBalancedAllocationArgs(DEFAULT_RESOURCES),
    ),
    (
        "balanced: no weight and a weight of 0 are 1",
        "NodeResourcesBalancedAllocation",
        {"resources": [{"name": "cpu"}, {"name": "x.io/gpu", "weight": 0}]},
        NodeResourcesBalancedAllocationArgs((ResourceSpec("cpu", 1), ResourceSpec("x.io/gpu", 1))),
    ),
    ("node affinity: none added", "NodeAffinity", {"addedAffinity": None}, NodeAffinityArgs()),
    (
        "volume binding: a time-out",
        "VolumeBinding",
        {"bindTimeoutSeconds": 5, "shape": None},
        VolumeBindingArgs(5),
    ),
    ("preemption: none given", "DefaultPreemption", None, DefaultPreemptionArgs(10, 100)),
    (
        "preemption: one given, the other by default",
        "DefaultPreemption",
        {"minCandidateNodesPercentage": 0},
        DefaultPreemptionArgs(0, 100),
    ),
    (
        "pod affinity: all given",
        "InterPodAffinity",
        {"hardPodAffinityWeight": 0, "ignorePreferredTermsOfExistingPods": True},
        InterPodAffinityArgs(0, True),
    ),
    (
        "devices: durations are seconds, and 0s is no time-out",
        "DynamicResources",
        {"filterTimeout": "0s", "bindingTimeout": "1m1.5s"},
        DynamicResourcesArgs(0.0, 61.5),
    ),
    ("devices: null is the default", "DynamicResources", {"filterTimeout": None}, DynamicResourcesArgs(10.0, 600.0)),
    (
        "spreading: constraints",
        "PodTopologySpread",
        {
            "defaultingType": "List",
            "defaultConstraints": [
                {"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"},
                {
                    "maxSkew": 1,
                    "topologyKey": "host",
                    "whenUnsatisfiable": "ScheduleAnyway",
                    "minDomains": 3,
                    "nodeAffinityPolicy": "Ignore",
                    "nodeTaintsPolicy": "Honor",
                    "matchLabelKeys": ["app"],
                },
            ],
        },
        PodTopologySpreadArgs(
            (
                TopologySpreadConstraint(max_skew=2, topology_key="zone", when_unsatisfiable="DoNotSchedule"),
                TopologySpreadConstraint(
                    max_skew=1,
                    topology_key="host",
                    when_unsatisfiable="ScheduleAnyway",
                    min_domains=3,
                    node_affinity_policy="Ignore",
                    node_taints_policy="Honor",
                    match_label_keys=["app"],
                ),
            ),
            "List",
        ),
    ),
    ("of a plugin without arguments: as it is", "DefaultBinder", "text", "text"),
    ("of an own plugin: as it is", "Own", [1, {"args": None}], [1, {"args": None}]),
]


@pytest.mark.parametrize(("name", "raw", "expected"), [c[1:] for c in READ], ids=[c[0] for c in READ])
def test_reading_and_defaults(name: str, raw: Any, expected: object) -> None:
    assert load_args(name, raw) == expected


def test_an_out_of_tree_plugin_without_arguments_gets_none() -> None:
    (profile,) = load_config({"profiles": [{"pluginConfig": [{"name": "Own"}]}]}).profiles
    assert "Own" not in profile.args


def test_added_affinity_becomes_a_node_affinity() -> None:
    raw = required(expression("pool", "In", "a", "b"), expression("cores", "Gt", "8"), expression("x.io/y", "Exists"))
    raw["addedAffinity"][PREFERRED] = [
        {"weight": 5, "preference": {"matchFields": [expression("metadata.name", "In", "Any_Text!")]}},
        # kube-scheduler does not validate a term of weight 0.
        {"weight": 0, "preference": {"matchExpressions": [expression("bad key", "Bogus")]}},
    ]
    args = load_args("NodeAffinity", raw)
    assert isinstance(args, NodeAffinityArgs)
    affinity = args.added_affinity
    assert affinity is not None
    assert affinity.required == NodeSelector(
        node_selector_terms=[
            NodeSelectorTerm(),
            NodeSelectorTerm(
                match_expressions=[
                    NodeSelectorRequirement(key="pool", operator="In", values=["a", "b"]),
                    NodeSelectorRequirement(key="cores", operator="Gt", values=["8"]),
                    NodeSelectorRequirement(key="x.io/y", operator="Exists"),
                ]
            ),
        ]
    )
    assert affinity.preferred == [
        PreferredSchedulingTerm(
            weight=5,
            preference=NodeSelectorTerm(
                match_fields=[NodeSelectorRequirement(key="metadata.name", operator="In", values=["Any_Text!"])]
            ),
        ),
        PreferredSchedulingTerm(weight=0, preference=NodeSelectorTerm()),
    ]


@pytest.mark.parametrize(
    ("operator", "value", "operator_on_name"),
    [("In", "a", "In"), ("NotIn", "a", "NotIn"), ("In", "", "NotIn"), ("NotIn", "", "In")],
)
def test_unknown_node_fields_are_empty(operator: str, value: str, operator_on_name: str) -> None:
    """The name of a node is never empty, so `In ""` on it never holds and `NotIn ""` always."""
    args = load_args("NodeAffinity", required(expression("metadata.uid", operator, value), field="matchFields"))
    assert isinstance(args, NodeAffinityArgs)
    assert args.added_affinity is not None
    assert args.added_affinity.required is not None
    (requirement,) = args.added_affinity.required.node_selector_terms[1].match_fields
    assert (requirement.key, requirement.operator, requirement.values) == ("metadata.name", operator_on_name, [""])


def test_fit_arguments_are_not_validated_where_it_does_not_run() -> None:
    off = {"multiPoint": {"disabled": [{"name": "NodeResourcesFit"}]}}
    load_args("NodeResourcesFit", {"scoringStrategy": {"type": "Wrong"}}, plugins=off)
    with pytest.raises(InvalidConfig):
        load_args("NodeResourcesFit", {"scoringStrategy": {"type": 1}}, plugins=off)


FIT, BALANCED, AFFINITY = "NodeResourcesFit", "NodeResourcesBalancedAllocation", "NodeAffinity"
PREEMPTION, SPREAD = "DefaultPreemption", "PodTopologySpread"
BOTH_ZERO = {"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 0}
TERM = f"addedAffinity.{REQUIRED}.nodeSelectorTerms[1]"

FAULTS: list[tuple[str, str, Any, str]] = [
    ("no map", FIT, [], ""),
    ("no map, without a type here", "VolumeBinding", [], ""),
    ("another kind", AFFINITY, {"kind": "NodeResourcesFitArgs"}, "kind"),
    ("another version", FIT, {"apiVersion": "v1"}, "apiVersion"),
    ("another version, without a type here", "InterPodAffinity", {"apiVersion": "v1"}, "apiVersion"),
    ("unknown field", FIT, {"extra": 1}, "extra"),
    (
        "unknown field inside",
        FIT,
        strategy(resources=[{"name": "cpu", "share": 1}]),
        "scoringStrategy.resources[0].share",
    ),
    ("unknown field, balanced", BALANCED, {"scoringStrategy": {}}, "scoringStrategy"),
    ("unknown field, affinity", AFFINITY, {"affinity": {}}, "affinity"),
    ("unknown field of the affinity", AFFINITY, {"addedAffinity": {"required": {}}}, "addedAffinity.required"),
    (
        "unknown field of an expression",
        AFFINITY,
        required({"key": "a", "operator": "Exists", "value": "x"}),
        f"{TERM}.matchExpressions[0].value",
    ),
    ("text for a number", FIT, strategy(resources=[{"weight": "1"}]), "scoringStrategy.resources[0].weight"),
    ("number for a text", FIT, strategy(type=3), "scoringStrategy.type"),
    ("map for a list", BALANCED, {"resources": {}}, "resources"),
    ("resource name too long", FIT, {"ignoredResources": ["ok", "x" * 64]}, "ignoredResources[1]"),
    ("bad resource name", FIT, {"ignoredResources": ["bad name"]}, "ignoredResources[0]"),
    ("null resource name", FIT, {"ignoredResources": ["a.io/b", None]}, "ignoredResources[1]"),
    ("group with a slash", FIT, {"ignoredResourceGroups": ["example.com/x"]}, "ignoredResourceGroups[0]"),
    ("bad group", FIT, {"ignoredResourceGroups": ["a.io", "-bad"]}, "ignoredResourceGroups[1]"),
    ("no type", FIT, {"scoringStrategy": {"resources": [{"name": "cpu"}]}}, "scoringStrategy.type"),
    ("unknown type", FIT, strategy(type="Balanced"), "scoringStrategy.type"),
    (
        "negative weight",
        FIT,
        strategy(resources=[{"name": "cpu", "weight": -1}]),
        "scoringStrategy.resources[0].weight",
    ),
    (
        "weight too large",
        FIT,
        strategy(resources=[{"name": "cpu"}, {"name": "memory", "weight": 101}]),
        "scoringStrategy.resources[1].weight",
    ),
    ("ratio without shape", FIT, strategy(type=RTCR), f"scoringStrategy.{RATIO}"),
    ("ratio for another type", FIT, strategy(requestedToCapacityRatio={}), f"scoringStrategy.{RATIO}"),
    ("empty shape", FIT, shaped(), f"scoringStrategy.{RATIO}.shape"),
    ("shape out of order", FIT, shaped((0, 0), (50, 5), (50, 6)), f"scoringStrategy.{RATIO}.shape[2].utilization"),
    ("utilization above", FIT, shaped((0, 0), (101, 5)), f"scoringStrategy.{RATIO}.shape[1].utilization"),
    ("utilization below", FIT, shaped((-1, 0), (9, 5)), f"scoringStrategy.{RATIO}.shape[0].utilization"),
    ("score above", FIT, shaped((0, 0), (9, 11)), f"scoringStrategy.{RATIO}.shape[1].score"),
    ("score below", FIT, shaped((0, -1)), f"scoringStrategy.{RATIO}.shape[0].score"),
    ("balanced weight", BALANCED, {"resources": [{"name": "cpu", "weight": 3}]}, "resources[0].weight"),
    ("balanced twice", BALANCED, {"resources": [{"name": "cpu"}, {"name": "cpu"}]}, "resources[1].name"),
    ("operator", AFFINITY, required(expression("a", "Within", "x")), f"{TERM}.matchExpressions[0].operator"),
    ("bad key", AFFINITY, required(expression("bad key", "Exists")), f"{TERM}.matchExpressions[0].key"),
    ("In without values", AFFINITY, required(expression("a", "In")), f"{TERM}.matchExpressions[0].values"),
    ("Exists with values", AFFINITY, required(expression("a", "Exists", "x")), f"{TERM}.matchExpressions[0].values"),
    ("Gt with two values", AFFINITY, required(expression("a", "Gt", "1", "2")), f"{TERM}.matchExpressions[0].values"),
    ("Lt without integer", AFFINITY, required(expression("a", "Lt", "1.5")), f"{TERM}.matchExpressions[0].values[0]"),
    (
        "Gt beyond 64 bits",
        AFFINITY,
        required(expression("a", "Gt", str(2**63))),
        f"{TERM}.matchExpressions[0].values[0]",
    ),
    (
        "bad value",
        AFFINITY,
        required(expression("ok", "Exists"), expression("a", "NotIn", "x", "not one!")),
        f"{TERM}.matchExpressions[1].values[1][a]",
    ),
    ("both minima of preemption are 0", PREEMPTION, BOTH_ZERO, "minCandidateNodesPercentage"),
    ("percentage of preemption", PREEMPTION, {"minCandidateNodesPercentage": 101}, "minCandidateNodesPercentage"),
    ("pod affinity weight", "InterPodAffinity", {"hardPodAffinityWeight": -1}, "hardPodAffinityWeight"),
    ("time-out below", "DynamicResources", {"filterTimeout": "-1ns"}, "filterTimeout"),
    ("time-out too short", "DynamicResources", {"bindingTimeout": "999ms"}, "bindingTimeout"),
    ("time-out as a number", "DynamicResources", {"bindingTimeout": 5}, "bindingTimeout"),
    ("shape of volumes", "VolumeBinding", {"shape": []}, "shape"),
    ("defaulting type", SPREAD, {"defaultingType": "Some"}, "defaultingType"),
    ("constraints without List", SPREAD, spreading(kind="System"), "defaultingType"),
    ("skew", SPREAD, spreading(maxSkew=0), "defaultConstraints[0].maxSkew"),
    ("no topology key", SPREAD, spreading(topologyKey=""), "defaultConstraints[0].topologyKey"),
    ("bad topology key", SPREAD, spreading(topologyKey="a b"), "defaultConstraints[0].topologyKey"),
    ("no action", SPREAD, spreading(whenUnsatisfiable=None), "defaultConstraints[0].whenUnsatisfiable"),
    ("unknown action", SPREAD, spreading(whenUnsatisfiable="Wait"), "defaultConstraints[0].whenUnsatisfiable"),
    ("a selector", SPREAD, spreading(labelSelector={}), "defaultConstraints[0].labelSelector"),
    (
        "field operator",
        AFFINITY,
        required(expression("metadata.name", "Exists"), field="matchFields"),
        f"{TERM}.matchFields[0].operator",
    ),
    (
        "field with two values",
        AFFINITY,
        required(expression("metadata.name", "In", "a", "b"), field="matchFields"),
        f"{TERM}.matchFields[0].values",
    ),
    (
        "in a preferred term",
        AFFINITY,
        {
            "addedAffinity": {
                PREFERRED: [
                    {"weight": 1, "preference": {}},
                    {"weight": -3, "preference": {"matchExpressions": [expression("a", "In", "no value!")]}},
                ]
            }
        },
        f"addedAffinity.{PREFERRED}[1].matchExpressions[0].values[0][a]",
    ),
    ("the kind instead of the name", "NodeResourcesFitArgs", {}, ""),
]


@pytest.mark.parametrize(("name", "raw", "path"), [c[1:] for c in FAULTS], ids=[c[0] for c in FAULTS])
def test_errors_name_their_path(name: str, raw: Any, path: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        load_args(name, raw)
    assert caught.value.path == ".".join(part for part in ("profiles[0].pluginConfig[1].args", path) if part)


@pytest.mark.parametrize("key", ["a", "A_b.c-9", "x" * 63, "example.com/a", "a.b-c.d/X", f"{'a' * 253}/b"])
def test_valid_label_keys(key: str) -> None:
    assert label_key_faults(key) == []


@pytest.mark.parametrize(
    "key", ["", "-a", "a-", "a b", "x" * 64, "/a", "a/", "a/b/c", "A.com/x", "a..b/x", f"{'a' * 254}/b", "ä", "a\n"]
)
def test_invalid_label_keys(key: str) -> None:
    assert label_key_faults(key)


def test_label_values() -> None:
    assert [label_value_faults(v) for v in ("", "a", "A_b.c-9", "x" * 63)] == [[]] * 4
    assert all(label_value_faults(v) for v in ("-a", "a/b", "a b", "x" * 64))
