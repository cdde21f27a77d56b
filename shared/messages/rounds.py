"""Between cycle and workers: questions about classes of pods, and the workers' proposals."""

import msgspec

from flotilla.results import Range, Status, Topology
from shared.cluster.devices import DeviceDecision, PlacedDevices
from shared.cluster.volumes import VolumeDecision
from shared.messages.evaluation import Rejections, Summary, Ties
from shared.model.base import Count, Integer
from shared.model.load import PodLoad
from shared.model.objects import Pod


class NominatedPod(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A pod that differs from its class by its nomination to this node only."""

    uid: str
    node: str


class ClassAsk(msgspec.Struct, frozen=True, omit_defaults=True):
    """A question about one class of pods. `pod` represents the class; it is omitted once the worker knows it.

    `each`: offer every feasible node once, and say why the others are not. `among`: consider only these nodes.
    `borrowed`: the guess is that of another class, because there is none of its own. `private_claims`: no other pending
    pod names a claim that one of these names, and each of them has claims of its own. `ahead`: further placements that
    the ladder is to have, if the answer lasts. `own_volumes`: the content of the volume claims of each pod, which no
    other pod uses; they change once a pod is decided, so each ask has another pod. `nominated`: pods of the class that
    go to the nodes that they are nominated to if they may, whatever else is feasible.
    """

    class_id: str
    profile: str
    count: Count
    pod: Pod | None = None
    guess: Summary | None = None
    each: bool = False
    among: list[str] | None = None
    borrowed: bool = False
    private_claims: bool = False
    ahead: Count = 0
    own_volumes: bytes = b""
    nominated: list[NominatedPod] = []


class Scope(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a step of a gang differs from any round.

    `within`: consider only nodes with these labels. `count_by`: no placements, but how many pods of each class would
    fit, by the values of these labels, which may be none. `options`: list up to this many of the best nodes, each once.
    `values_of`: tell the values of the `count_by` labels on these nodes.
    """

    within: dict[str, str] = {}
    count_by: list[str] | None = None
    options: Count = 0
    values_of: list[str] = []


class Given(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A member of the same gang that is already assigned to this node in this round. `load` is an index into the ask's
    loads. `name`: of a pod with a decision about devices.
    """

    uid: str
    node: str
    load: Count
    volumes: VolumeDecision | None = None
    devices: DeviceDecision | None = None
    name: str = ""


class Propose(msgspec.Struct, frozen=True, omit_defaults=True, tag="propose"):
    """`round` and `ask` only rise within an epoch. A worker answers once it has applied the state up to `min_seq`.

    `keys`: node labels by whose values the round tracks its decisions. `given`: members of the same gang, to be
    treated as placed although the state does not show them. `scope`: of a gang, if its step is not like any round.
    `gone`: uids of pods that are to be treated as gone; `unreserved`: of pods whose nominations reserve nothing.
    `beside`: classes of which an answer that lasts is to tell what its placements mean for them.
    """

    epoch: Count
    round: Count
    ask: Count
    min_seq: Count
    ties: Ties
    classes: list[ClassAsk]
    keys: list[str] = []
    given: list[Given] = []
    loads: list[PodLoad] = []
    scope: Scope | None = None
    gone: list[str] = []
    unreserved: list[str] = []
    beside: list[str] = []


class Ladder(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A shard's best placements for one class in greedy order, each as if the ones before it were taken.

    `complete`: there are no further ones. `ties` break equal scores, the larger one wins. `domains`: the nodes'
    values of the requested labels. With `strata` there is one ladder per combination of values of these labels, one
    after the other; `cut` lists the combinations that could continue. `volumes` and `devices`, if any: what each
    placement decides about these. `choices`, if another class of the ask may take its volumes: for each binding, the
    free volumes that the claim can get there, in the order in which it would; empty if it can get no other. `fills`:
    after which placements their node has no room for another pod, by index, if the answer lasts.
    """

    nodes: list[str] = []
    scores: list[Integer] = []
    ties: list[Integer] = []
    complete: bool = True
    domains: dict[str, list[str | None]] = {}
    strata: tuple[str, ...] = ()
    cut: list[list[str | None]] = []
    volumes: list[VolumeDecision | None] = []
    devices: list[PlacedDevices | None] = []
    choices: list[list[list[str]]] = []
    fills: list[Count] = []


class ScoreGroup(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Feasible nodes of a shard that have one raw score of the plugin that the cycle follows, whatever is decided.

    `values`: of the labels that the plugin looks at. `pods`: how many it counts on each of the nodes, or a negative
    number with a meaning of its own. `count`: how many nodes there are. `nodes`: the best of them, with their total
    `scores` without that plugin's, and `ties`. `next_scores`, `next_ties`: the same once a pod of the class was placed
    there; -1 if no other one fits then.
    """

    values: list[str | None]
    pods: Integer
    count: Count
    nodes: list[str] = []
    scores: list[Integer] = []
    ties: list[Integer] = []
    next_scores: list[Integer] = []
    next_ties: list[Integer] = []


class Places(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """For how many pods of a class the nodes with these values of the labels have room, if only they are placed.

    `nodes`: feasible ones, and the sum of their scores.
    """

    values: list[str | None]
    places: Count
    nodes: Count = 0
    score: Integer = 0


class KeptOut(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A nominated pod that may not go to its own node, if there is more to say than of its class.

    `status` rejects it there, and `of_class` others of its class; None if it is the same. `in_vain`: what PostFilter
    plugins say, if they cannot help.
    """

    uid: str
    status: Status | None = None
    of_class: Status | None = None
    in_vain: str = ""


class OwnNodes(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """About the nominated pods of a class whose nodes the shard has. `ladder`: the node of each pod that may go there.

    Scores are left out, as no other node is compared.
    """

    fit: list[str] = []
    ladder: Ladder = Ladder()
    unfit: list[KeptOut] = []


class ClassAnswer(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """`unknown`: ask again with the pod. `failure`: a plugin failed. `pre_filter`: PreFilter rejected all nodes.

    `score_failure`: PreScore failed, which fails the attempt if there is more than one feasible node.
    `restricted_by`: plugins whose PreFilter restricted the nodes. `rejections` are counted only if the shard has no
    feasible node. `via_nominated`: the ladder holds only the pod's own nominated node, which is feasible.
    `by_itself`: evaluated with the shard's own summary, because there was no usable guess. `topology`: the labels
    by which other decisions of the round affect this class, if any. `runner_up`: the second best node and its score, if
    the ladder has only one node. `places`: what was counted; `limited_by`: the plugins that reject further pods.
    `lasts`: what remains of the ladder stays right until something else is written in these shards than its placements,
    in its order, and labels of placed pods. `own_volumes`: judged for all pods whose volume claims have the ask's
    content. Decisions about volumes then number the claims. Without it, the state shows other claims, or the worker is
    of the last release.
    `own_nodes`: about the nominated pods of the ask, if there are any.
    `beside`, if the answer lasts: for classes that the ask named, and of which the worker can tell, the total score of
    the node of each placement once it is taken; -1 if the node is not feasible for them then, 0 if it never was. Of a
    class that is followed, without the score that is.
    `ranges`, likewise: of this class and of those, the ranges of raw scores by which they are scored here, but for that
    score.
    `followed`: it does not last, as a plugin's raw scores change with every placement; but the cycle can follow these.
    `groups`, in such an answer to an ask for placements ahead: the best nodes in place of placements, which would have
    other scores by then. Then `beside` is about these nodes, group by group.
    """

    class_id: str
    unknown: bool = False
    failure: Status | None = None
    pre_filter: Status | None = None
    score_failure: Status | None = None
    summary: Summary = Summary()
    ladder: Ladder = Ladder()
    rejections: list[Rejections] = []
    restricted_by: tuple[str, ...] = ()
    topology: Topology | None = None
    via_nominated: bool = False
    by_itself: bool = False
    runner_up: tuple[str, Integer] | None = None
    places: list[Places] = []
    limited_by: tuple[str, ...] = ()
    lasts: bool = False
    own_volumes: bool = False
    own_nodes: OwnNodes | None = None
    beside: dict[str, list[Integer]] = {}
    ranges: dict[str, dict[str, Range]] = {}
    followed: bool = False
    groups: list[ScoreGroup] = []


class Proposals(msgspec.Struct, frozen=True, omit_defaults=True, tag="proposals"):
    """`seq`: the state that the worker evaluated; `shards`: those that it answers for.

    `incarnation`: of the sender, as in its heartbeats. `values`: of the scope's nodes that it has. `individual_labels`:
    those by which placed pods, services and stateful sets select pods; None from a worker of the last release.
    """

    worker: str
    epoch: Count
    round: Count
    ask: Count
    seq: Count
    shards: list[Count]
    answers: list[ClassAnswer]
    incarnation: str = ""
    values: dict[str, list[str | None]] = {}
    individual_labels: list[str] | None = None
