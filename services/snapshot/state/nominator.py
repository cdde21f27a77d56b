"""The nominator: pending pods for which room is reserved on a node.

A nomination comes from a commit or from the watch. Until a pod's status shows what was decided here, the watch goes on
showing an earlier status, which is no news; neither is the status that shows the decision. Any other change of the
status comes from outside, and counts. A placed pod is nominated nowhere.

A nomination that no status shows is looked up: no event shows a pod that was deleted before it was nominated.
"""

from collections import deque
from collections.abc import Iterator

import msgspec

from shared.cluster.eviction_units import Groups, priority_of
from shared.errors import InvariantBroken
from shared.messages.state import Loads, PodNominated
from shared.model.load import PodLoad

LOOK_UP_SECONDS = 30.0
"""A nomination that the watch does not show is looked up after this."""
MAX_EXPECTED = 8
"""Expected values of a status; of more, those that come late count as changes from outside."""


class Nomination(msgspec.Struct, frozen=True, gc=False):
    """`attempt`: the number of the decision in this term; 0: of another term, or from outside."""

    node: str
    load: PodLoad
    key: str
    attempt: int = 0

    def nominated(self, uid: str, loads: Loads) -> PodNominated:
        return PodNominated(uid, self.node, loads.number(self.load), self.key)


class Nominator:
    def __init__(self) -> None:
        self._nominations: dict[str, Nomination] = {}
        self._on_node: dict[str, dict[str, None]] = {}
        self._shown: dict[str, str] = {}
        """The nominated node in each pod's status."""
        self._expected: dict[str, deque[str]] = {}
        """The values that each status will show, by what was decided."""
        self._unshown: dict[str, tuple[float, int]] = {}
        """When each unshown nomination is looked up, in that order, and its number."""

    def __len__(self) -> int:
        return len(self._nominations)

    def __iter__(self) -> Iterator[tuple[str, Nomination]]:
        return iter(self._nominations.items())

    def knows(self, uid: str) -> bool:
        """Whether a status without a nomination would be news, or is expected."""
        return uid in self._nominations or uid in self._shown or uid in self._expected

    def get(self, uid: str) -> Nomination | None:
        return self._nominations.get(uid)

    def stands(self, uid: str, attempt: int, node: str) -> bool:
        """Whether the pod is nominated to that node by this very decision."""
        nomination = self._nominations.get(uid)
        return nomination is not None and attempt > 0 and (nomination.attempt, nomination.node) == (attempt, node)

    def below(self, node: str, priority: int, groups: Groups) -> list[tuple[str, Nomination]]:
        """The nominations of lower priority to a node."""
        there = [(uid, self._nominations[uid]) for uid in self._on_node.get(node, ())]
        return [(uid, each) for uid, each in there if priority_of(each.load, groups) < priority]

    def decide(self, uid: str, nomination: Nomination, now: float) -> None:
        """Nominates the pod, regardless of its status."""
        self._set(uid, nomination)
        self._expect(uid, nomination.node)
        self._unshown.pop(uid, None)
        if self._shown.get(uid) != nomination.node:
            self._unshown[uid] = now + LOOK_UP_SECONDS, nomination.attempt

    def revoke(self, uid: str) -> bool:
        """Revokes the pod's nomination, regardless of its status. Returns whether it had one."""
        if not self._remove(uid):
            return False
        self._expect(uid, "")
        return True

    def observe(self, uid: str, status: str, load: PodLoad, key: str, now: float) -> Nomination | None:
        """The watch shows a pending pod with this nominated node. Returns its nomination after that."""
        if self._is_news(uid, status):
            node = status
        else:
            known = self._nominations.get(uid)
            node = "" if known is None else known.node
        if node:
            before = self._nominations.get(uid)
            attempt = before.attempt if before is not None and before.node == node else 0
            self._set(uid, Nomination(node, load, key, attempt))
        else:
            self._remove(uid)
        nomination = self._nominations.get(uid)
        if node == status:
            self._unshown.pop(uid, None)
        elif nomination is not None:
            self._unshown.setdefault(uid, (now + LOOK_UP_SECONDS, nomination.attempt))
        return nomination

    def observe_assumed(self, uid: str, status: str) -> None:
        """The watch shows an assumed pod, which no status nominates any more."""
        self._is_news(uid, status)

    def forget(self, uid: str) -> bool:
        """The pod is gone, or on a node. Returns whether it was nominated."""
        self._shown.pop(uid, None)
        self._expected.pop(uid, None)
        return self._remove(uid)

    def next_due(self) -> float | None:
        return next((due for due, _ in self._unshown.values()), None)

    def due(self, now: float) -> Iterator[tuple[str, int, Nomination]]:
        """Nominations to look up, each with its uid and number; they are due again later."""
        while (due := self.next_due()) is not None and due <= now:
            uid = next(iter(self._unshown))
            _, attempt = self._unshown.pop(uid)
            self._unshown[uid] = now + LOOK_UP_SECONDS, attempt
            yield uid, attempt, self._nominations[uid]

    def is_unshown(self, uid: str, attempt: int) -> bool:
        return uid in self._unshown and self._unshown[uid][1] == attempt

    # Inside

    def _is_news(self, uid: str, status: str) -> bool:
        if status == self._shown.get(uid, ""):
            return False
        if status:
            self._shown[uid] = status
        else:
            self._shown.pop(uid, None)
        expected = self._expected.get(uid)
        if expected is not None and status in expected:
            while expected.popleft() != status:
                pass
            if not expected:
                del self._expected[uid]
            return False
        self._expected.pop(uid, None)
        return True

    def _expect(self, uid: str, status: str) -> None:
        """The status will show this, once a binder has written it."""
        expected = self._expected.setdefault(uid, deque(maxlen=MAX_EXPECTED))
        if (expected[-1] if expected else self._shown.get(uid, "")) != status:
            expected.append(status)
        if not expected:
            del self._expected[uid]

    def _set(self, uid: str, nomination: Nomination) -> None:
        self._unlink(uid)
        self._nominations[uid] = nomination
        self._on_node.setdefault(nomination.node, {})[uid] = None

    def _remove(self, uid: str) -> bool:
        self._unshown.pop(uid, None)
        return self._unlink(uid)

    def _unlink(self, uid: str) -> bool:
        nomination = self._nominations.pop(uid, None)
        if nomination is None:
            return False
        there = self._on_node[nomination.node]
        del there[uid]
        if not there:
            del self._on_node[nomination.node]
        return True

    def validate(self) -> None:
        indexed = {uid: node for node, uids in self._on_node.items() for uid in uids}
        if indexed != {uid: each.node for uid, each in self._nominations.items()}:
            raise InvariantBroken("the index of nominated pods by node does not agree with the nominations")
        if not self._unshown.keys() <= self._nominations.keys():
            raise InvariantBroken("a pod that is not nominated is to be looked up")
        if [due for due, _ in self._unshown.values()] != sorted(due for due, _ in self._unshown.values()):
            raise InvariantBroken("nominations are not looked up in the order in which they are due")
