"""Plugins have other pods tried again."""

from flotilla.plugin import BindingState, PermitPlugin, PostBindPlugin, PreBindPlugin, ReservePlugin
from flotilla.results import SUCCESS, Permission, Status, unschedulable
from services.binder.events import ActivatePods, Call
from tests.binder.support import Script, binding_framework, one, only, wait


class Rousing(ReservePlugin, PermitPlugin, PreBindPlugin, PostBindPlugin):
    name = "Rousing"

    def __init__(self, permission: Permission) -> None:
        self._permission = permission

    def reserve(self, state: BindingState, node: str) -> Status:
        state.activated |= {"b", "a"}
        return SUCCESS

    def unreserve(self, state: BindingState, node: str) -> None:
        """It holds nothing."""

    def permit(self, state: BindingState, node: str) -> Permission:
        return self._permission

    def pre_bind(self, state: BindingState, node: str) -> Status:
        return SUCCESS

    def post_bind(self, state: BindingState, node: str) -> None:
        state.activated.add("c")


def test_the_pods_are_named_once_the_pod_at_hand_has_its_permit_and_once_it_is_bound() -> None:
    script = Script(binding_framework(Rousing(Permission())))
    effects = script.order()
    assert only(ActivatePods, effects) == [ActivatePods(["a", "b"])]
    assert only(ActivatePods, script.answer(one(Call, effects))) == [ActivatePods(["c"])]


def test_who_waits_for_a_permit_may_be_what_others_have_waited_for() -> None:
    script = Script(binding_framework(Rousing(wait(10.0))))
    assert only(ActivatePods, script.order()) == [ActivatePods(["a", "b"])]
    assert only(ActivatePods, script.permit("Rousing")) == []


def test_a_rejected_pod_activates_no_others() -> None:
    script = Script(binding_framework(Rousing(Permission(unschedulable("no")))))
    assert only(ActivatePods, script.order()) == []
