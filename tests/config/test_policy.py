"""Policy files of kube-scheduler before v1.23, converted to profiles."""

from typing import Any

import pytest

from shared.config.kubernetes_yaml import write_yaml
from shared.config.points import ExtensionPoint
from shared.config.policy import (
    DEFAULT_PREDICATES,
    DEFAULT_PRIORITIES,
    PREDICATES,
    PRIORITIES,
    Converted,
    convert_policy,
)
from shared.config.problems import InvalidConfigFile
from shared.config.reading import read_config_text, read_config_values
from shared.config.structs import KubeSchedulerConfig

ALWAYS_FILTERING = ["NodeUnschedulable", "TaintToleration", "DynamicResources", "NodeDeclaredFeatures"]


def convert(**fields: Any) -> Converted:
    return convert_policy(write_yaml({"kind": "Policy", "apiVersion": "v1", **fields}))


def loaded(converted: Converted) -> KubeSchedulerConfig:
    return read_config_text(write_yaml(converted.config)).config


def names(config: KubeSchedulerConfig, point: str) -> list[str]:
    return [ref.name for ref in config.profiles[0].plugins[ExtensionPoint(point)]]


def lost(converted: Converted) -> list[str]:
    prefix = "not carried over: "
    return [note.removeprefix(prefix) for note in converted.notes if note.startswith(prefix)]


def test_an_empty_policy_has_the_defaults_of_its_time() -> None:
    converted = convert()
    config = loaded(converted)
    assert names(config, "filter") == [
        "NodeUnschedulable",
        "NodeResourcesFit",
        "NodeName",
        "NodePorts",
        "NodeAffinity",
        "VolumeRestrictions",
        "TaintToleration",
        "EBSLimits",
        "GCEPDLimits",
        "NodeVolumeLimits",
        "AzureDiskLimits",
        "VolumeBinding",
        "VolumeZone",
        "PodTopologySpread",
        "InterPodAffinity",
        "DynamicResources",
        "NodeDeclaredFeatures",
    ]
    assert {ref.name: ref.weight for ref in config.profiles[0].plugins[ExtensionPoint.SCORE]} == {
        "NodeResourcesBalancedAllocation": 1,
        "PodTopologySpread": 2,
        "ImageLocality": 1,
        "InterPodAffinity": 1,
        "NodeResourcesFit": 1,
        "NodeAffinity": 1,
        "NodePreferAvoidPods": 10000,
        "TaintToleration": 1,
    }
    assert names(config, "postFilter") == ["DynamicResources", "DefaultPreemption"]
    assert names(config, "preBind") == ["VolumeBinding", "DynamicResources"]
    assert names(config, "queueSort") == ["PrioritySort"]
    assert names(config, "bind") == ["DefaultBinder"]
    assert lost(converted) == ["weight 1 of SelectorSpreadPriority: PodTopologySpread has the weight 2 already"]
    assert "for Flotilla only" in converted.notes[-1]


def test_empty_lists_keep_mandatory_predicates() -> None:
    config = loaded(convert(predicates=[], priorities=[]))
    assert names(config, "filter") == ALWAYS_FILTERING
    assert names(config, "score") == []


@pytest.mark.parametrize("predicate", [*PREDICATES, "PodFitsPorts"])
def test_every_predicate_becomes_its_plugins(predicate: str) -> None:
    converted = convert(predicates=[{"name": predicate}], priorities=[])
    plugins = PREDICATES[{"PodFitsPorts": "PodFitsHostPorts"}.get(predicate, predicate)]
    assert set(names(loaded(converted), "filter")) == {*ALWAYS_FILTERING, *plugins}
    assert lost(converted) == []


@pytest.mark.parametrize("priority", [*PRIORITIES, "ServiceSpreadingPriority"])
def test_every_priority_becomes_its_plugin_with_its_weight(priority: str) -> None:
    argument = {"requestedToCapacityRatioArguments": {"shape": [{"utilization": 0, "score": 10}]}}
    given: dict[str, Any] = {"name": priority, "weight": 7}
    if priority == "RequestedToCapacityRatio":
        given["argument"] = argument
    converted = convert(predicates=[], priorities=[given])
    plugin = PRIORITIES[{"ServiceSpreadingPriority": "SelectorSpreadPriority"}.get(priority, priority)]
    (score,) = loaded(converted).profiles[0].plugins[ExtensionPoint.SCORE]
    assert (score.name, score.weight) == (plugin, 7)
    assert lost(converted) == []


def test_default_predicates_and_priorities_are_known() -> None:
    assert set(DEFAULT_PREDICATES) <= set(PREDICATES)
    assert set(DEFAULT_PRIORITIES) <= set(PRIORITIES)


@pytest.mark.parametrize(
    ("priorities", "defaulting"),
    [
        (["EvenPodsSpreadPriority"], "List"),
        (["SelectorSpreadPriority"], "System"),
        (["SelectorSpreadPriority", "EvenPodsSpreadPriority"], "System"),
    ],
)
def test_selector_spread_becomes_default_constraints(priorities: list[str], defaulting: str) -> None:
    converted = convert(priorities=[{"name": name, "weight": 1} for name in priorities])
    assert {"name": "PodTopologySpread", "args": {"defaultingType": defaulting}} in converted.config["profiles"][0][
        "pluginConfig"
    ]


def test_arguments() -> None:
    converted = convert(
        predicates=[
            {"name": "GeneralPredicates"},
            {"name": "new", "argument": {"labelsPresence": {"labels": ["ssd"], "presence": True}}},
            {"name": "old", "argument": {"labelsPresence": {"labels": ["retiring"], "presence": False}}},
        ],
        priorities=[
            {
                "name": "packed",
                "weight": 4,
                "argument": {
                    "requestedToCapacityRatioArguments": {
                        "shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}],
                        "resources": [{"name": "example.com/gpu", "weight": 3}, {"name": "cpu"}],
                    }
                },
            },
            {"name": "InterPodAffinityPriority", "weight": 1},
        ],
        hardPodAffinitySymmetricWeight=10,
    )
    assert lost(converted) == []
    assert converted.config["profiles"][0]["pluginConfig"] == [
        {"name": "InterPodAffinity", "args": {"hardPodAffinityWeight": 10}},
        {
            "name": "NodeAffinity",
            "args": {
                "addedAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {
                                "matchExpressions": [
                                    {"key": "ssd", "operator": "Exists"},
                                    {"key": "retiring", "operator": "DoesNotExist"},
                                ]
                            }
                        ]
                    }
                }
            },
        },
        {
            "name": "NodeResourcesFit",
            "args": {
                "scoringStrategy": {
                    "type": "RequestedToCapacityRatio",
                    "requestedToCapacityRatio": {
                        "shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]
                    },
                    "resources": [{"name": "example.com/gpu", "weight": 3}, {"name": "cpu", "weight": 1}],
                }
            },
        },
    ]


NEAR = {"serviceAffinity": {"labels": ["region", "zone"]}}
APART = {"serviceAntiAffinity": {"label": "zone"}}
WISH = {"labelPreference": {"label": "ssd", "presence": True}}


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        (
            {"predicates": [{"name": "near", "argument": NEAR}]},
            ["predicates[0] (near): there is no plugin for serviceAffinity any more (labels: region, zone)"],
        ),
        (
            {"priorities": [{"name": "apart", "weight": 2, "argument": APART}]},
            ["priorities[0] (apart): there is no plugin for serviceAntiAffinity any more (label: zone)"],
        ),
        (
            {"priorities": [{"name": "wish", "weight": 2, "argument": WISH}]},
            ["priorities[0] (wish): there is no plugin any more that prefers a node which has ssd"],
        ),
        ({"predicates": [{"name": "Nonsense"}]}, ["predicates[0] (Nonsense): there is no such predicate"]),
        (
            {"predicates": [{"name": "CheckNodeMemoryPressure"}]},
            ["predicates[0] (CheckNodeMemoryPressure): taints of nodes do its work"],
        ),
        (
            {"priorities": [{"name": "EqualPriority", "weight": 1}]},
            ["priorities[0] (EqualPriority): it gave all nodes the same score"],
        ),
        (
            {"predicates": [{"name": "HostName", "argument": NEAR}]},
            ["predicates[0].argument: HostName takes none"],
        ),
        (
            {"predicates": [{"name": "l", "argument": {"labelsPresence": {"labels": ["a"], "presence": True}}}]},
            [
                "predicates[0] (l): labelsPresence needs NodeAffinity, which MatchNodeSelector or "
                "GeneralPredicates enable"
            ],
        ),
        (
            {
                "priorities": [
                    {"name": "MostRequestedPriority", "weight": 1},
                    {"name": "LeastRequestedPriority", "weight": 1},
                ]
            },
            [
                "priorities[1] (LeastRequestedPriority): NodeResourcesFit scores by MostAllocated already, "
                "and by one strategy only"
            ],
        ),
        (
            {
                "priorities": [
                    {"name": "ImageLocalityPriority", "weight": 1},
                    {"name": "ImageLocalityPriority", "weight": 2},
                ]
            },
            ["weight 1 of ImageLocalityPriority: it is given once more, with 2"],
        ),
        (
            {"hardPodAffinitySymmetricWeight": 5},
            ["hardPodAffinitySymmetricWeight: it does nothing without InterPodAffinityPriority"],
        ),
        (
            {"alwaysCheckAllPredicates": True},
            ["alwaysCheckAllPredicates: a node is not evaluated further once a plugin has rejected it"],
        ),
    ],
)
def test_notes_on_what_is_not_carried_over(fields: dict[str, Any], told: list[str]) -> None:
    converted = convert(**{"predicates": [], "priorities": [], **fields})
    assert lost(converted) == told
    loaded(converted)


def test_extenders_are_carried_over() -> None:
    converted = convert(
        extenders=[
            {
                "urlPrefix": "https://host/",
                "filterVerb": "f",
                "prioritizeVerb": "p",
                "weight": 3,
                "enableHttps": True,
                "httpTimeout": 1500000000,
                "tlsConfig": {"insecure": True},
                "nodeCacheCapable": True,
                "managedResources": [{"name": "example.com/gpu", "ignoredByScheduler": True}],
                "ignorable": True,
            },
            {"urlPrefix": "http://other", "bindVerb": "b"},
        ]
    )
    first, second = loaded(converted).extenders
    assert (first.url_prefix, first.weight, first.enable_https, first.http_timeout) == ("https://host/", 3, True, 1.5)
    assert first.tls is not None
    assert first.tls.insecure
    assert (second.bind_verb, second.http_timeout) == ("b", 5.0)


@pytest.mark.parametrize(
    ("text", "complaints"),
    [
        ("[]", ["the file must be a map, not []"]),
        ("a: [", ["is not YAML: line 1, column 5"]),
        (
            "kind: Police\npredicate: []\n",
            ['kind: must be Policy, not "Police"', "apiVersion: must be v1, not null", "predicate: unknown field"],
        ),
        (
            "kind: Policy\napiVersion: v1\npriorities:\n- {name: ImageLocalityPriority}\n- {weight: many}\n"
            "hardPodAffinitySymmetricWeight: 101\n",
            [
                "priorities[1].weight: must be a whole number",
                "priorities[0].weight: must be from 1 to 2147483647, not 0",
                "priorities[1].weight: must be from 1 to 2147483647, not 0",
                "hardPodAffinitySymmetricWeight: must be from 0 to 100, not 101",
            ],
        ),
        (
            "kind: Policy\napiVersion: v1\nextenders:\n- {httpTimeout: soon}\n",
            ["extenders[0].httpTimeout: must be a whole number of nanoseconds"],
        ),
    ],
)
def test_invalid_policies_are_refused(text: str, complaints: list[str]) -> None:
    with pytest.raises(InvalidConfigFile) as caught:
        convert_policy(text)
    lines = caught.value.lines()
    assert len(lines) == len(complaints)
    for line, complaint in zip(lines, complaints, strict=True):
        assert line.startswith(complaint)


def test_a_policy_as_configuration_hints_at_convert() -> None:
    with pytest.raises(InvalidConfigFile, match="flotilla config convert"):
        read_config_text("kind: Policy\napiVersion: v1\n")
    assert read_config_values(convert().config).written["kind"] == "KubeSchedulerConfiguration"
