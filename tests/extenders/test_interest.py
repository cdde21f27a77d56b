"""Which extenders are asked about which pods."""

from shared.config.structs import ExtenderConfig, ManagedResource
from shared.extenders.talk import binder_of, in_order, interested, is_interested, timeout_of
from testing.builders import pod

GPU = "example.com/gpu"
OF_GPUS = ExtenderConfig("http://gpus", managed_resources=(ManagedResource(GPU), ManagedResource("example.com/fpga")))
OF_ALL = ExtenderConfig("http://all")


def test_an_extender_that_manages_nothing_is_interested_in_all_pods() -> None:
    assert is_interested(OF_ALL, pod("p").build())


def test_an_extender_is_interested_in_pods_that_ask_for_what_it_manages() -> None:
    assert is_interested(OF_GPUS, pod("p").container("c").request({GPU: 1}).build())
    assert is_interested(OF_GPUS, pod("p").container("c").limit({GPU: 1}).build())
    assert is_interested(OF_GPUS, pod("p").init_container({GPU: 1}).container("d").build())
    assert not is_interested(OF_GPUS, pod("p").container("c").request(cpu=1).build())


def test_those_that_may_fail_come_last() -> None:
    lenient = ExtenderConfig("http://lenient", ignorable=True)
    assert in_order([lenient, OF_GPUS, OF_ALL]) == (OF_GPUS, OF_ALL, lenient)
    assert interested(in_order([lenient, OF_GPUS, OF_ALL]), pod("p").build()) == (OF_ALL, lenient)


def test_who_binds_a_pod() -> None:
    binder = ExtenderConfig("http://binder", bind_verb="bind", managed_resources=(ManagedResource(GPU),))
    asking = pod("p").container("c").request({GPU: 1}).build()
    assert binder_of([OF_ALL, binder], asking) == binder
    assert binder_of([OF_ALL, binder], pod("p").build()) is None


def test_without_a_timeout_there_is_one() -> None:
    assert timeout_of(ExtenderConfig("http://x", http_timeout=0.0)) == 5.0
    assert timeout_of(ExtenderConfig("http://x", http_timeout=0.5)) == 0.5
