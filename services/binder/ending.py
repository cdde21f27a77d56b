"""How attempts end: what was reserved is taken back or kept, and whoever should know of it is told.

Nothing is held of an attempt that has ended but its outcome. The attempt that was behind it, if any, comes next.
"""

from collections.abc import Callable

from flotilla.results import Code
from services.binder.binding import extension_points
from services.binder.binding.attempts import Attempt, Identity, State
from services.binder.binding.extension_points import Failure
from services.binder.binding.outcome_reports import Reports
from services.binder.book import Book
from services.binder.events import Activated, Effect, Ended, Problem, Record, Said, SetCondition, Took
from shared.config.points import ExtensionPoint
from shared.errors import ClusterError
from shared.messages.binding import BindingOutcome
from shared.messages.state import BindingOrder


class Endings:
    def __init__(
        self,
        book: Book,
        reports: Reports,
        effects: list[Effect],
        clock: Callable[[], float],
        follow: Callable[[Attempt, float], None],
    ) -> None:
        """`follow` is handed the attempt that was behind the one that has ended."""
        self._book = book
        self._reports = reports
        self._effects = effects
        self._clock = clock
        self._follow = follow

    def finish(self, attempt: Attempt, now: float) -> None:
        """It is bound."""
        order = attempt.order
        self.took(attempt, ExtensionPoint.BIND, Code.SUCCESS, attempt.point_began)
        if attempt.framework.post_bind:
            began = self._clock()
            troubles = extension_points.post_bind(attempt.framework, attempt.cycle, order.node)
            self.took(attempt, ExtensionPoint.POST_BIND, Code.SUCCESS, began)
            self._tell_troubles(attempt, troubles)
        self.activate(attempt)
        message = f"Successfully assigned {order.key} to {order.node}"
        self._effects.append(
            Record(
                Said.SCHEDULED,
                order.uid,
                order.assignment.namespace,
                order.assignment.name,
                order.profile,
                message,
            )
        )
        self._end(
            attempt,
            State.BOUND,
            "",
            BindingOutcome(order.uid, order.attempt, version=order.version),
            now,
        )

    def fail(self, attempt: Attempt, why: Failure, now: float, *, fenced: bool = False) -> None:
        """It is not bound, and will not be: Bind was not called on, or no such call can land any more (`fenced`)."""
        self._roll_back(attempt)
        outcome = self._say_failure(attempt.order, why, fenced=fenced)
        self._end(attempt, State.FAILED, why.message, outcome, now)

    def leave(self, attempt: Attempt, now: float) -> None:
        """It is the snapshot's from now on."""
        self._roll_back(attempt)
        self._end(attempt, State.LEFT, "its deadline has passed", None, now)

    def supersede(self, attempt: Attempt, now: float) -> None:
        self._roll_back(attempt)
        self._end(attempt, State.SUPERSEDED, "there is a newer attempt", None, now)

    def refuse(self, order: BindingOrder, why: Failure, now: float) -> None:
        """An order that is not even begun."""
        outcome = self._say_failure(order, why)
        self._reports.add(outcome, now)
        self._effects.append(Ended(order, now, why.message))
        self._book.remember(order.uid, Identity(order.epoch, order.attempt), outcome)

    def took(self, attempt: Attempt, point: ExtensionPoint, code: Code, began: float) -> None:
        """An extension point is over for the attempt, whether that is its end or not."""
        name = extension_points.NAMES[point]
        self._effects.append(Took(name, code, attempt.framework.name, self._clock() - began))

    def activate(self, attempt: Attempt) -> None:
        """The pods that plugins have named so far are told to the queue, once."""
        named = attempt.cycle.activated
        if named:
            self._effects.append(Activated(sorted(named)))
            named.clear()

    def _roll_back(self, attempt: Attempt) -> None:
        if attempt.reserved:
            attempt.reserved = False
            self._tell_troubles(
                attempt, extension_points.unreserve(attempt.framework, attempt.cycle, attempt.order.node)
            )

    def _end(self, attempt: Attempt, state: State, reason: str, outcome: BindingOutcome | None, now: float) -> None:
        attempt.move(state, now)
        if outcome is not None:
            self._reports.add(outcome, now)
        self._effects.append(Ended(attempt.order, attempt.began, reason))
        follower = self._book.drop(attempt, outcome)
        if follower is not None:
            self._follow(follower, now)

    def _say_failure(self, order: BindingOrder, why: Failure, *, fenced: bool = False) -> BindingOutcome:
        if why.told:
            pod = (order.uid, order.assignment.namespace, order.assignment.name)
            self._effects.append(Record(Said.FAILED, *pod, order.profile, why.message))
            self._effects.append(SetCondition(*pod, why.reason, why.message))
        return BindingOutcome(
            order.uid,
            order.attempt,
            why.message,
            plugin=why.plugin,
            rejected=why.rejected,
            handed_back=why.handed_back,
            gone=why.gone,
            version=order.version,
            fenced=fenced,
        )

    def _tell_troubles(self, attempt: Attempt, troubles: list[str]) -> None:
        order = attempt.order
        for trouble in troubles:
            self._effects.append(Problem(ClusterError(f"Pod {order.key}: {trouble}")))
