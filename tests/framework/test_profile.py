"""How a framework is made of a profile."""

from typing import Any

import pytest

from flotilla.plugin import QueueSortPlugin
from shared.cluster.nodetable import NodeTable
from shared.config.points import ExtensionPoint, PluginRef
from shared.config.structs import ProfileConfig
from shared.errors import InvalidConfig
from shared.framework.evaluator import ShardEvaluator
from shared.framework.profile import Framework
from shared.messages.evaluation import Ties
from shared.model.objects import Pod
from shared.plugins.queueandbind import PrioritySort
from testing.builders import pod
from tests.framework.plugins import AskedScore, FewPods, LabelScore, Uncordoned, framework, scripted

SCORE, FILTER, SORT = ExtensionPoint.SCORE, ExtensionPoint.FILTER, ExtensionPoint.QUEUE_SORT


def test_plugins_keep_the_order_of_each_point() -> None:
    journal: list[str] = []
    a, b = scripted("A", journal), scripted("B", journal)
    made = framework({ExtensionPoint.RESERVE: ["A", "B"], ExtensionPoint.PERMIT: ["B", "A"]}, a, b)
    assert [plugin.name for plugin in made.reserve] == ["A", "B"]
    assert [plugin.name for plugin in made.permit] == ["B", "A"]
    assert made.pre_bind == []


def test_weights_stand_in_the_order_of_the_score_plugins() -> None:
    made = framework({SCORE: [PluginRef("LabelScore", 7), PluginRef("AskedScore", 3)]}, AskedScore(), LabelScore())
    assert [plugin.name for plugin in made.score] == ["LabelScore", "AskedScore"]
    assert made.weights == [7, 3]


def test_a_plugin_is_made_once_from_its_args() -> None:
    made: list[Any] = []

    def factory(args: Any) -> PrioritySort:
        made.append(args)
        return PrioritySort()

    refs = {SORT: (PluginRef("PrioritySort"),)}
    Framework(ProfileConfig("p", 30, refs, {"PrioritySort": {"x": 1}}), {"PrioritySort": factory})
    assert made == [{"x": 1}]
    journal: list[str] = []
    both = framework({ExtensionPoint.RESERVE: ["A"], ExtensionPoint.BIND: ["A"]}, scripted("A", journal))
    assert id(both.reserve[0]) == id(both.bind[0])


def test_a_plugin_at_a_point_that_it_lacks_is_a_fault_of_the_configuration() -> None:
    with pytest.raises(InvalidConfig, match="FewPods does not run at this point") as caught:
        framework({SCORE: ["FewPods"]}, FewPods())
    assert caught.value.path == "profiles[test].plugins.score"


def test_an_unknown_plugin_is_a_fault_of_the_configuration() -> None:
    with pytest.raises(InvalidConfig, match="'Nonesuch'") as caught:
        framework({FILTER: ["Uncordoned", "Nonesuch"]}, Uncordoned())
    assert caught.value.path == "profiles[test].plugins"


class ByAge(QueueSortPlugin):
    name = "ByAge"

    def sort_key(self, pod: Pod, queued_at: float) -> float:
        return queued_at


@pytest.mark.parametrize("sorts", [[], ["ByAge", "PrioritySort"]])
def test_exactly_one_plugin_sorts_the_queue(sorts: list[str]) -> None:
    with pytest.raises(InvalidConfig) as caught:
        framework({SORT: sorts}, ByAge())
    assert caught.value.path == "profiles[test].plugins.queueSort"
    assert framework({SORT: ["ByAge"]}, ByAge()).queue_sort.name == "ByAge"


def test_the_signature_is_that_of_all_plugins() -> None:
    class Label(Uncordoned):
        name = "Label"

        def signature(self, pod: Pod) -> str:
            return pod.metadata.labels.get("app", "")

    def signatures(by: Framework, built: Pod) -> tuple[object, ...]:
        return by.template_signature(built), by.whole_signature(built)

    blind = framework({FILTER: ["Uncordoned"]}, Uncordoned())
    seeing = framework({FILTER: ["Uncordoned", "Label"]}, Uncordoned(), Label())
    web, db = pod("p").label(app="web").build(), pod("p").label(app="db").build()
    assert signatures(blind, web) == signatures(blind, db)
    assert signatures(seeing, web) != signatures(seeing, db)
    assert signatures(seeing, web) == signatures(seeing, pod("q").label(app="web", tier="x").build())


def test_weights_that_leave_no_room_for_ties_are_refused() -> None:
    heavy = framework({SCORE: [PluginRef("LabelScore", 2**40)]}, LabelScore())
    with pytest.raises(InvalidConfig, match="weights"):
        ShardEvaluator(NodeTable(), heavy, Ties())
