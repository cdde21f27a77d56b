from shared.model.objects import decode_pod, encode_json
from testing.builders import node, pod


def test_builders_are_immutable() -> None:
    base = pod("web").request(cpu="100m")
    base.request(memory="1Gi").on("node-1").label(app="web").host_port(80)
    assert base.build() == pod("web").request(cpu="100m").build()
    bare = node("n")
    bare.capacity(cpu="4").taint("k").unschedulable()
    assert bare.build() == node("n").build()


def test_requests_go_to_the_last_container() -> None:
    built = pod("web").container("a").request(cpu="1").container("b").request(cpu="2").build()
    assert [(c.name, c.resources.requests["cpu"].milli) for c in built.spec.containers] == [("a", 1000), ("b", 2000)]


def test_a_built_pod_is_as_decoded() -> None:
    built = pod("web", "shop").owner("ReplicaSet", "rs").gate("g").nominated("n").build()
    assert built.uid == built.metadata.uid == "shop/web"
    assert decode_pod(encode_json(built)) == built
