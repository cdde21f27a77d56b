"""Between cycle and workers: which victims would make a node feasible for these pods?"""

from typing import Any

import msgspec

from flotilla.results import PostFilterResult, Status
from shared.messages.evaluation import Rejections, Summary
from shared.model.base import Count, Integer, Seconds
from shared.model.objects import Pod


class Victim(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A pod to be evicted. `started`: when it began to run (Unix time); None counts as now.

    `violates`: a PodDisruptionBudget does not allow it. `terminating`: it is being deleted already. `budgets`: what
    each PodDisruptionBudget that covers it still allows, after it and the earlier victims on its node are gone.
    """

    uid: str
    key: str
    priority: Integer = 0
    started: Seconds | None = None
    violates: bool = False
    terminating: bool = False
    budgets: dict[str, Integer] = {}


class Candidate(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A node that would be feasible without these victims, the most important one first."""

    node: str
    victims: list[Victim]

    @property
    def violations(self) -> int:
        """The number of victims that a PodDisruptionBudget does not allow."""
        return sum(victim.violates for victim in self.victims)


class PreemptAsk(msgspec.Struct, frozen=True, omit_defaults=True):
    """`pod` represents its class. `summaries`: the merged ones with which no node was feasible.

    `potential`: the number of nodes in the cluster where preemption may help. `refused`: if an extender was asked
    about the nodes that are feasible here, those it refused and why; the others of them are ruled out.
    `private_claims`: as in a ClassAsk.
    """

    class_id: str
    profile: str
    pod: Pod
    summaries: dict[str, Any] = {}
    potential: Count = 0
    refused: dict[str, Status] | None = None
    private_claims: bool = False


class Preempt(msgspec.Struct, frozen=True, omit_defaults=True, tag="preempt"):
    """`search` and `ask` only rise within an epoch. A worker answers once it has applied the state up to `min_seq`."""

    epoch: Count
    search: Count
    ask: Count
    min_seq: Count
    classes: list[PreemptAsk]


class ShardFindings(msgspec.Struct, frozen=True, omit_defaults=True):
    """One shard's findings for one class.

    `failure`: a plugin failed, nothing else counts. `summary`: of the shard's nodes, as in a round's answers.
    `others`: results of the other PostFilter plugins that ran. `ineligible`: why the pod may not preempt.
    `potential`: the number of nodes where preemption may help; `rejections`: why it does not on these. `faults`:
    failures on single nodes.
    """

    class_id: str
    failure: Status | None = None
    summary: Summary = Summary()
    others: dict[str, PostFilterResult] = {}
    ineligible: str = ""
    potential: Count = 0
    candidates: list[Candidate] = []
    rejections: list[Rejections] = []
    faults: list[str] = []


class Candidates(msgspec.Struct, frozen=True, omit_defaults=True, tag="candidates"):
    """`seq`: the state that the worker searched; `shards`: those that it answers for.

    `incarnation`: of the sender, as in its heartbeats.
    """

    worker: str
    epoch: Count
    search: Count
    ask: Count
    seq: Count
    shards: list[Count]
    findings: list[ShardFindings]
    incarnation: str = ""
