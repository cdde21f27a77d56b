"""What a question is and what is answered: plain data, in JSON with these names."""

from typing import Any, Literal

import msgspec

Verdict = Literal["scheduled", "unschedulable", "gated", "failed", "preempted", "ignored"]
"""`failed`: a plugin failed. `preempted`: it had a node, and was preempted by another pod of the question.
`ignored`: no profile is for its scheduler."""


class NodeGroup(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """At most `max` nodes that can be added, each at this price: like a node that there is, or as the template says."""

    name: str
    max: int
    price: float
    like: str = ""
    template: dict[str, Any] | None = None


class Question(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """`manifests`: Kubernetes objects to be created: pods, workloads, nodes, volumes and so on, as JSON.

    `add_nodes` nodes are added that are like the node `like`. `remove`: nodes that go; `drain`: nodes that get no more
    pods and lose those that they have. The pods of both are decided again as their owners would recreate them.
    `config`: a KubeSchedulerConfiguration instead of that of the pipeline. `without_pending`: pods that are pending now
    are not decided. `capacity`: how many more of the only pod fit, at most `limit`; by the values of the label `by`.
    `node_groups`: the cheapest nodes of these that make all pods fit, found in at most `steps` trials. `round_size`:
    pods decided together at most, as by a pipeline with this setting to which all pods come at once.
    """

    manifests: list[Any] = []
    add_nodes: int = 0
    like: str = ""
    remove: list[str] = []
    drain: list[str] = []
    config: dict[str, Any] | None = None
    without_pending: bool = False
    capacity: bool = False
    limit: int = 10_000
    by: str = ""
    node_groups: list[NodeGroup] = []
    steps: int = 200
    round_size: int = 1


class Victim(msgspec.Struct, frozen=True, omit_defaults=True):
    """A pod that is preempted, by `namespace/name`, and the node that it leaves. `violates`: the names of the
    PodDisruptionBudgets that do not allow it.
    """

    pod: str
    uid: str
    node: str
    priority: int
    preemptor: str
    violates: list[str] = []


class PodAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """`origin`: `new`, `pending (STATE)`, or `recreated from NODE`. `message`: as in the pod's condition, or why else.

    `nominated`: the node that is reserved for it, although it is not scheduled.
    """

    namespace: str
    name: str
    origin: str
    verdict: Verdict
    node: str = ""
    message: str = ""
    priority: int = 0
    nominated: str = ""
    victims: list[Victim] = []


class Capacity(msgspec.Struct, frozen=True, omit_defaults=True):
    """How many fit. `more`: the limit was reached, so more may fit. `groups`: by value of the label `by`.

    `message`: why no more fit.
    """

    total: int
    nodes: int
    by: str = ""
    groups: dict[str, int] = {}
    more: bool = False
    message: str = ""


class NodesNeeded(msgspec.Struct, frozen=True, omit_defaults=True):
    """The cheapest nodes found. `proven`: no cheaper set does the same. `steps`: sets that were tried.

    Not `complete`: some pods do not even fit with all nodes that the groups allow; the others fit on these.
    """

    counts: dict[str, int]
    price: float
    complete: bool
    proven: bool
    steps: int


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """`epoch`, `seq`, `at`: the state that was asked about, and its Unix time.

    `pods` in the order of the question, pending ones first. `nodes`: how many of them each node gets, or how many
    copies that a capacity counts. `victims`: all, in order. `lost`: pods of drained or removed nodes that no owner
    recreates. `notes`: what differs from the pipeline.
    """

    epoch: int
    seq: int
    at: float
    pods: list[PodAnswer] = []
    nodes: dict[str, int] = {}
    victims: list[Victim] = []
    lost: list[str] = []
    notes: list[str] = []
    capacity: Capacity | None = None
    capacity_before: Capacity | None = None
    needed: NodesNeeded | None = None

    def count(self, verdict: Verdict) -> int:
        return sum(pod.verdict == verdict for pod in self.pods)


def nodes_to_read(question: Question) -> list[str]:
    """The nodes of which a question needs the pods in full."""
    likes = [question.like, *(group.like for group in question.node_groups)]
    return list(dict.fromkeys(name for name in (*question.remove, *question.drain, *likes) if name))
