"""What is left of a tracker where the Filter of its plugin is not enabled."""

from typing import Any

from shared.cluster.load import PodLoad
from shared.framework.plugin import Place, Tracker


class AdmitsAll(Tracker):
    """Follows decisions and shifts scores, but rejects nothing."""

    def __init__(self, tracker: Tracker) -> None:
        self._tracker = tracker

    def admits(self, place: Place) -> bool:
        return True

    def concerns(self, load: PodLoad) -> bool:
        return self._tracker.concerns(load)

    def placed(self, class_id: str, load: PodLoad, place: Place) -> None:
        self._tracker.placed(class_id, load, place)

    def shift(self, place: Place, own: int) -> int:
        return self._tracker.shift(place, own)

    def summary(self) -> Any:
        return self._tracker.summary()
