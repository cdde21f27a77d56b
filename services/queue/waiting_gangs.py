"""Which gangs wait, where, for how long, and which plugins rejected them, for metrics."""

from collections import Counter
from collections.abc import Iterable

from services.queue.scheduling.group_info import GroupInfo, MemberState


class WaitingGangs:
    """`count`: gangs by place, as GroupInfo.queue_state names it; groups of one entry are one gang.

    `longest`: by place, seconds since the first pod of the gang that has waited longest there had no gate of its own.
    `rejected`: by plugin, the gangs that it rejected at their last attempt, or keeps from one; one pod of each group
    tells.
    """

    def __init__(self, groups: Iterable[GroupInfo], now: float) -> None:
        self.count: Counter[str] = Counter()
        self.longest: dict[str, float] = {}
        self.rejected: Counter[str] = Counter()
        gangs: dict[int, list[GroupInfo]] = {}
        for group in groups:
            if group.queue_state:
                gangs.setdefault(id(group.entry), []).append(group)
        for gang in gangs.values():
            self._add(gang, now)

    def _add(self, gang: list[GroupInfo], now: float) -> None:
        """Adds the gang to all three, at the place of the first of its groups that is not held, if there is one."""
        held = MemberState.HELD.value
        place = next((group.queue_state for group in gang if group.queue_state != held), held)
        since = [info.ungated_at for group in gang for info in group.pods.values() if info.ungated_at is not None]
        samples = [next(iter(group.pods.values())) for group in gang if group.pods]
        self.count[place] += 1
        self.longest[place] = max(self.longest.get(place, 0.0), now - min(since, default=now))
        self.rejected.update({plugin for info in samples for plugin in info.rejecting_plugins})
