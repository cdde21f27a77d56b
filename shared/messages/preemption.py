"""Between cycle and workers: which victims would make a node feasible for these pods?"""

from typing import Any

import msgspec

from flotilla.results import PostFilterResult, Status
from shared.messages.evaluation import Rejections, Summary
from shared.messages.rounds import Given
from shared.model.base import Count, Integer, Seconds
from shared.model.load import PodLoad
from shared.model.objects import Pod

MAX_POSSIBLE = 64
"""Pods, and groups that go whole, that may all be taken to be gone: each is tried to be put back then."""


class Victim(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A pod to be evicted. `started`: when it began to run (Unix time); None counts as now.

    `violates`: a PodDisruptionBudget does not allow it. `terminating`: it is being deleted already. `budgets`: what
    each PodDisruptionBudget that covers it still allows, after it and the earlier victims on its node are gone.
    `priority`: that of its group or tree, if this has one. `group`: names the group with all of whose pods it is
    evicted (PodGroup.evicted_with). `node`: set only where it is not on the node of a candidate.
    """

    uid: str
    key: str
    priority: Integer = 0
    started: Seconds | None = None
    violates: bool = False
    terminating: bool = False
    budgets: dict[str, Integer] = {}
    group: str = ""
    node: str = ""


class Candidate(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A node that would be feasible without these victims, the most important one first.

    `members`: for how many members of a gang; only these have candidates without victims. `domain`: the node's values
    of the labels that were asked for. `violates`: the PodDisruptionBudgets, by namespace and name, that do not allow
    these evictions; in explanations only.
    """

    node: str
    victims: list[Victim]
    members: Count = 1
    domain: tuple[str, ...] = ()
    violates: tuple[str, ...] = ()

    @property
    def violations(self) -> int:
        """The number of victims that a PodDisruptionBudget does not allow."""
        return sum(victim.violates for victim in self.victims)


class PreemptAsk(msgspec.Struct, frozen=True, omit_defaults=True):
    """`pod` represents its class. `summaries`: the merged ones with which no node was feasible.

    `potential`: the number of nodes in the cluster where preemption may help. `refused`: if an extender was asked
    about the nodes that are feasible here, those it refused and why; the others of them are ruled out.
    `private_claims`, `own_volumes`: as in a ClassAsk. `members`: of a gang, how many pods of the class want room;
    0 for a single pod. `spares`: the groups of the pods, as `group_of` names them, whose pods are
    never victims here.
    """

    class_id: str
    profile: str
    pod: Pod
    summaries: dict[str, Any] = {}
    potential: Count = 0
    refused: dict[str, Status] | None = None
    private_claims: bool = False
    members: Count = 0
    own_volumes: bytes = b""
    spares: list[str] = []


class GangAsk(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a search for a gang supposes, and for whom it is.

    `priority`: that of the gang; pods of lower priority may be victims. `nominated`: the gang's earlier nominations, by
    uid, which reserve nothing from it. `given`: members that have found room. `gone`: uids of victims
    so far. `gone_groups`: groups that are evicted as a whole. `whole_groups`: whether such groups may be victims.
    `keys`: the labels whose values are a gang's domain: it goes to nodes that have all of them. `within`: only nodes of
    this domain; the values of the first of these labels. `names_possible`: which pods may be victims at all, instead of
    candidates.
    """

    priority: Integer
    nominated: dict[str, str] = {}
    given: list[Given] = []
    loads: list[PodLoad] = []
    gone: list[str] = []
    gone_groups: list[str] = []
    whole_groups: bool = False
    keys: list[str] = []
    within: tuple[str, ...] = ()
    names_possible: bool = False


class Preempt(msgspec.Struct, frozen=True, omit_defaults=True, tag="preempt"):
    """`search` and `ask` only rise within an epoch. A worker answers once it has applied the state up to `min_seq`.

    `gang`: the search is for members of one; then there is one class.
    """

    epoch: Count
    search: Count
    ask: Count
    min_seq: Count
    classes: list[PreemptAsk]
    gang: GangAsk | None = None


class ShardFindings(msgspec.Struct, frozen=True, omit_defaults=True):
    """One shard's findings for one class.

    `failure`: a plugin failed, nothing else counts. `summary`: of the shard's nodes, as in a round's answers.
    `others`: results of the other PostFilter plugins that ran. `ineligible`: why the pod may not preempt.
    `potential`: the number of nodes where preemption may help; `rejections`: why it does not on these. `faults`:
    failures on single nodes. For a gang, `budgets`: how many more evictions each PodDisruptionBudget allows that
    protects a victim; `gone`: all pods of the `gone_groups`; `kept_groups`: the groups, or enough of them, whose pods
    could be victims only with all of their group. `possible`: all pods that may be victims, if these are wanted;
    `has_more`: they are more than MAX_POSSIBLE pods and groups that go whole. `spared`: the groups of the ask of which
    a pod of lower priority was spared.
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
    budgets: dict[str, Integer] = {}
    gone: list[Victim] = []
    kept_groups: list[str] = []
    possible: list[Victim] = []
    has_more: bool = False
    spared: list[str] = []


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
