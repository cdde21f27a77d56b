"""Between cycle and workers: what would you propose, and the proposals."""

import msgspec

from flotilla.results import Status, Topology
from shared.cluster.volumes import VolumeDecision
from shared.messages.evaluation import Explanation, Rejections, Summary, Ties
from shared.model.load import PodLoad
from shared.model.objects import Pod


class ClassAsk(msgspec.Struct, frozen=True, omit_defaults=True):
    """`pod` stands for its class, and is left out once the worker may be taken to know it.

    `each`: every feasible node is to be offered, once, and it is to be told why the others are not. `among`: only these
    nodes count. `borrowed`: the guess is another class's, for want of one.
    """

    class_id: str
    profile: str
    count: int
    pod: Pod | None = None
    guess: Summary | None = None
    each: bool = False
    among: list[str] | None = None
    borrowed: bool = False


class Given(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A pod that goes to this node if its gang is placed. `load` is an index into the ask's loads."""

    uid: str
    node: str
    load: int
    volumes: VolumeDecision | None = None


class Propose(msgspec.Struct, frozen=True, omit_defaults=True, tag="propose"):
    """`round` and `ask` only ever rise within an epoch. A worker answers once it has seen `min_seq`.

    `keys`: the node labels that the round's decisions are to be followed by. `given`: members of the same gang that are
    to be supposed where they are to go, though the state does not show them there.
    """

    epoch: int
    round: int
    ask: int
    min_seq: int
    ties: Ties
    classes: list[ClassAsk]
    keys: list[str] = []
    given: list[Given] = []
    loads: list[PodLoad] = []


class Ladder(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A shard's best placements for one class in greedy order, each as if those before it had been taken.

    `complete`: there is no further one. `ties` decide between equal scores, the larger wins. `domains`: the nodes'
    values of the labels that were asked for.

    With `strata`, there is a ladder for each combination of values of these labels, one after the other; `cut` are the
    combinations whose ladders could go on.
    `volumes`, if there are any: what each placement means for the pod's volumes.
    """

    nodes: list[str] = []
    scores: list[int] = []
    ties: list[int] = []
    complete: bool = True
    domains: dict[str, list[str | None]] = {}
    strata: tuple[str, ...] = ()
    cut: list[list[str | None]] = []
    volumes: list[VolumeDecision | None] = []


class ClassAnswer(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """`unknown`: ask again, with the pod. `failure`: a plugin failed. `pre_filter`: no node needs to be looked at.

    `score_failure`: PreScore failed; that ends the attempt if there are several feasible nodes to choose from.

    `restricted_by`: the plugins whose PreFilter left only some nodes to look at.
    `rejections` are only counted where not one of the shard's nodes is feasible.
    `via_nominated`: the ladder is only the node that the pod itself is nominated to, which is feasible.
    `by_itself`: judged by what this shard knows, there being no guess that could be used.
    `topology`: by which labels other decisions of a round matter to this class, if they do.
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


class Proposals(msgspec.Struct, frozen=True, omit_defaults=True, tag="proposals"):
    """`seq` is what the worker had seen when it evaluated; `shards` are those that it answers for.

    `incarnation`: of the process that answers, as in its beats.
    """

    worker: str
    epoch: int
    round: int
    ask: int
    seq: int
    shards: list[int]
    answers: list[ClassAnswer]
    incarnation: str = ""


class Explain(msgspec.Struct, frozen=True, omit_defaults=True, tag="explain"):
    """How does each node fare? Asked first without a guess, then with the merged summary."""

    id: str
    ask: ClassAsk


class Explained(msgspec.Struct, frozen=True, omit_defaults=True, tag="explained"):
    worker: str
    id: str
    seq: int
    answer: ClassAnswer
    explanation: Explanation
