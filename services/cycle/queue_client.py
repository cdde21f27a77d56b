"""The cycle's side of the queue: pulls pods while there is room for them, and reports what became of them.

Requests are repeated under the same number until they are answered; the queue handles each once. Outcomes of pods that
are decided go with the next Take, because nothing waits for them.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from services.cycle import events
from shared.bus import Bus, NoAnswer, subjects
from shared.errors import ProtocolError
from shared.messages.limits import HALF_A_MESSAGE
from shared.messages.queue import TAKE_PATIENCE, Batch, Hint, Outcome, Outcomes, Received, Take, Verdict
from shared.runtime.context import Watchdog
from shared.terms import Heard, Newest

MIN_PODS = 32
"""Pods pulled ahead for any round size: a request per pod would cost a round trip per pod."""
ANSWER_PATIENCE = 1.0
"""Seconds for the queue's answer, beyond the time that it may wait for pods."""
REPORT_INTERVAL = 0.01
"""Seconds between two reports of outcomes."""
DECIDED_PATIENCE = 0.05
"""Seconds that the outcomes of decided pods wait for the next Take: the queue learns of them by the watch, too."""
PAUSE = 0.1
"""Seconds between a failed request and its repetition."""
MAX_BYTES = HALF_A_MESSAGE
"""Messages to owners in one report: half of what a message may hold."""
MAX_MESSAGE = 1 << 16
"""Characters of a message to a pod's owner."""
CUT = " ..."
BYTES_PER_CHARACTER = 4
OUTCOME_BYTES = 1 << 11
"""An outcome without its message; names are no longer."""
MAX_IN_TAKE = MAX_BYTES // OUTCOME_BYTES
"""Outcomes of decided pods, which have no message, in one Take."""

MAX_HINTS = 4096
"""That wait to be sent."""
MAX_HINTS_IN_A_MESSAGE = 256
"""With their texts less than what a message may hold beside outcomes."""

M = TypeVar("M", Batch, Received)


def outcome_of(effect: events.Outcome, has_nomination: bool) -> Outcome:
    """`has_nomination`: the pod was nominated when it was handed out.

    An error ends the nomination, and so does a preemption without victims or that would not help.
    """
    lost = "" if has_nomination else None
    match effect:
        case events.Decided(uid=uid, node=node):
            return Outcome(uid, Verdict.DECIDED, node)
        case events.Superseded(uid=uid, node=node):
            return Outcome(uid, Verdict.SUPERSEDED, node)
        case events.Failed(uid=uid, status=status):
            rejecting = (status.plugin,) if status.plugin else ()
            return Outcome(uid, Verdict.FAILED, message=status.message, plugins=rejecting, nominated=lost)
        case events.Unschedulable(uid=uid, unfit=unfit, preemption=found, number=number):
            nominated = lost if found is None or found.nominated == "" else found.nominated
            verdict, plugins = Verdict.UNSCHEDULABLE, unfit.plugins
            return Outcome(
                uid,
                verdict,
                message=unfit.message,
                plugins=plugins,
                nominated=nominated,
                preemption=number,
                deallocate=() if found is None else found.deallocate,
                delete=() if found is None else found.delete,
            )


class QueueClient:
    def __init__(
        self,
        bus: Bus,
        unanswered: Watchdog,
        epoch: int,
        clock: Callable[[], float],
        held: Callable[[], int],
        wanted: Callable[[], int],
        take: Callable[[Batch], None],
        refuse: Callable[[ProtocolError], None],
    ) -> None:
        """`unanswered` runs while pods are asked for. `held`: the number of pods without an outcome; `wanted`: its
        upper limit at present.

        `take` handles a batch, `refuse` an older queue's answer.
        """
        self._bus = bus
        self._unanswered = unanswered
        unanswered.stop()
        self._epoch = epoch
        self._clock = clock
        self._held = held
        self._wanted = wanted
        self._take = take
        self._refuse = refuse
        self._queue = Newest(0)
        """The queue's term."""
        self._outcomes: list[Outcome] = []
        self._hints: deque[Hint] = deque(maxlen=MAX_HINTS)
        self._decided: list[Outcome] = []
        """Outcomes that go with the next Take, or are reported after DECIDED_PATIENCE."""
        self._hears_outcomes = False
        """Whether the queue handles outcomes in a Take."""
        self._report_decided: asyncio.TimerHandle | None = None
        self._reports = 0
        self._unacknowledged: Outcomes | None = None
        """The report under way."""
        self._report_after = 0.0
        self._has_outcomes = asyncio.Event()
        self._has_room = asyncio.Event()
        self._reported = asyncio.Event()
        self._reported.set()

    def tell(self, outcome: Outcome) -> None:
        if len(outcome.message) > MAX_MESSAGE:
            outcome = replace(outcome, message=outcome.message[: MAX_MESSAGE - len(CUT)] + CUT)
        self._reported.clear()
        if self._hears_outcomes and outcome.verdict is Verdict.DECIDED:
            self._decided.append(outcome)
            if self._report_decided is None:
                loop = asyncio.get_running_loop()
                self._report_decided = loop.call_later(DECIDED_PATIENCE, self._report, ())
        else:
            self._report((outcome,))
        self._has_room.set()

    def hint(self, hint: Hint) -> None:
        """Goes with outcomes, behind that of its pod. The oldest are dropped if there are too many."""
        self._hints.append(hint)
        self._has_outcomes.set()

    async def pull(self) -> None:
        """While one round is decided, the next one is fetched."""
        number = 0
        while True:
            while (room := self._room()) == 0:
                self._has_room.clear()
                await self._has_room.wait()
            number += 1
            take = Take(self._epoch, number, room, self._for_take())
            self._unanswered.start()
            try:
                batch = await self._ask(
                    subjects.QUEUE_TAKE, take, Batch, TAKE_PATIENCE + ANSWER_PATIENCE, self._reported
                )
            except asyncio.CancelledError:
                self._report(take.outcomes)  # again, if the queue has them
                raise
            self._unanswered.stop()
            self._hears_outcomes = batch.hears_outcomes
            if take.outcomes and not batch.hears_outcomes:
                self._report(take.outcomes)
            if (batch.epoch, batch.number) == (self._epoch, number) and batch.pods:
                self._take(batch)

    async def report(self) -> None:
        """Until cancelled; a later call continues with the report that was under way."""
        while True:
            if self._unacknowledged is None:
                await self._has_outcomes.wait()
                if (pause := self._report_after - self._clock()) > 0:
                    await asyncio.sleep(pause)
                self._unacknowledged = self._next_report()
            await self._ask(subjects.QUEUE_OUTCOMES, self._unacknowledged, Received, ANSWER_PATIENCE)
            self._unacknowledged = None
            if self._outcomes or self._hints:
                self._has_outcomes.set()
            self._note_reported()
            self._report_after = self._clock() + REPORT_INTERVAL

    def _room(self) -> int:
        """Returns how many pods to ask for: 0 until half of the wanted number is free."""
        wanted = max(self._wanted(), MIN_PODS)
        room = wanted - self._held()
        return room if room >= wanted // 2 else 0

    def _next_report(self) -> Outcomes:
        self._has_outcomes.clear()
        self._reports += 1
        count = _count_for_one_message(self._outcomes)
        outcomes, self._outcomes = self._outcomes[:count], self._outcomes[count:]
        return Outcomes(self._epoch, self._reports, outcomes, self._next_hints())

    def _report(self, outcomes: Iterable[Outcome]) -> None:
        """Has these reported, and those that waited for a Take."""
        self._outcomes += self._end_wait()
        self._outcomes += outcomes
        if self._outcomes:
            self._reported.clear()
            self._has_outcomes.set()

    def _for_take(self) -> list[Outcome]:
        """The outcomes of decided pods that go with a Take. If it is lost, it is repeated."""
        decided = self._end_wait()
        if len(decided) > MAX_IN_TAKE:
            self._report(decided[MAX_IN_TAKE:])
        self._note_reported()
        return decided[:MAX_IN_TAKE]

    def _end_wait(self) -> list[Outcome]:
        """The outcomes that waited for a Take."""
        if self._report_decided is not None:
            self._report_decided.cancel()
            self._report_decided = None
        decided, self._decided = self._decided, []
        return decided

    def _note_reported(self) -> None:
        if not (self._outcomes or self._decided or self._unacknowledged):
            self._reported.set()

    def _next_hints(self) -> tuple[Hint, ...]:
        """None before all outcomes are under way."""
        most = 0 if self._outcomes else MAX_HINTS_IN_A_MESSAGE
        return tuple(self._hints.popleft() for _ in range(min(most, len(self._hints))))

    async def all_reported(self) -> None:
        """Returns when the queue has every outcome; `report` runs meanwhile."""
        self._report(())
        await self._reported.wait()

    async def _ask(
        self, subject: str, message: Take | Outcomes, reply: type[M], timeout: float, first: asyncio.Event | None = None
    ) -> M:
        """Repeats the request until the newest queue answers. After a failure waits for `first`.

        A queue that has restarted must hear of outcomes before it hands out the same pods again.
        """
        while True:
            try:
                answer = await self._bus.request(subject, message, reply, timeout=timeout)
                if self._is_of_newest(answer):
                    return answer
            except (NoAnswer, ProtocolError):  # counted by the bus
                pass
            await asyncio.sleep(PAUSE)
            if first is not None:
                await first.wait()

    def _is_of_newest(self, answer: Batch | Received) -> bool:
        epoch, newest = answer.sender_epoch, self._queue.position
        if not epoch or self._queue.hear(epoch, self._clock()) is not Heard.OLD:
            return True
        what = f"{type(answer).__name__} {answer.number} of the queue of epoch {epoch}, now {newest}"
        self._refuse(ProtocolError(what))
        return False


def _count_for_one_message(outcomes: Sequence[Outcome]) -> int:
    size = 0
    for count, outcome in enumerate(outcomes):
        size += OUTCOME_BYTES + BYTES_PER_CHARACTER * len(outcome.message)
        if count and size > MAX_BYTES:
            return count
    return len(outcomes)
