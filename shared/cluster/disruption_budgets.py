"""Which PodDisruptionBudgets evictions take from, and which do not allow them."""

from collections import Counter
from collections.abc import Iterable

from shared.cluster.objects import ClusterObjects
from shared.model.load import PodLoad
from shared.model.objects import LabelSelector, PodDisruptionBudget
from shared.model.selectors import label_selector_matches

MAX_BUDGETS = 2
"""Violated budgets that are named for one victim: the eviction API allows a pod no more than one budget."""


def budgets_about(objects: ClusterObjects, load: PodLoad) -> list[PodDisruptionBudget]:
    """The budgets that cover a pod with this load, whether or not its disruption was counted in already."""
    in_namespace: Iterable[PodDisruptionBudget] = objects.disruption_budgets_in(load.namespace).values()
    return [budget for budget in in_namespace if _is_about(budget.spec.selector, load)]


def counts_already(budget: PodDisruptionBudget, pod_name: str) -> bool:
    """Whether the pod's disruption was counted in: its eviction takes nothing more."""
    return pod_name in budget.status.disrupted_pods


class BudgetCount:
    """What evictions take together from PodDisruptionBudgets, and which of these do not allow them.

    kube-scheduler counts pods of lower priority that stay, too, when it compares nodes: it sees violations that never
    happen. Here only victims count.
    """

    def __init__(self, objects: ClusterObjects) -> None:
        self._objects = objects
        self._taken: Counter[str] = Counter()

    def take(self, load: PodLoad, name: str) -> tuple[str, ...]:
        """Names the budgets that do not allow this eviction after those before, in alphabetical order."""
        if not self._objects.disruption_budgets:
            return ()
        violated: list[str] = []
        for budget in budgets_about(self._objects, load):
            if not counts_already(budget, name):
                self._taken[budget.key] += 1
                if self._taken[budget.key] > budget.status.disruptions_allowed:
                    violated.append(budget.name)
        return tuple(sorted(violated)[:MAX_BUDGETS])


def _is_about(selector: LabelSelector | None, load: PodLoad) -> bool:
    """A budget without a selector, or with an empty one, is about no pod; and none is about a pod without labels."""
    if selector is None or not (selector.match_labels or selector.match_expressions) or not load.labels:
        return False
    return label_selector_matches(selector, load.labels)
