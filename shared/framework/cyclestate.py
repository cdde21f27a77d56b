"""What the plugins of one profile worked out about one pod (or one class of equal pods) before looking at nodes."""

from typing import Any

from shared.model.objects import Pod


class CycleState:
    """Each plugin keeps its own state under its own name; a plugin in a skip set is not run at that point."""

    __slots__ = ("pod", "skip_filter", "skip_score", "states", "summaries")

    def __init__(self, pod: Pod) -> None:
        self.pod = pod
        self.states: dict[tuple[str, str], Any] = {}
        self.summaries: dict[str, Any] = {}
        self.skip_filter: set[str] = set()
        self.skip_score: set[str] = set()

    def write(self, plugin: str, key: str, value: Any) -> None:
        self.states[plugin, key] = value

    def read(self, plugin: str, key: str) -> Any:
        """None when nothing was written, as when a plugin's preparing point is switched off."""
        return self.states.get((plugin, key))
