"""A pipeline that takes gangs, and watches over them: no member of a gang is committed without enough of the others."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import msgspec

from services.cycle.events import Decided, Unschedulable
from services.snapshot import events as snapshot
from shared.framework.profile import Framework
from shared.messages.evaluation import Ties
from shared.messages.queue import Gang
from shared.model.objects import Pod
from shared.store.schema import Persist
from testing.builders import PodBuilder
from testing.inprocess.batches import batch_of
from testing.inprocess.pipeline import Fate, Outcome, reliable
from tests.rounds.support import QUIET
from tests.rounds.world import Audited

Part = Pod | tuple[Gang, Sequence[Pod]]
"""Of a batch: a pod by itself, or a gang with its members."""


class GangRun(Audited):
    def __init__(
        self,
        *,
        shards: int = 1,
        round_size: int = 256,
        fate: Fate = reliable,
        ties: Ties | None = None,
        frameworks: Mapping[str, Framework] = QUIET,
    ) -> None:
        self.gangs: dict[str, Gang] = {}
        super().__init__(shards=shards, round_size=round_size, fate=fate, ties=ties, frameworks=frameworks)

    def take(self, *parts: Part) -> None:
        """One batch."""
        pods: list[Pod] = []
        gangs: dict[str, Gang] = {}
        for part in parts:
            if isinstance(part, Pod):
                pods.append(part)
            else:
                pods += part[1]
                gangs |= {each.uid: part[0] for each in part[1]}
        self.submitted |= {each.uid: each for each in pods}
        self._pods.update((each.uid, each) for each in pods)
        self.gangs |= gangs
        self._carry_out_cycle(self.cycle.handle(batch_of(pods, gangs=gangs), self.now))

    def places(self, pods: Iterable[Pod]) -> dict[str, str]:
        """Where these have gone."""
        told = {each.name: self.outcomes.get(each.uid) for each in pods}
        return {name: outcome.node for name, outcome in told.items() if isinstance(outcome, Decided)}

    def unfit(self, pods: Iterable[Pod]) -> dict[str, Unschedulable]:
        told = {each.name: self.outcomes.get(each.uid) for each in pods}
        return {name: outcome for name, outcome in told.items() if isinstance(outcome, Unschedulable)}

    def told_once(self, pods: Iterable[Pod]) -> bool:
        """Every one of them has got just one outcome."""
        uids = [outcome.uid for outcome in self.told]
        return all(uids.count(each.uid) == 1 for each in pods)

    def _carry_out_snapshot(self, effects: Iterable[snapshot.Effect]) -> None:
        effects = list(effects)
        for effect in effects:
            if isinstance(effect, Persist) and effect.delta is not None and effect.answer is not None:
                by_gang: dict[str, int] = {}
                for entry in effect.ledger:
                    gang = self.gangs.get(entry.uid)
                    if gang is not None:
                        by_gang[gang.key] = by_gang.get(gang.key, 0) + 1
                least = {gang.key: gang.least for gang in self.gangs.values()}
                for key, placed in by_gang.items():
                    assert placed >= least[key], f"{placed} of gang {key} are placed, {least[key]} are needed"
        super()._carry_out_snapshot(effects)


def members(of: PodBuilder, count: int, name: str = "m") -> list[Pod]:
    """Pods that differ only in their names."""
    names = (f"{name}{i}" for i in range(count))
    return [replace(of, metadata=msgspec.structs.replace(of.metadata, name=each)).build() for each in names]


def as_told(outcomes: Iterable[Outcome]) -> dict[str, str]:
    """What was told of each pod: its node, or why it has none."""
    return {
        told.uid: f"on {told.node}" if isinstance(told, Decided) else told.unfit.message
        for told in outcomes
        if isinstance(told, Decided | Unschedulable)
    }
