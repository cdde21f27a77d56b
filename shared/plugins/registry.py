"""Which in-tree plugins there are, and how each is made from its args."""

from collections.abc import Mapping
from typing import Any

from shared.framework.profile import Factory
from shared.plugins.defaultbinder import DefaultBinder
from shared.plugins.imagelocality import ImageLocality
from shared.plugins.nodeaffinity import NodeAffinity
from shared.plugins.nodename import NodeName
from shared.plugins.nodeports import NodePorts
from shared.plugins.noderesources.balanced import NodeResourcesBalancedAllocation
from shared.plugins.noderesources.fit import NodeResourcesFit
from shared.plugins.nodeunschedulable import NodeUnschedulable
from shared.plugins.prioritysort import PrioritySort
from shared.plugins.schedulinggates import SchedulingGates
from shared.plugins.tainttoleration import TaintToleration


def _without_args(plugin: type[Any]) -> Factory:
    return lambda args: plugin()


IN_TREE: Mapping[str, Factory] = {
    "SchedulingGates": _without_args(SchedulingGates),
    "PrioritySort": _without_args(PrioritySort),
    "NodeUnschedulable": _without_args(NodeUnschedulable),
    "NodeName": _without_args(NodeName),
    "TaintToleration": _without_args(TaintToleration),
    "NodeAffinity": NodeAffinity,
    "NodePorts": _without_args(NodePorts),
    "NodeResourcesFit": NodeResourcesFit,
    "NodeResourcesBalancedAllocation": NodeResourcesBalancedAllocation,
    "ImageLocality": _without_args(ImageLocality),
    "DefaultBinder": _without_args(DefaultBinder),
}
