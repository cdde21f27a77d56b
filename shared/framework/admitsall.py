"""What is left of a tracker where the Filter of its plugin is not enabled."""

from typing import Any

from flotilla.results import NodeDomains
from shared.framework.plugin import Tracker
from shared.model.load import PodLoad


class AdmitsAll(Tracker):
    """Follows decisions and shifts scores, but rejects nothing."""

    def __init__(self, tracker: Tracker) -> None:
        self._tracker = tracker

    def admits(self, place: NodeDomains) -> bool:
        return True

    def concerns(self, load: PodLoad) -> bool:
        return self._tracker.concerns(load)

    def placed(self, class_id: str, load: PodLoad, place: NodeDomains) -> None:
        self._tracker.placed(class_id, load, place)

    def shift(self, place: NodeDomains, own: int) -> int:
        return self._tracker.shift(place, own)

    def summary(self) -> Any:
        return self._tracker.summary()
