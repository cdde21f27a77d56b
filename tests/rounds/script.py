"""A cycle core whose workers and snapshot are played by hand."""

from collections.abc import Mapping, Sequence

from services.cycle.core import CycleCore
from services.cycle.events import Ask, Effect, Event, SendCommit, Workers
from shared.framework.profile import Framework
from shared.messages.evaluation import Summary
from shared.messages.rounds import ClassAnswer, Ladder, Proposals, Propose
from shared.messages.state import Commit, Committed, Conflict
from shared.model.objects import DEFAULT_SCHEDULER, Pod
from testing.inprocess import batches
from testing.inprocess.batches import batch_of
from tests.rounds.support import BY_NAME, QUIET

Nodes = Sequence[tuple[str, int]]

NO_IMAGES = {"ImageLocality": {"nodes": 1, "images": {}}}


def summary(feasible: int = 1, *, nodes: int = 1, taints: tuple[int, int] = (0, 0)) -> Summary:
    """As a worker of one node gives it; `taints` is the range of TaintToleration's raw scores."""
    ranges = {"TaintToleration": taints} if feasible else {}
    return Summary(nodes=nodes, feasible=feasible, plugins=NO_IMAGES, ranges=ranges)


def offer(class_id: str, *nodes: tuple[str, int], of: Summary | None = None, complete: bool = True) -> ClassAnswer:
    """A ladder of nodes with their scores."""
    names, scores = [name for name, _ in nodes], [score for _, score in nodes]
    of = of or summary(feasible=len(nodes))
    return ClassAnswer(class_id, summary=of, ladder=Ladder(names, scores, [0] * len(nodes), complete))


class Script:
    """Feeds a cycle core and validates it after every event.

    Nodes have readable names, and count as being in the shards of the worker that names them.
    """

    def __init__(
        self,
        *workers: str,
        round_size: int = 256,
        frameworks: Mapping[str, Framework] = QUIET,
        longest_pause: float = 0.0,
    ) -> None:
        self.core = CycleCore(1, frameworks, round_size=round_size, ties=BY_NAME, longest_pause=longest_pause)
        self.shards = {name: frozenset({i}) for i, name in enumerate(workers)}
        self.now = 0.0
        vars(self.core._checks)["_foreign"] = lambda worker, nodes: None
        if workers:
            assert self.handle(Workers(self.shards, len(workers))) == []

    def handle(self, event: Event) -> list[Effect]:
        effects = self.core.handle(event, self.now)
        self.core.validate()
        return effects

    def submit(self, *pods: Pod) -> dict[str, Propose]:
        return asked(self.handle(batch_of(pods)))

    def answer(
        self,
        propose: Propose,
        worker: str,
        *answers: ClassAnswer,
        seq: int | None = None,
        shards: list[int] | None = None,
    ) -> list[Effect]:
        """`seq`: what was judged on; if not told, just what was asked for."""
        seq = max(1, propose.min_seq) if seq is None else seq
        held = sorted(self.shards[worker]) if shards is None else shards
        return self.handle(
            Proposals(worker, propose.epoch, propose.round, propose.ask, seq, held, list(answers)),
        )

    def settle(self, asks: Mapping[str, Propose], *, until: str = "", **nodes: Nodes) -> list[Effect]:
        """Each worker offers these nodes for each class, and again if it is asked again: until no ask comes back.

        Or until there is an effect of the kind `until`.
        """
        effects: list[Effect] = []
        while asks and until not in {type(effect).__name__ for effect in effects}:
            for worker, propose in asks.items():
                offers = [offer(ask.class_id, *nodes.get(worker, ())) for ask in propose.classes]
                effects = self.answer(propose, worker, *offers)
            asks = asked(effects)
        return effects

    def committed(self, commit: Commit, *conflicts: Conflict, seq: int = 9) -> list[Effect]:
        return self.handle(Committed(commit.epoch, commit.number, seq, list(conflicts)))


def asked(effects: Sequence[Effect]) -> dict[str, Propose]:
    return {
        effect.worker: effect.message
        for effect in effects
        if isinstance(effect, Ask) and isinstance(effect.message, Propose)
    }


def written(effects: Sequence[Effect]) -> Commit:
    (commit,) = [effect.message for effect in effects if isinstance(effect, SendCommit)]
    return commit


def placements(effects: Sequence[Effect]) -> dict[str, str]:
    return {decision.assignment.name: decision.node for decision in written(effects).decisions}


def class_of(pod: Pod, frameworks: Mapping[str, Framework] = QUIET) -> str:
    """The class id that the cycle gives a pod of the default profile."""
    return batches.class_of(frameworks[DEFAULT_SCHEDULER], pod)
