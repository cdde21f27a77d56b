"""Profiles: what runs where, in which order and with which weight, and the path of each fault."""

from collections.abc import Collection
from typing import Any

import pytest

from shared.config.building import flotilla_plugins, kube_scheduler_plugins
from shared.config.points import ExtensionPoint, PluginRef
from shared.config.problems import InvalidConfigFile, Stage
from shared.config.reading import load_config, read_config_values
from shared.config.structs import KubeSchedulerConfig, ProfileConfig
from shared.errors import InvalidConfig
from tests.config.test_config_defaults import EXPANDED, SCORE

Plugins = dict[str, dict[str, list[Any]]]

OWN: dict[str, Collection[ExtensionPoint]] = {
    "OwnScorer": {ExtensionPoint.PRE_SCORE, ExtensionPoint.SCORE},
    "OwnFilter": [ExtensionPoint.FILTER],
    "OwnSort": frozenset({ExtensionPoint.QUEUE_SORT}),
    "OwnBinder": (ExtensionPoint.BIND, ExtensionPoint.POST_BIND),
}


def refs(*names: str | tuple[str, int]) -> list[dict[str, object]]:
    return [{"name": n} if isinstance(n, str) else {"name": n[0], "weight": n[1]} for n in names]


def load(*profiles: dict[str, Any]) -> KubeSchedulerConfig:
    return load_config({"profiles": list(profiles)}, flotilla_plugins(lambda name: OWN.get(name, ())))


def profile_with(plugins: Plugins) -> ProfileConfig:
    return load({"plugins": plugins}).profiles[0]


def names_at(profile: ProfileConfig, point: str) -> tuple[str, ...]:
    return tuple(ref.name for ref in profile.plugins[ExtensionPoint(point)])


def weights(profile: ProfileConfig) -> list[tuple[str, int]]:
    return [(ref.name, ref.weight) for ref in profile.plugins[ExtensionPoint.SCORE]]


def defaults_without(*names: str) -> list[tuple[str, int]]:
    return [(ref.name, ref.weight) for ref in SCORE if ref.name not in names]


SCORE_CASES: list[tuple[str, Plugins, list[tuple[str, int]]]] = [
    (
        "a weight at the point moves the plugin to the front",
        {"score": {"enabled": refs(("ImageLocality", 7))}},
        [("ImageLocality", 7), *defaults_without("ImageLocality")],
    ),
    (
        "without a weight the point's own is 1 and not that of multiPoint",
        {"score": {"enabled": refs("TaintToleration")}},
        [("TaintToleration", 1), *defaults_without("TaintToleration")],
    ),
    (
        "a weight of 0 is 1 in force",
        {"score": {"enabled": refs(("NodeAffinity", 0), ("ImageLocality", 2147483647))}},
        [("NodeAffinity", 1), ("ImageLocality", 2147483647), *defaults_without("NodeAffinity", "ImageLocality")],
    ),
    (
        "a default listed in multiPoint is replaced in place",
        {"multiPoint": {"enabled": refs(("TaintToleration", 10), "NodeAffinity")}},
        [("TaintToleration", 10), ("NodeAffinity", 1), *defaults_without("TaintToleration", "NodeAffinity")],
    ),
    (
        "a default both disabled and enabled in multiPoint goes last",
        {"multiPoint": {"disabled": refs("TaintToleration"), "enabled": refs(("TaintToleration", 4))}},
        [*defaults_without("TaintToleration"), ("TaintToleration", 4)],
    ),
    (
        "the point's weight overrides that of multiPoint",
        {
            "multiPoint": {"enabled": refs(("NodeAffinity", 50))},
            "score": {"enabled": refs(("NodeAffinity", 2)), "disabled": refs("PodTopologySpread")},
        },
        [("NodeAffinity", 2), *defaults_without("NodeAffinity", "PodTopologySpread")],
    ),
    (
        "overriding ones in the point's order, then multiPoint, then those of the point only",
        {
            "multiPoint": {"disabled": refs("ImageLocality")},
            "score": {"enabled": refs(("ImageLocality", 2), ("NodeResourcesBalancedAllocation", 3), "TaintToleration")},
        },
        [
            ("NodeResourcesBalancedAllocation", 3),
            ("TaintToleration", 1),
            *defaults_without("TaintToleration", "NodeResourcesBalancedAllocation", "ImageLocality"),
            ("ImageLocality", 2),
        ],
    ),
    (
        "* at the point leaves what the point enables",
        {"score": {"disabled": refs("*"), "enabled": refs("PodTopologySpread", ("ImageLocality", 12))}},
        [("PodTopologySpread", 1), ("ImageLocality", 12)],
    ),
    (
        "disabled and enabled at the point runs, after multiPoint",
        {"score": {"disabled": refs("NodeAffinity"), "enabled": refs(("NodeAffinity", 9))}},
        [*defaults_without("NodeAffinity"), ("NodeAffinity", 9)],
    ),
    (
        "twice in multiPoint is no fault where a point overrides it",
        {
            "multiPoint": {"enabled": refs(("ImageLocality", 2), ("ImageLocality", 5))},
            "score": {"enabled": refs(("ImageLocality", 3))},
        },
        [("ImageLocality", 3), *defaults_without("ImageLocality")],
    ),
    (
        "a negative weight is let pass as the last one",
        {"multiPoint": {"enabled": refs(("ImageLocality", -9))}},
        [*defaults_without("ImageLocality"), ("ImageLocality", -9)],
    ),
    (
        "an own plugin in multiPoint follows the defaults",
        {"multiPoint": {"enabled": refs(("OwnScorer", 5))}},
        [*defaults_without(), ("OwnScorer", 5)],
    ),
    (
        "a whole number may be written with a point",
        {"score": {"enabled": [{"name": "ImageLocality", "weight": 4.0}]}},
        [("ImageLocality", 4), *defaults_without("ImageLocality")],
    ),
]


@pytest.mark.parametrize(("plugins", "expected"), [c[1:] for c in SCORE_CASES], ids=[c[0] for c in SCORE_CASES])
def test_order_and_weights_at_score(plugins: Plugins, expected: list[tuple[str, int]]) -> None:
    assert weights(profile_with(plugins)) == expected


POINT_CASES: list[tuple[str, Plugins, dict[str, tuple[str, ...]]]] = [
    (
        "* in multiPoint leaves nothing but what the file enables",
        {
            "multiPoint": {"disabled": refs("*"), "enabled": refs("NodePorts", "PrioritySort", "DefaultBinder")},
            "filter": {"enabled": refs("NodeName")},
        },
        {
            **dict.fromkeys(EXPANDED, ()),
            "queueSort": ("PrioritySort",),
            "preFilter": ("NodePorts",),
            "filter": ("NodePorts", "NodeName"),
            "score": (),
            "bind": ("DefaultBinder",),
        },
    ),
    (
        "points alone, without multiPoint",
        {
            "multiPoint": {"disabled": refs("*")},
            "queueSort": {"enabled": refs("PrioritySort")},
            "bind": {"enabled": refs("DefaultBinder")},
            "score": {"enabled": refs("ImageLocality")},
        },
        {
            **dict.fromkeys(EXPANDED, ()),
            "queueSort": ("PrioritySort",),
            "score": ("ImageLocality",),
            "bind": ("DefaultBinder",),
        },
    ),
    (
        "disabling at one point concerns that point only; unknown names under disabled are let pass",
        {
            "preEnqueue": {"disabled": refs("*")},
            "preFilter": {"disabled": refs("VolumeBinding", "NoSuchPlugin")},
            "reserve": {"disabled": refs("VolumeBinding")},
        },
        {
            **EXPANDED,
            "preEnqueue": (),
            "preFilter": tuple(name for name in EXPANDED["preFilter"] if name != "VolumeBinding"),
            "reserve": ("DynamicResources",),
        },
    ),
    (
        "multiPoint: disabled and enabled again goes last, listed again stays",
        {
            "multiPoint": {
                "disabled": refs("DefaultPreemption", "NodeName", "NoSuchPlugin"),
                "enabled": refs("NodeName", "DefaultPreemption", "VolumeZone"),
            }
        },
        {**EXPANDED, "filter": (*(name for name in EXPANDED["filter"] if name != "NodeName"), "NodeName")},
    ),
    (
        "the order of a point without weights",
        {
            "filter": {"enabled": refs(("NodePorts", 9), "OwnFilter")},
            "preEnqueue": {
                "disabled": refs("DefaultPreemption", "SchedulingGates"),
                "enabled": refs("SchedulingGates"),
            },
            "preBind": {"enabled": refs("DynamicResources", "VolumeBinding")},
        },
        {
            **EXPANDED,
            "filter": ("NodePorts", *(name for name in EXPANDED["filter"] if name != "NodePorts"), "OwnFilter"),
            "preEnqueue": ("DynamicResources", "SchedulingGates"),
            "preBind": ("DynamicResources", "VolumeBinding"),
        },
    ),
    (
        "an in-tree plugin that is off by default",
        {"multiPoint": {"enabled": refs("GangScheduling")}},
        {**EXPANDED, "preEnqueue": (*EXPANDED["preEnqueue"], "GangScheduling"), "permit": ("GangScheduling",)},
    ),
    (
        "the points of group scheduling may be named",
        {"placementScore": {"enabled": refs(("PodGroupPodsCount", 6), "NodeResourcesFit")}},
        EXPANDED,
    ),
    (
        "another queue sort and another binder",
        {
            "queueSort": {"disabled": refs("PrioritySort"), "enabled": refs("OwnSort")},
            "multiPoint": {"enabled": refs("OwnBinder")},
        },
        {**EXPANDED, "queueSort": ("OwnSort",), "bind": ("DefaultBinder", "OwnBinder"), "postBind": ("OwnBinder",)},
    ),
]


@pytest.mark.parametrize(("plugins", "expected"), [c[1:] for c in POINT_CASES], ids=[c[0] for c in POINT_CASES])
def test_order_at_the_points(plugins: Plugins, expected: dict[str, tuple[str, ...]]) -> None:
    profile = profile_with(plugins)
    assert {point: names_at(profile, point) for point in expected} == expected


def test_weights_count_at_score_only() -> None:
    profile = profile_with({"filter": {"enabled": refs(("NodePorts", 9))}})
    assert profile.plugins[ExtensionPoint.FILTER][0] == PluginRef("NodePorts", 0)


def test_profiles_are_independent_and_in_order() -> None:
    config = load_config(
        {
            "percentageOfNodesToScore": 30,
            "profiles": [
                {"schedulerName": "one", "percentageOfNodesToScore": 100},
                {"schedulerName": "two", "plugins": {"filter": {"disabled": refs("*")}}},
                {"schedulerName": "three", "percentageOfNodesToScore": 0},
            ],
        }
    )
    assert config.percentage_of_nodes_to_score == 30
    assert [p.scheduler_name for p in config.profiles] == ["one", "two", "three"]
    assert [p.percentage_of_nodes_to_score for p in config.profiles] == [100, None, 0]
    assert [len(names_at(p, "filter")) for p in config.profiles] == [14, 0, 14]


@pytest.mark.parametrize("points_of", [OWN.__getitem__, lambda name: OWN.get(name, ())])
def test_out_of_tree_plugins_are_known_by_their_points(points_of: Any) -> None:
    registry = flotilla_plugins(points_of, ["Strange"])
    plugins = {"multiPoint": {"enabled": refs("OwnFilter")}}
    (profile,) = load_config({"profiles": [{"plugins": plugins}]}, registry).profiles
    assert names_at(profile, "filter")[-1] == "OwnFilter"
    with pytest.raises(InvalidConfig, match=r"there is no plugin 'Stranger' \(did you mean Strange\?\)"):
        load_config({"profiles": [{"plugins": {"multiPoint": {"enabled": refs("Stranger")}}}]}, registry)


A, B = {"schedulerName": "a"}, {"schedulerName": "b"}

FAULTS: list[tuple[str, object, str]] = [
    ("not a map", [], ""),
    ("profiles not a list", {"profiles": {}}, "profiles"),
    ("profile not a map", {"profiles": ["x"]}, "profiles[0]"),
    ("unknown field", {"profiles": [{"SchedulerName": "x"}]}, "profiles[0].SchedulerName"),
    ("key that is no text", {"profiles": [{1: 2}]}, "profiles[0].1"),
    ("unknown point", {"profiles": [{"plugins": {"preempt": {}}}]}, "profiles[0].plugins.preempt"),
    ("unknown field of a point", {"profiles": [{"plugins": {"bind": {"on": []}}}]}, "profiles[0].plugins.bind.on"),
    (
        "unknown field of a plugin",
        {"profiles": [{"plugins": {"bind": {"enabled": [{"name": "DefaultBinder", "order": 1}]}}}]},
        "profiles[0].plugins.bind.enabled[0].order",
    ),
    (
        "weight as text",
        {"profiles": [{"plugins": {"score": {"enabled": [{"name": "ImageLocality", "weight": "1"}]}}}]},
        "profiles[0].plugins.score.enabled[0].weight",
    ),
    (
        "weight with a fraction",
        {"profiles": [{"plugins": {"score": {"enabled": [{"name": "ImageLocality", "weight": 1.5}]}}}]},
        "profiles[0].plugins.score.enabled[0].weight",
    ),
    (
        "weight beyond 32 bits",
        {"profiles": [{"plugins": {"score": {"enabled": refs(("ImageLocality", 2**31))}}}]},
        "profiles[0].plugins.score.enabled[0].weight",
    ),
    ("name that is no text", {"profiles": [{"schedulerName": 5}]}, "profiles[0].schedulerName"),
    ("percentage below", {"percentageOfNodesToScore": -1}, "percentageOfNodesToScore"),
    ("percentage above", {"percentageOfNodesToScore": 101}, "percentageOfNodesToScore"),
    ("percentage as text", {"percentageOfNodesToScore": "5"}, "percentageOfNodesToScore"),
    (
        "percentage of a profile, before the scheduler's",
        {"percentageOfNodesToScore": 101, "profiles": [A, {**B, "percentageOfNodesToScore": -3}]},
        "profiles[1].percentageOfNodesToScore",
    ),
    ("no name among two", {"profiles": [A, {}]}, "profiles[1].schedulerName"),
    ("empty name", {"profiles": [{"schedulerName": ""}]}, "profiles[0].schedulerName"),
    ("name twice", {"profiles": [A, B, A]}, "profiles[2].schedulerName"),
    (
        "older plugin at a point that is not its own",
        {"profiles": [{"plugins": {"score": {"enabled": refs("ImageLocality", "CinderLimits")}}}]},
        "profiles[0].plugins.score.enabled[1]",
    ),
    (
        "two queue sorts at the point",
        {"profiles": [{"plugins": {"queueSort": {"enabled": refs("PrioritySort", "OwnSort")}}}]},
        "profiles[0].plugins.queueSort.Enabled",
    ),
    (
        "two queue sorts in multiPoint",
        {"profiles": [{"plugins": {"multiPoint": {"enabled": refs("OwnSort")}}}]},
        "profiles[0].plugins.queueSort",
    ),
    (
        "no queue sort",
        {"profiles": [{"plugins": {"queueSort": {"disabled": refs("*")}}}]},
        "profiles[0].plugins.queueSort",
    ),
    (
        "queue sort at the point of one profile only",
        {"profiles": [A, {**B, "plugins": {"queueSort": {"enabled": refs("PrioritySort")}}}]},
        "profiles[1].plugins.queueSort",
    ),
    (
        "queue sort by multiPoint of one profile only",
        {
            "profiles": [
                A,
                {**B, "plugins": {"multiPoint": {"disabled": refs("PrioritySort"), "enabled": refs("OwnSort")}}},
            ]
        },
        "profiles[1].plugins.queueSort",
    ),
    (
        "arguments of the queue sort at the point",
        {
            "profiles": [
                {
                    "schedulerName": name,
                    "plugins": {"queueSort": {"enabled": refs("PrioritySort")}},
                    "pluginConfig": [{"name": "PrioritySort", "args": {"x": name}}],
                }
                for name in "ab"
            ]
        },
        "profiles[1].pluginConfig.args",
    ),
    (
        "arguments of the queue sort in multiPoint",
        {"profiles": [A, {**B, "pluginConfig": [{"name": "PrioritySort", "args": {"x": 1}}]}]},
        "profiles[1].pluginConfig",
    ),
    ("no binder", {"profiles": [{"plugins": {"bind": {"disabled": refs("*")}}}]}, "profiles[0].plugins.bind"),
    (
        "twice at a point",
        {"profiles": [{"plugins": {"filter": {"enabled": refs("NodeName", "NodePorts", "NodeName")}}}]},
        "profiles[0].plugins.filter.enabled[2]",
    ),
    (
        "twice in multiPoint",
        {
            "profiles": [
                {
                    "plugins": {
                        "multiPoint": {
                            "disabled": refs("ImageLocality"),
                            "enabled": refs("ImageLocality", "NodeName", "ImageLocality"),
                        }
                    }
                }
            ]
        },
        "profiles[0].plugins.multiPoint.enabled[2]",
    ),
    (
        "unknown at a point",
        {"profiles": [{"plugins": {"score": {"enabled": refs("ImageLocality", "Nope")}}}]},
        "profiles[0].plugins.score.enabled[1]",
    ),
    (
        "unknown in multiPoint",
        {"profiles": [A, {**B, "plugins": {"multiPoint": {"enabled": refs("NodeName", "Nope")}}}]},
        "profiles[1].plugins.multiPoint.enabled[1]",
    ),
    (
        "* under enabled",
        {"profiles": [{"plugins": {"multiPoint": {"enabled": refs("*")}}}]},
        "profiles[0].plugins.multiPoint.enabled[0]",
    ),
    (
        "entry that is null",
        {"profiles": [{"plugins": {"score": {"enabled": [None]}}}]},
        "profiles[0].plugins.score.enabled[0]",
    ),
    (
        "point not implemented",
        {"profiles": [{"plugins": {"preFilter": {"enabled": refs("TaintToleration")}}}]},
        "profiles[0].plugins.preFilter.enabled[0]",
    ),
    (
        "point of an own plugin not implemented",
        {"profiles": [{"plugins": {"permit": {"enabled": refs("OwnFilter")}}}]},
        "profiles[0].plugins.permit.enabled[0]",
    ),
    (
        "point of group scheduling not implemented",
        {"profiles": [{"plugins": {"placementGenerate": {"enabled": refs("NodeResourcesFit")}}}]},
        "profiles[0].plugins.placementGenerate.enabled[0]",
    ),
    (
        "a negative weight before others overflows",
        {"profiles": [{"plugins": {"score": {"enabled": refs(("NodeResourcesFit", -5))}}}]},
        "profiles[0].plugins.score",
    ),
    (
        "configured twice",
        {"profiles": [{"pluginConfig": [{"name": "X"}, {"name": "Y"}, {"name": "X"}]}]},
        "profiles[0].pluginConfig[2]",
    ),
    (
        "unknown field of a plugin's configuration",
        {"profiles": [{"pluginConfig": [{"name": "X", "arg": {}}]}]},
        "profiles[0].pluginConfig[0].arg",
    ),
]


@pytest.mark.parametrize(("obj", "path"), [c[1:] for c in FAULTS], ids=[c[0] for c in FAULTS])
def test_errors_name_their_path(obj: object, path: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        load_config(obj, flotilla_plugins(lambda name: OWN.get(name, ())))
    assert caught.value.path == path


OLDER = ("SelectorSpread", "NodePreferAvoidPods", "EBSLimits", "GCEPDLimits", "AzureDiskLimits", "CinderLimits")


def test_older_plugins_run_where_a_file_enables_them() -> None:
    profile = profile_with({"multiPoint": {"enabled": refs(*OLDER)}})
    assert names_at(profile, "filter")[-4:] == OLDER[2:]
    assert names_at(profile, "score")[-2:] == OLDER[:2]
    assert names_at(profile, "preScore")[-1] == "SelectorSpread"
    assert not set(OLDER) & {name for point in EXPANDED for name in EXPANDED[point]}


def test_kube_schedulers_own_registry_has_no_older_plugins() -> None:
    values = {
        "profiles": [
            {
                "plugins": {"filter": {"enabled": refs("EBSLimits")}, "multiPoint": {"enabled": refs("CinderLimits")}},
                "pluginConfig": [{"name": "GCEPDLimits", "args": {}}],
            }
        ]
    }
    with pytest.raises(InvalidConfigFile) as caught:
        read_config_values(values, kube_scheduler_plugins())
    assert caught.value.stage is Stage.VALIDATE
    assert [problem.path for problem in caught.value.problems] == [
        "profiles[0].plugins.filter.enabled[0]",
        "profiles[0].pluginConfig[0]",
    ]
    assert read_config_values(values).config.profiles[0].plugins[ExtensionPoint.FILTER][-1].name == "EBSLimits"


def test_all_errors_of_a_stage_are_reported() -> None:
    plugins = {
        "filter": {"enabled": refs("NodeName", "Nope", "NodeName", "ImageLocality")},
        "bind": {"disabled": refs("*")},
    }
    with pytest.raises(InvalidConfigFile) as caught:
        load({**A, "plugins": plugins}, {**B, "plugins": {"multiPoint": {"enabled": refs("Nix")}}})
    assert caught.value.stage is Stage.BUILD
    assert [problem.path for problem in caught.value.problems] == [
        "profiles[0].plugins.filter.enabled[1]",
        "profiles[0].plugins.filter.enabled[2]",
        "profiles[0].plugins.filter.enabled[3]",
        "profiles[1].plugins.multiPoint.enabled[0]",
    ]
    assert caught.value.lines() == [problem.message for problem in caught.value.problems]


def test_a_loaded_configuration_is_returned_as_it_is() -> None:
    config = load_config({"percentageOfNodesToScore": 7})
    assert load_config(config) is config
