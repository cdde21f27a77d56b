"""Which pods a disruption budget does not allow to be taken away."""

from collections.abc import Iterable

from flotilla.objects import ClusterObjects
from shared.cluster.nodetable import LoadKind, Placed
from shared.model.load import PodLoad
from shared.model.objects import LabelSelector, PodDisruptionBudget
from shared.model.selectors import label_selector_matches


class Budgets:
    """For one search: the budgets of each kind of pod are looked for once."""

    def __init__(self, objects: ClusterObjects) -> None:
        self._objects = objects
        self._any = bool(objects.disruption_budgets)
        self._of_kind: dict[LoadKind, list[PodDisruptionBudget]] = {}

    def violating(self, pods: Iterable[Placed]) -> list[bool]:
        """Of the pods of one node in this order: whether a budget is used up once all before it are gone.

        Every pod takes from all budgets that are about it, whether there is anything left or not. One whose disruption
        was counted in already takes nothing.
        """
        return [any(allowed < 0 for allowed in left.values()) for left in self.left_after(pods)]

    def left_after(self, pods: Iterable[Placed]) -> list[dict[str, int]]:
        """As violating: what is left of each budget about a pod, by the budget's key."""
        if not self._any:
            return [{} for _ in pods]
        left: dict[str, int] = {}
        return [self._take(pod, left) for pod in pods]

    def _take(self, pod: Placed, left: dict[str, int]) -> dict[str, int]:
        taken_from: dict[str, int] = {}
        for budget in self._about(pod.kind):
            if pod.key.partition("/")[2] not in budget.status.disrupted_pods:
                left[budget.key] = left.get(budget.key, budget.status.disruptions_allowed) - 1
                taken_from[budget.key] = left[budget.key]
        return taken_from

    def _about(self, kind: LoadKind) -> list[PodDisruptionBudget]:
        found = self._of_kind.get(kind)
        if found is None:
            in_namespace = self._objects.disruption_budgets_in(kind.load.namespace).values()
            found = self._of_kind[kind] = [b for b in in_namespace if _is_about(b.spec.selector, kind.load)]
        return found


def _is_about(selector: LabelSelector | None, load: PodLoad) -> bool:
    """A budget without a selector, or with an empty one, is about no pod; and none is about a pod without labels."""
    if selector is None or not (selector.match_labels or selector.match_expressions) or not load.labels:
        return False
    return label_selector_matches(selector, load.labels)
