"""Pods without a place that are to have room on a node, because others make way for them.

A nomination comes from a commit or from the watch. Until a pod's status shows what was decided here, the watch goes on
showing what was there before; that is no news, and neither is the status when it comes to show it. Any other change of
the status is somebody else's word, and counts. A pod with a place is nominated nowhere.

What no status has come to show is looked up: a pod that was deleted before it was nominated nobody tells of any more.
"""

from collections import deque
from collections.abc import Iterator

import msgspec

from shared.errors import InvariantBroken
from shared.messages.loads import Loads
from shared.messages.state import PodNominated
from shared.model.load import PodLoad

CONFIRMATION = 30.0
"""Seconds after which a nomination is looked up that the watch has not shown."""
MOST_EXPECTED = 8
"""Of values that a status is still to show; with more of them, those that come late count as somebody else's word."""


class Nomination(msgspec.Struct, frozen=True, gc=False):
    """`attempt`: the number by which it was decided in this term; 0: another term, or somebody else, decided it."""

    node: str
    load: PodLoad
    key: str
    attempt: int = 0

    def told(self, uid: str, loads: Loads) -> PodNominated:
        return PodNominated(uid, self.node, loads.number(self.load), self.key)


class Nominations:
    def __init__(self) -> None:
        self._nominations: dict[str, Nomination] = {}
        self._on_node: dict[str, dict[str, None]] = {}
        self._shown: dict[str, str] = {}
        self._expected: dict[str, deque[str]] = {}
        self._unconfirmed: dict[str, tuple[float, int]] = {}
        """When each is to be looked up, in that order, and the number it was decided by."""

    def __len__(self) -> int:
        return len(self._nominations)

    def __iter__(self) -> Iterator[tuple[str, Nomination]]:
        return iter(self._nominations.items())

    def knows(self, uid: str) -> bool:
        """Whether a status without a nomination says anything new, or anything that was waited for."""
        return uid in self._nominations or uid in self._shown or uid in self._expected

    def get(self, uid: str) -> Nomination | None:
        return self._nominations.get(uid)

    def stands(self, uid: str, attempt: int, node: str) -> bool:
        """Whether the pod is to have room there by this very decision."""
        nomination = self._nominations.get(uid)
        return nomination is not None and attempt > 0 and (nomination.attempt, nomination.node) == (attempt, node)

    def below(self, node: str, priority: int) -> list[tuple[str, Nomination]]:
        """Who of lower priority is nominated to a node."""
        there = [(uid, self._nominations[uid]) for uid in self._on_node.get(node, ())]
        return [(uid, nomination) for uid, nomination in there if nomination.load.priority < priority]

    def decide(self, uid: str, nomination: Nomination, now: float) -> None:
        """It is to have room there, whatever its status says."""
        self._put(uid, nomination)
        self._expect(uid, nomination.node)
        self._unconfirmed.pop(uid, None)
        if self._shown.get(uid) != nomination.node:
            self._unconfirmed[uid] = now + CONFIRMATION, nomination.attempt

    def revoke(self, uid: str) -> bool:
        """It is to have room nowhere, whatever its status says. False if it was not to have any."""
        if not self._take(uid):
            return False
        self._expect(uid, "")
        return True

    def see(self, uid: str, status: str, load: PodLoad, key: str) -> Nomination | None:
        """The watch shows a pod without a place. Answers with its nomination after that."""
        if self._is_news(uid, status):
            node = status
        else:
            known = self._nominations.get(uid)
            node = "" if known is None else known.node
        if node:
            before = self._nominations.get(uid)
            attempt = before.attempt if before is not None and before.node == node else 0
            self._put(uid, Nomination(node, load, key, attempt))
        else:
            self._take(uid)
        if node == status:
            self._unconfirmed.pop(uid, None)
        return self._nominations.get(uid)

    def note(self, uid: str, status: str) -> None:
        """The watch shows a pod that has a place by a decision: what its status says makes no nomination any more."""
        self._is_news(uid, status)

    def forget(self, uid: str) -> bool:
        """The pod is gone, or on a node. False if it was not nominated."""
        self._shown.pop(uid, None)
        self._expected.pop(uid, None)
        return self._take(uid)

    def next_due(self) -> float | None:
        return next((due for due, _ in self._unconfirmed.values()), None)

    def due(self, now: float) -> Iterator[tuple[str, int, Nomination]]:
        """Who is to be looked up, by the number of the nomination; they are due again some time later."""
        while (due := self.next_due()) is not None and due <= now:
            uid = next(iter(self._unconfirmed))
            _, attempt = self._unconfirmed.pop(uid)
            self._unconfirmed[uid] = now + CONFIRMATION, attempt
            yield uid, attempt, self._nominations[uid]

    def is_unconfirmed(self, uid: str, attempt: int) -> bool:
        return uid in self._unconfirmed and self._unconfirmed[uid][1] == attempt

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
        """The status will show this, if somebody is there to write it."""
        expected = self._expected.setdefault(uid, deque(maxlen=MOST_EXPECTED))
        if (expected[-1] if expected else self._shown.get(uid, "")) != status:
            expected.append(status)
        if not expected:
            del self._expected[uid]

    def _put(self, uid: str, nomination: Nomination) -> None:
        self._unlink(uid)
        self._nominations[uid] = nomination
        self._on_node.setdefault(nomination.node, {})[uid] = None

    def _take(self, uid: str) -> bool:
        self._unconfirmed.pop(uid, None)
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
        if not self._unconfirmed.keys() <= self._nominations.keys():
            raise InvariantBroken("somebody is to be looked up who is not nominated")
        if [due for due, _ in self._unconfirmed.values()] != sorted(due for due, _ in self._unconfirmed.values()):
            raise InvariantBroken("nominations are not looked up in the order in which they are due")
