"""Between cycle and workers: no node is feasible for these pods; who could make way for them?"""

from typing import Any

import msgspec

from flotilla.results import PostFilterResult, Status
from shared.messages.evaluation import Rejections, Summary
from shared.model.objects import Pod


class Victim(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A pod that would make way. `started`: since when it runs (Unix time); None counts as just now.

    `violates`: a disruption budget does not allow for it. `terminating`: it goes anyway. `budgets`: what is left of
    each budget about it, once it and those before it on its node are gone.
    """

    uid: str
    key: str
    priority: int = 0
    started: float | None = None
    violates: bool = False
    terminating: bool = False
    budgets: dict[str, int] = {}


class Candidate(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A node that would have room without its victims, the most important of whom comes first."""

    node: str
    victims: list[Victim]

    @property
    def violations(self) -> int:
        """How many victims a disruption budget does not allow for."""
        return sum(victim.violates for victim in self.victims)


class PreemptAsk(msgspec.Struct, frozen=True, omit_defaults=True):
    """`pod` stands for its class. `summaries`: the merged ones by which no node was feasible.

    `potential`: how many nodes of the cluster pods might make way on. `refused`, if somebody outside was asked about
    the nodes that are feasible here: those that were refused, and why. The others of these are out of the question.
    """

    class_id: str
    profile: str
    pod: Pod
    summaries: dict[str, Any] = {}
    potential: int = 0
    refused: dict[str, Status] | None = None


class Preempt(msgspec.Struct, frozen=True, omit_defaults=True, tag="preempt"):
    """`search` and `ask` only ever rise within an epoch. A worker answers once it has seen `min_seq`."""

    epoch: int
    search: int
    ask: int
    min_seq: int
    classes: list[PreemptAsk]


class ShardFindings(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one shard says about one class.

    `failure`: a plugin failed, and nothing else counts. `summary`: of the shard's nodes, as a round's answers have it.
    `others`: what the other PostFilter plugins said, as far as it came to them. `ineligible`: why the pod is not to
    preempt. `potential`: on how many nodes pods might make way; `rejections`: why it does not help there. `faults`:
    what went wrong on single nodes.
    """

    class_id: str
    failure: Status | None = None
    summary: Summary = Summary()
    others: dict[str, PostFilterResult] = {}
    ineligible: str = ""
    potential: int = 0
    candidates: list[Candidate] = []
    rejections: list[Rejections] = []
    faults: list[str] = []


class Candidates(msgspec.Struct, frozen=True, omit_defaults=True, tag="candidates"):
    """`seq` is what the worker had seen when it tried; `shards` are those that it answers for.

    `incarnation`: of the process that answers, as in its beats.
    """

    worker: str
    epoch: int
    search: int
    ask: int
    seq: int
    shards: list[int]
    findings: list[ShardFindings]
    incarnation: str = ""
