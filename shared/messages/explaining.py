"""Explanations of one pod: asked of the cycle by people's tools, and by the cycle of all workers.

Nothing here changes a decision. All lists are bounded; counts are of all nodes.
"""

import msgspec

from flotilla.results import Status
from shared.messages.evaluation import Summary
from shared.messages.preemption import Candidate
from shared.model.base import Count, Integer, Seconds
from shared.model.objects import Pod

MAX_EXAMPLES = 3
"""Nodes, or pods, named as examples of a group."""
MAX_NAMED = 16_384
"""Nodes of one group that are named if all are asked for: with the longest names they fit a message."""
MAX_GROUPS = 32
"""Groups of nodes, and causes of one plugin, in an explanation."""
MAX_ASKED_NODES = 8
"""Nodes about which one request asks by name."""
MAX_SUPPOSED = 64
"""Changes of the cluster that one request supposes."""
MAX_OFFERED = 1 << 15
"""Feasible nodes that extenders are asked about for an explanation."""
BEST_NODES = 5
"""Nodes with their scores in an explanation."""
PLACED, FAILED, NOMINATED, EVICTED = "placed", "failed", "nominated", "evicted"
"""Kinds of what is remembered of a pod."""


class NodeEdit(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Suppose that this node is not cordoned (`schedulable`), has these labels, too, or these `amounts` of resources.

    Amounts are in scheduler units.

    `copy`: suppose that of an empty copy of it, beside the node itself.
    """

    node: str
    copy: bool = False
    schedulable: bool = False
    labels: dict[str, str] = {}
    amounts: dict[str, Count] = {}


class SupposedPod(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A pod with these labels on this node, which asks for nothing."""

    node: str
    namespace: str
    labels: dict[str, str]


class Supposed(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """How the cluster differs from the real one. `gone`: pods, by uid, that are not there; `pods`: further ones."""

    nodes: tuple[NodeEdit, ...] = ()
    gone: tuple[str, ...] = ()
    pods: tuple[SupposedPod, ...] = ()

    @property
    def changes(self) -> int:
        return len(self.nodes) + len(self.gone) + len(self.pods)

    def also(self, other: "Supposed") -> "Supposed":
        return Supposed((*self.nodes, *other.nodes), (*self.gone, *other.gone), (*self.pods, *other.pods))


class ExplainPod(msgspec.Struct, frozen=True, omit_defaults=True, tag="explain-pod"):
    """To the cycle: explain this pod. With `body`, a Pod as msgpack, every node is judged for it as of now.

    Without a body only what is remembered of the pod with this namespace and name, or uid, is returned. `nodes`: those
    to be judged in detail. `brief`: only say on how many nodes it fits. `everywhere`: name all nodes that reject it.
    """

    namespace: str = ""
    name: str = ""
    uid: str = ""
    body: bytes = b""
    nodes: tuple[str, ...] = ()
    supposed: Supposed = Supposed()
    brief: bool = False
    everywhere: bool = False


class NamedPod(msgspec.Struct, frozen=True, array_like=True, gc=False):
    uid: str
    key: str
    node: str


class Rejected(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The nodes whose first rejection, in the profile's order of filters, is this. `names`: all, if asked for."""

    status: Status
    nodes: Count
    examples: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


class Blocked(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The nodes that exactly these plugins keep out, if all filters are asked."""

    plugins: tuple[str, ...]
    nodes: Count
    examples: tuple[str, ...] = ()


class Cause(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What it is about some nodes that a plugin rejects.

    `what`: resource, taints, cordon, labels, port, spread, affinity, anti-affinity, symmetric or volume; `name`: which.
    `nodes`: where it is so; `first`: where this plugin is the first to reject. For a resource, in scheduler units,
    `asked`, and over these nodes the most that is `free`, and the most that a node has in `whole`. `values`: labels of
    these nodes, or pods by domain. `pods`: some that are in the way.
    """

    plugin: str
    what: str
    name: str
    nodes: Count = 0
    first: Count = 0
    examples: tuple[str, ...] = ()
    asked: Count = 0
    free: Count = 0
    whole: Count = 0
    values: dict[str, str] = {}
    pods: tuple[NamedPod, ...] = ()


class Shortage(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A node that only a lack of these resources keeps the pod off, and how much of each is free there."""

    node: str
    free: dict[str, Integer]
    missing: Count
    """The largest missing share of a request, in thousandths; smaller shortages are listed first."""


class PluginScore(msgspec.Struct, frozen=True, array_like=True, gc=False):
    raw: Integer
    normalized: Integer
    weighted: Integer


class ScoredNode(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    node: str
    total: Integer
    plugins: dict[str, PluginScore] = {}


class NodeVerdict(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """All rejections of one node, the first filter's first; or its score."""

    node: str
    statuses: tuple[Status, ...] = ()
    score: ScoredNode | None = None
    causes: tuple[Cause, ...] = ()


class NodeModel(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Nodes of equal size that accept the pod but for their other pods; `node` is one of them."""

    node: str
    nodes: Count
    allocatable: dict[str, Count]
    instance_type: str = ""


class ExtendersSaid(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Extenders were asked about the `asked` nodes that plugins leave, and left `left` of them.

    `failure`: one failed, which fails the attempt. `troubles`: what ignorable ones failed with.
    """

    asked: Count
    left: Count
    failure: str = ""
    troubles: tuple[str, ...] = ()


class NodeFindings(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """How nodes were judged: those of a shard, or all.

    `failure`: a plugin failed. `pre_filter`: PreFilter rejects the pod everywhere. `restricted_by`: plugins whose
    PreFilter restricted the nodes. `feasible`: nodes on which it fits. `ineligible`: why it may not preempt;
    `candidates`: the best node to preempt on.
    """

    nodes: Count = 0
    feasible: Count = 0
    failure: Status | None = None
    pre_filter: Status | None = None
    restricted_by: tuple[str, ...] = ()
    rejected: tuple[Rejected, ...] = ()
    blocked: tuple[Blocked, ...] = ()
    causes: tuple[Cause, ...] = ()
    shortages: tuple[Shortage, ...] = ()
    best: tuple[ScoredNode, ...] = ()
    skipped_scores: tuple[str, ...] = ()
    verdicts: tuple[NodeVerdict, ...] = ()
    models: tuple[NodeModel, ...] = ()
    ineligible: str = ""
    candidates: tuple[Candidate, ...] = ()
    offers: tuple[tuple[str, Integer], ...] = ()
    """To the cycle only: all feasible nodes with their scores, at most `MAX_OFFERED`, for extenders."""
    extenders: ExtendersSaid | None = None


class ExplainNodes(msgspec.Struct, frozen=True, omit_defaults=True, tag="explain-nodes"):
    """To every worker: judge your nodes for this pod. `number` and `ask` only rise within an epoch.

    A worker answers once it has applied the state up to `min_seq`. `guess`: the summary to judge by; `borrowed`: it may
    be of another pod. `details`: say why, too; `everywhere`: name all nodes that reject it.
    """

    epoch: Count
    number: Count
    ask: Count
    min_seq: Count
    profile: str
    pod: Pod
    guess: Summary | None = None
    borrowed: bool = False
    nodes: tuple[str, ...] = ()
    supposed: Supposed = Supposed()
    details: bool = False
    everywhere: bool = False
    offers: bool = False
    """Name all feasible nodes."""


class ShardExplained(msgspec.Struct, frozen=True, omit_defaults=True, tag="shard-explained"):
    """`by_itself`: judged by the shard's own summary, because there was no usable guess."""

    worker: str
    epoch: Count
    number: Count
    ask: Count
    seq: Count
    shards: list[Count]
    findings: NodeFindings
    summary: Summary = Summary()
    by_itself: bool = False
    incarnation: str = ""


class Remembered(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What the cycle remembers of a pod's last decision of one kind. `at`: Unix time.

    `kind`: placed, failed, nominated or evicted. `seq`: the state that it was judged on. `best`: the best nodes for its
    class at the beginning of the round, the next best first after its own. `message`: why it failed. `victims`: who
    had to go for it; `preemptor`: for whom it had to go, with its priority in `score`. `candidates`: on how many nodes
    evictions would have helped. `kept_out_by`: the members of its `gang` that fitted nowhere, the
    first ones of `kept_out`. Of the gang, `needs` members must be placed, and `fits` found room; `gang_why`: one
    sentence about all of it, if there is more to say.
    """

    kind: str
    at: Seconds
    attempt: Count
    round: Count
    seq: Count
    node: str = ""
    score: Integer = 0
    best: tuple[ScoredNode, ...] = ()
    feasible: Count = 0
    nodes: Count = 0
    message: str = ""
    victims: tuple[str, ...] = ()
    preemptor: str = ""
    candidates: Count = 0
    gang: str = ""
    kept_out_by: tuple[str, ...] = ()
    fits: Count = 0
    needs: Count = 0
    kept_out: Count = 0
    gang_why: str = ""


class PodExplained(msgspec.Struct, frozen=True, omit_defaults=True, tag="pod-explained"):
    """`problem`: why there are no findings, if there should be. `now`: Unix time. `since`: when the journal began.

    `profiles`: the scheduler names that this pipeline serves. `weights`: by score plugin of the pod's profile.
    `extenders`: some filter or score this pod.
    """

    epoch: Count
    seq: Count
    now: Seconds
    since: Seconds
    profiles: tuple[str, ...] = ()
    weights: dict[str, Count] = {}
    findings: NodeFindings | None = None
    journal: tuple[Remembered, ...] = ()
    uid: str = ""
    """Of the pod that the journal is about."""
    problem: str = ""
    extenders: bool = False
