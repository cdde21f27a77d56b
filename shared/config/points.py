"""Name the extension points of a profile as a KubeSchedulerConfiguration does."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

EVERY_PLUGIN: Final = "*"
MULTI_POINT: Final = "multiPoint"
PLACEMENT_GENERATE: Final = "placementGenerate"
PLACEMENT_SCORE: Final = "placementScore"


class ExtensionPoint(StrEnum):
    """A place in a pod's scheduling at which plugins run; the value is the API's name of it."""

    PRE_ENQUEUE = "preEnqueue"
    QUEUE_SORT = "queueSort"
    PRE_FILTER = "preFilter"
    FILTER = "filter"
    POST_FILTER = "postFilter"
    PRE_SCORE = "preScore"
    SCORE = "score"
    RESERVE = "reserve"
    PERMIT = "permit"
    PRE_BIND = "preBind"
    BIND = "bind"
    POST_BIND = "postBind"


@dataclass(frozen=True, slots=True)
class PluginRef:
    """A plugin by name. The weight counts at the score point only; 0 means that none was given."""

    name: str
    weight: int = 0


POINTS_IN_ORDER: Final[tuple[str, ...]] = (
    ExtensionPoint.PRE_FILTER,
    ExtensionPoint.FILTER,
    ExtensionPoint.POST_FILTER,
    ExtensionPoint.RESERVE,
    ExtensionPoint.PRE_SCORE,
    ExtensionPoint.SCORE,
    ExtensionPoint.PRE_BIND,
    ExtensionPoint.BIND,
    ExtensionPoint.POST_BIND,
    ExtensionPoint.PERMIT,
    ExtensionPoint.PRE_ENQUEUE,
    ExtensionPoint.QUEUE_SORT,
    PLACEMENT_GENERATE,
    PLACEMENT_SCORE,
)
"""The order in which kube-scheduler fills the points. Nothing runs at the last two while group scheduling is off."""
