"""What plugins keep between the points at which they are asked about one pod, or one class of pods."""

from typing import Any, Generic, TypeVar

from flotilla.objects import ClusterObjects, Pod

T = TypeVar("T")


class PluginError(ValueError):
    """A plugin cannot judge a pod: the pod's attempt fails with this message."""


class StateKey(Generic[T]):
    """A typed key for what a plugin keeps in a state. Make one for each value, as a constant of the module."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"StateKey({self.name!r})"


class _State:
    def __init__(self, pod: Pod) -> None:
        self.pod = pod
        self._values: dict[StateKey[Any], Any] = {}

    def __setitem__(self, key: StateKey[T], value: T) -> None:
        self._values[key] = value

    def __getitem__(self, key: StateKey[T]) -> T:
        value: T = self._values[key]
        return value

    def get(self, key: StateKey[T]) -> T | None:
        """None if nothing was written, for example because the plugin's PreFilter is disabled."""
        return self._values.get(key)


class ClassState(_State):
    """What plugins have worked out about one class of pods; lives as long as the class is cached.

    `pod` stands for the class. `summaries` and `feasible_summaries`: the merged ones, by plugin.
    """

    def __init__(self, pod: Pod, objects: ClusterObjects) -> None:
        super().__init__(pod)
        self.objects = objects
        self.summaries: dict[str, Any] = {}
        self.feasible_summaries: dict[str, Any] = {}


class BindingState(_State):
    """What plugins have worked out about one pod on its way from Reserve to PostBind.

    `activated`: uids of pods to retry at once, once this pod has its permits or is bound; plugins add to it.
    """

    def __init__(self, pod: Pod) -> None:
        super().__init__(pod)
        self.activated: set[str] = set()
