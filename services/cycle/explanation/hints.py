"""Hints: what would help pods that fit nowhere, for their Events. One search for each class of pod and message.

    rejected --found lately--> sent
        |
        +--> waiting --idle--> searching --all its questions answered--> sent
                |                  |
                +---- too late ----+--> dropped

Nothing waits for a hint. Its questions go the way of `flotilla explain`'s (`questions.py`), one at a time, and each
only after the cycle has had no pod for a while. A search that takes too long is dropped.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from services.cycle.events import Answered, Hinted, Unschedulable
from services.cycle.extenders import is_judged
from shared.bounded import BoundedDict
from shared.errors import ProtocolError
from shared.explain.advice import Advisor, Asking, Help
from shared.messages.explaining import ExplainPod, NodeFindings
from shared.messages.queue import MAX_HINT
from shared.model.objects import Pod, encode_msgpack

MOST = 2
"""Changes that a hint names."""
MOST_ASKED = 8
"""Changes that workers are asked about for one hint."""
QUIET = 0.25
"""Seconds without a pod in the cycle before a question is asked, and between two checks for that."""
PAUSE = 1.0
"""Seconds between the beginnings of two searches."""
PATIENCE = 30.0
"""Seconds after which a hint that is not found yet is dropped."""
KNOWN_FOR = 60.0
"""Seconds for which other pods of the class with the same message get the same hint."""
AGAIN = 365.0
"""Seconds until a pod can get another hint: for 360 s an Event of the same reason counts as a repeat of the first."""
MAX_SEARCHES = 64
"""Classes and messages that wait; further ones get no hint."""
MAX_PODS = 1024
"""Pods that wait for one hint; further ones get it when they are tried again."""
MAX_NOTIFIED = 1 << 14
MAX_KNOWN = 1024

Key = tuple[str, str]
"""Class and message."""


@dataclass(slots=True)
class _Search:
    key: Key
    pod: Pod
    due: float
    uids: dict[str, None] = field(default_factory=dict)
    request: ExplainPod | None = None
    """The next question; None while one is answered."""
    asking: Asking[tuple[list[Help], list[Help]]] | None = None
    """None before the pod itself is explained."""


class Hints:
    """`on`: whether hints are wanted; not to be used otherwise."""

    def __init__(self, *, on: bool = False) -> None:
        self.on = on
        self._waiting: OrderedDict[Key, _Search] = OrderedDict()
        self._current: _Search | None = None
        self._known: BoundedDict[Key, tuple[str, float]] = BoundedDict(MAX_KNOWN)
        self._sent: BoundedDict[str, float] = BoundedDict(MAX_NOTIFIED)
        """When a pod got its last hint, by uid."""
        self._busy_at = 0.0
        self._look_at = 0.0
        self._not_before = 0.0
        self.counts = {"sent": 0, "none": 0, "dropped": 0}
        """Pods by the result of the search: a hint was sent, nothing helps, or the search was dropped."""
        self.problems: list[ProtocolError] = []

    def next_deadline(self) -> float | None:
        current = self._current
        seeks = current is None or current.request is not None
        return self._look_at if seeks and (self._waiting or current is not None) else None

    def on_rejected(self, effect: Unschedulable, now: float) -> list[Hinted]:
        """Not for pods that extenders judge, that another of their gang kept out, or for which others are evicted."""
        info, found = effect.pod, effect.preemption
        if info is None or is_judged(info.class_id) or effect.unfit.kept_out_by:
            return []
        if found is not None and found.nominated:
            return []
        sent_at = self._sent.get(info.uid)
        if sent_at is not None and now < sent_at + AGAIN:
            return []
        key = info.class_id, effect.unfit.message
        text, found_at = self._known.get(key, ("", -KNOWN_FOR))
        if now < found_at + KNOWN_FOR:
            return self._send([info.uid], text, now)
        search = self._current if self._current is not None and self._current.key == key else self._waiting.get(key)
        if search is None and len(self._waiting) < MAX_SEARCHES:
            search = self._waiting[key] = _Search(key, info.pod, now + PATIENCE)
        if search is None or len(search.uids) >= MAX_PODS:
            self.counts["dropped"] += 1
            return []
        search.uids[info.uid] = None
        return []

    def next(self, now: float, *, idle: bool) -> ExplainPod | None:
        """The question to ask now, if there is one. `idle`: the cycle has no pod and no other question."""
        if not idle:
            self._busy_at = now
        self._drop_late(now)
        current = self._current
        if current is None and self._waiting and now >= self._not_before:
            _, current = self._waiting.popitem(last=False)
            current.request = ExplainPod(body=encode_msgpack(current.pod))
            self._current, self._not_before = current, now + PAUSE
        self._look_at = max(now + QUIET, self._not_before if current is None else 0.0)
        if current is None or not idle or now < self._busy_at + QUIET:
            return None
        request, current.request = current.request, None
        return request

    def on_answered(self, answered: Answered, now: float) -> list[Hinted]:
        """The answer to the last question."""
        current = self._current
        if current is None:
            return []
        try:
            current.request, end = _go_on(current, answered.findings)
        except Exception as cause:  # a hint is worth no term
            self.problems.append(ProtocolError(f"no hint for pod {current.pod.key}: {cause!r}"))
            current.request, end = None, ""
        if current.request is not None:
            return []
        self._current = None
        if end is None:
            self.counts["dropped"] += len(current.uids)
            return []
        self._known[current.key] = end, now
        return self._send(list(current.uids), end, now)

    def _send(self, uids: Sequence[str], text: str, now: float) -> list[Hinted]:
        if not text:
            self.counts["none"] += len(uids)
            return []
        self.counts["sent"] += len(uids)
        for uid in uids:
            self._sent[uid] = now
        return [Hinted(uid, text) for uid in uids]

    def _drop_late(self, now: float) -> None:
        while self._waiting and (first := next(iter(self._waiting.values()))).due <= now:
            del self._waiting[first.key]
            self.counts["dropped"] += len(first.uids)
        current = self._current
        if current is not None and current.due <= now and current.request is not None:
            self._current = None
            self.counts["dropped"] += len(current.uids)


def _go_on(search: _Search, findings: NodeFindings | None) -> tuple[ExplainPod | None, str | None]:
    """The next question, or what came of all: a text, empty if nothing helps; None if that is not known."""
    if search.asking is None:
        if findings is None or findings.failure is not None or findings.feasible:
            return None, None
        search.asking = Advisor(search.pod, findings, most=MOST, most_asked=MOST_ASKED).help()
        findings = None
    try:
        return search.asking.send(findings), None
    except StopIteration as end:
        found, pairs = end.value
        return None, hint_text(found or pairs)


def hint_text(found: Sequence[Help]) -> str:
    """`It would fit if A, or if B.`; empty if nothing helps."""
    if not found:
        return ""
    sure = [each for each in found if each.certain]
    apart = "It would fit if " if sure else "As far as the rest of it is concerned, it would fit if "
    text = apart + ", or if ".join(each.text for each in (sure or found)[:MOST])
    return f"{text[: MAX_HINT - 4]} ..." if len(text) >= MAX_HINT else f"{text}."
