"""A binder core whose snapshot and API server are played by hand."""

from collections.abc import Sequence
from typing import Any, TypeVar

from flotilla.plugin import Plugin
from flotilla.results import ApiCall, Code, Permission, Status
from services.binder.core import BinderCore
from services.binder.events import Call, Called, Done, Effect, Event, LookedUp, LookUp, Result, Tick, Where
from services.binder.outcome_reports import BOUND_GATHER_SECONDS, GATHER_SECONDS
from shared.config.points import ExtensionPoint
from shared.framework.profile import Framework
from shared.messages.binding import OVERDUE, BindingOrders, BindingOutcome, BindingOutcomes, PermitAnswer
from shared.messages.queue import Received
from shared.messages.state import Assignment, BindingOrder
from shared.plugins.queueandbind import DefaultBinder
from tests.framework.plugins import framework

PROFILE = "test"
TIME = 30.0
"""Seconds from an order to its deadline."""
VERSION = "7"
"""Of the pods that are ordered to be bound."""
OTHER = "8"
"""Which pods have when they have changed."""
E = TypeVar("E")

POINTS = (ExtensionPoint.RESERVE, ExtensionPoint.PERMIT, ExtensionPoint.PRE_BIND, ExtensionPoint.POST_BIND)


def binding_framework(*plugins: Plugin, bind: Sequence[Plugin] = ()) -> Framework:
    """The plugins run at all points but Bind, which is the default one's."""
    names = [plugin.name for plugin in plugins]
    binders = bind or (DefaultBinder(),)
    at: dict[ExtensionPoint, Sequence[Any]] = dict.fromkeys(POINTS, names)
    return framework({**at, ExtensionPoint.BIND: [plugin.name for plugin in binders]}, *plugins, *binders)


def told(uid: str, attempt: int, reason: str = "", **fields: Any) -> BindingOutcome:
    """Of an order that names VERSION."""
    return BindingOutcome(uid, attempt, reason, **{"version": VERSION, **fields})


def overdue(uid: str = "p", attempt: int = 1) -> BindingOutcome:
    """It names no version: whether a call may still land, the binder does not know."""
    return BindingOutcome(uid, attempt, OVERDUE)


def wait(seconds: float) -> Permission:
    return Permission(Status(Code.WAIT), seconds)


def api_call(path: str) -> ApiCall:
    return ApiCall("PATCH", path, {})


class Script:
    """Feeds a binder core and validates it after every event. Its outcomes are gathered in `told`."""

    def __init__(self, of: Framework | None = None, *, nominates: bool = False) -> None:
        frameworks = {PROFILE: of or binding_framework()}
        self.core = BinderCore("b", frameworks, clock=lambda: self.now, nominates=nominates)
        self.now = 1000.0
        self.epoch = 1
        self.told: list[BindingOutcome] = []
        self.effects: list[Effect] = []
        """All there were."""

    def handle(self, event: Event) -> list[Effect]:
        effects = self.core.handle(event, self.now)
        self.core.validate()
        self.effects += effects
        return effects

    def order(
        self, uid: str = "p", attempt: int = 1, node: str = "n1", *, epoch: int | None = None, **fields: Any
    ) -> list[Effect]:
        return self.handle(BindingOrders(epoch or self.epoch, [self.an_order(uid, attempt, node, **fields)]))

    def an_order(self, uid: str = "p", attempt: int = 1, node: str = "n1", **fields: Any) -> BindingOrder:
        """`fields`: of the order, or of its assignment."""
        order: dict[str, Any] = {"epoch": self.epoch, "window": TIME, "attempt": attempt}
        order |= {name: fields.pop(name) for name in list(fields) if name in order}
        assignment = Assignment(uid, "default", uid, **{"profile": PROFILE, "version": VERSION, "node": node, **fields})
        return BindingOrder(assignment, **order)

    def answer(self, call: Call, result: Result | None = None) -> list[Effect]:
        return self.handle(Called(call.uid, call.attempt, call.step, result or Done()))

    def found(self, look_up: LookUp, where: Where, node: str = "", version: str = OTHER) -> list[Effect]:
        """`version`: of a pod that is not bound."""
        return self.handle(LookedUp(look_up.uid, look_up.attempt, where, node, "" if node else version))

    def permit(
        self, plugin: str, allow: bool = True, reason: str = "", uid: str = "p", *, attempt: int = 0, id: str = ""
    ) -> list[Effect]:
        return self.handle(PermitAnswer(uid, plugin, allow, reason, attempt, id))

    def pass_time(self, seconds: float) -> list[Effect]:
        self.now += seconds
        return self.handle(Tick())

    def reports(self, *, acknowledge: bool = True) -> list[BindingOutcomes]:
        """The outcomes that are reported a moment later."""
        messages = only(BindingOutcomes, self.pass_time(GATHER_SECONDS))
        messages = messages or only(BindingOutcomes, self.pass_time(BOUND_GATHER_SECONDS - GATHER_SECONDS))
        for message in messages:
            self.told += message.outcomes
            if acknowledge:
                self.handle(Received(0, message.number))
        return messages

    def outcomes(self) -> list[BindingOutcome]:
        return [outcome for message in self.reports() for outcome in message.outcomes]


def only(kind: type[E], effects: Sequence[object]) -> list[E]:
    return [effect for effect in effects if isinstance(effect, kind)]


def one(kind: type[E], effects: Sequence[object]) -> E:
    (found,) = only(kind, effects)
    return found
