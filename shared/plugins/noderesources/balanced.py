"""NodeResourcesBalancedAllocation prefers nodes whose resource use a pod would balance.

The score is the change: 75 if the pod leaves the balance as it is, up to 100 if it improves it, down to 50 if it
worsens it.
"""

from collections.abc import Hashable, Sequence

import numpy as np

from flotilla.plugin import (
    MAX_NODE_SCORE,
    SKIP,
    SUCCESS,
    BatchScore,
    ClassState,
    Index,
    NodeView,
    Pod,
    PodParts,
    PreScorePlugin,
    Scores,
    StateKey,
    Status,
)
from shared.config.args import NodeResourcesBalancedAllocationArgs
from shared.model.resources import balance_score_request, placed_requests
from shared.plugins.noderesources.kernels import balance, shares

REQUESTS = StateKey[tuple[int, ...]]("requests that balance is scored by")


class NodeResourcesBalancedAllocation(PreScorePlugin, BatchScore):
    name = "NodeResourcesBalancedAllocation"
    reads_of_pod = PodParts.TEMPLATE

    def __init__(self, args: NodeResourcesBalancedAllocationArgs) -> None:
        self._resources = tuple(resource.name for resource in args.resources)

    def signature(self, pod: Pod) -> Hashable:
        placed = tuple(sorted(placed_requests(pod).requests.items()))
        return self._amounts(pod), placed

    def reads_objects(self, state: ClassState) -> tuple[()]:
        return ()

    def pre_score(self, state: ClassState) -> Status:
        requests = self._amounts(state.pod)
        if not any(requests):
            return SKIP
        state[REQUESTS] = requests
        return SUCCESS

    def score_batch(self, states: Sequence[ClassState], which: Index | None, nodes: NodeView) -> Scores:
        requests = [self._requests(state) for state in states]
        found = shares(self._resources, requests, which, nodes, non_zero=False)
        after = found.used + found.request
        both = np.empty((2, *after.shape), dtype=np.int64)
        both[0], both[1] = after, found.used
        with_pod, without = balance(both, found.capacity, found.counted)
        half = MAX_NODE_SCORE // 2
        scores: Scores = half + (half + with_pod - without) // 2
        asks = np.array([any(amounts) for amounts in requests])
        return scores if asks.all() else scores * (asks[:, None] if which is None else asks[which])

    def _requests(self, state: ClassState) -> tuple[int, ...]:
        known = state.get(REQUESTS)
        return self._amounts(state.pod) if known is None else known

    def _amounts(self, pod: Pod) -> tuple[int, ...]:
        return tuple(balance_score_request(pod, resource) for resource in self._resources)
