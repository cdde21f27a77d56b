"""Who waits for what: what a framework makes of its plugins' events."""

from collections.abc import Sequence

import pytest

from flotilla.events import ANY_EVENT, Action, Registration, Resource
from flotilla.plugin import Plugin
from shared.config.points import ExtensionPoint
from shared.framework.clusterevents import IMPLIED, LABELS, ClusterEvent, completed, names_of
from shared.framework.loading import load_frameworks
from shared.plugins.imagelocality import ImageLocality
from tests.framework.plugins import Uncordoned, framework

NEW_NODE = Registration(Resource.NODE, Action.ADD)


class Settled(Uncordoned):
    """For any event, a pod that it has rejected stays rejected."""

    name = "Settled"

    def events(self) -> Sequence[Registration]:
        return ()


@pytest.mark.parametrize(
    ("given", "implied"),
    [
        ((NEW_NODE,), True),
        ((Registration(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL),), True),
        ((Registration(Resource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT),), False),
        ((NEW_NODE, Registration(Resource.NODE, Action.UPDATE_NODE_TAINT)), False),
        ((Registration(Resource.NODE, Action.ALL),), False),
        ((Registration(Resource.NODE, Action.UPDATE_NODE_LABEL),), False),
        ((Registration(Resource.POD, Action.ADD),), False),
        (ANY_EVENT, False),
        ((), False),
    ],
)
def test_who_waits_for_new_nodes_hears_of_taints_as_well(given: tuple[Registration, ...], implied: bool) -> None:
    assert completed(given) == ((*given, IMPLIED) if implied else given)


def only(plugin: Plugin, point: ExtensionPoint) -> tuple[tuple[Registration, ...] | None, dict[Resource, Action]]:
    made = framework({point: (plugin.name,)}, plugin)
    return made.registrations.get(plugin.name), made.watched


def test_a_plugin_that_does_not_say_waits_for_any_event() -> None:
    made, watched = only(Uncordoned(), ExtensionPoint.FILTER)
    assert made == ANY_EVENT
    assert watched == dict.fromkeys((each.resource for each in ANY_EVENT), Action.ALL)


def test_a_plugin_may_wait_for_nothing() -> None:
    assert only(Settled(), ExtensionPoint.FILTER) == ((), {})


def test_a_plugin_that_rejects_no_pod_waits_for_nothing() -> None:
    assert only(ImageLocality(), ExtensionPoint.SCORE) == (None, {})


def test_the_plugins_of_older_releases_wait_as_well() -> None:
    enabled = [{"name": name} for name in ("EBSLimits", "GCEPDLimits", "AzureDiskLimits", "CinderLimits")]
    others = [{"name": name} for name in ("SelectorSpread", "NodePreferAvoidPods")]
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": {"filter": {"enabled": enabled}, "score": {"enabled": others}}}],
    }
    made = load_frameworks(config)["default-scheduler"]
    assert {each["name"] for each in enabled} <= made.registrations.keys()
    assert not {each["name"] for each in others} & made.registrations.keys()


# Matching


@pytest.mark.parametrize(
    ("made", "event", "matches"),
    [
        (Registration(Resource.POD, Action.DELETE), (Resource.ASSIGNED_POD, Action.DELETE), True),
        (Registration(Resource.POD, Action.DELETE), (Resource.UNSCHEDULABLE_POD, Action.DELETE), True),
        (Registration(Resource.POD, Action.UPDATE), (Resource.ASSIGNED_POD, Action.UPDATE_POD_LABEL), True),
        (Registration(Resource.POD, Action.UPDATE_POD_LABEL), (Resource.ASSIGNED_POD, Action.UPDATE), False),
        (NEW_NODE, (Resource.NODE, Action.UPDATE_NODE_LABEL), False),
        (NEW_NODE, (Resource.POD_GROUP, Action.ADD), False),
        (Registration(Resource.ANY, Action.ALL), (Resource.NODE, Action.ADD), True),
        (Registration(Resource.CSI_NODE, Action.ADD), (Resource.CSI_NODE, Action.UPDATE), False),
    ],
)
def test_a_registration_matches_by_resource_and_by_the_number_of_the_action(
    made: Registration, event: tuple[Resource, Action], matches: bool
) -> None:
    assert ClusterEvent(*event).matches(made) is matches


# Names


@pytest.mark.parametrize(
    ("actions", "names"),
    [
        (Action.ADD | Action.UPDATE_NODE_TAINT, ["Add", "UpdateNodeTaint"]),
        (Action.UPDATE, ["Update"]),
        (Action.ADD | Action.UPDATE, ["Add", "Update"]),
        (Action.ALL, ["Add", "Delete", "Update"]),
        (Action(0), []),
    ],
)
def test_all_updates_together_have_one_name(actions: Action, names: list[str]) -> None:
    assert names_of(actions) == names


def test_labels_tell_events_apart() -> None:
    assert len(set(LABELS)) == len(LABELS)
    assert {"UnschedulableTimeout", "ForceActivate", "AssignedPodDelete", "NodeUpdateNodeTaint"} <= set(LABELS)
