"""NodeResourcesBalancedAllocation prefers nodes whose resources a pod would bring into balance.

The score is the change: 75 when the pod leaves the balance as it is, up to 100 when it mends it, down to 50 when it
spoils it.
"""

from collections.abc import Collection, Hashable, Sequence

import numpy as np

from flotilla.results import MAX_NODE_SCORE, SKIP, SUCCESS, Status
from shared.cluster.changes import Rows
from shared.config.args import NodeResourcesBalancedAllocationArgs
from shared.framework.cyclestate import CycleState
from shared.framework.normalize import Scores
from shared.framework.plugin import PodParts, PreScorePlugin, ScorePlugin
from shared.framework.view import NodeView
from shared.model.kinds import ObjectKind
from shared.model.objects import Pod
from shared.model.resources import balance_score_request, placed_requests
from shared.plugins.noderesources.kernels import balance
from shared.plugins.noderesources.scorer import shares

_REQUESTS = "requests"


class NodeResourcesBalancedAllocation(PreScorePlugin, ScorePlugin):
    name = "NodeResourcesBalancedAllocation"
    reads_of_pod = PodParts.TEMPLATE

    def __init__(self, args: NodeResourcesBalancedAllocationArgs) -> None:
        self._resources = tuple(resource.name for resource in args.resources)

    def signature(self, pod: Pod) -> Hashable:
        placed = tuple(sorted(placed_requests(pod).requests.items()))
        return self._amounts(pod), placed

    def reads_objects(self, state: CycleState) -> Collection[ObjectKind]:
        return ()

    def pre_score(self, state: CycleState) -> Status:
        requests = self._amounts(state.pod)
        if not any(requests):
            return SKIP
        state.write(self.name, _REQUESTS, requests)
        return SUCCESS

    def score(self, state: CycleState, view: NodeView) -> Scores:
        scores: Scores = self.score_all([state], None, view)[0]
        return scores

    def score_all(self, states: Sequence[CycleState], which: Rows | None, view: NodeView) -> Scores:
        requests = [self._requests(state) for state in states]
        found = shares(self._resources, requests, which, view, non_zero=False)
        after = found.used + found.request
        both = np.empty((2, *after.shape), dtype=np.int64)
        both[0], both[1] = after, found.used
        with_pod, without = balance(both, found.capacity, found.counted)
        half = MAX_NODE_SCORE // 2
        scores: Scores = half + (half + with_pod - without) // 2
        asks = np.array([any(amounts) for amounts in requests])
        return scores if asks.all() else scores * (asks[:, None] if which is None else asks[which])

    def _requests(self, state: CycleState) -> tuple[int, ...]:
        known: tuple[int, ...] | None = state.read(self.name, _REQUESTS)
        return self._amounts(state.pod) if known is None else known

    def _amounts(self, pod: Pod) -> tuple[int, ...]:
        return tuple(balance_score_request(pod, resource) for resource in self._resources)
