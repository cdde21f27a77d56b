"""The content of volume claims, which the queue tells of pods that share none."""

import msgspec

from services.queue.watch_decoder import WatchDecoder
from shared.messages.watch import ObjectChange, PodChange
from shared.model.objects import ClusterObject, encode_msgpack, key_of, kind_of
from testing.builders import PodBuilder, pod
from tests.plugins.volumes.storage import claim, volume
from tests.queue.support import Queue


class Cluster:
    """The core behind a WatchDecoder, as in the service; all claims of these names are bound."""

    def __init__(self, *claims: str) -> None:
        self.queue = Queue()
        self._decoder = WatchDecoder(self.queue.core.objects)
        for name in claims:
            self._object(claim(name, volume=f"v-{name}"))
            self._object(volume(f"v-{name}", kept_for=name))

    def _object(self, obj: ClusterObject) -> None:
        self._tell(ObjectChange(kind_of(obj), key_of(obj), body=msgspec.Raw(encode_msgpack(obj))))

    def pod(self, built: PodBuilder, *, gone: bool = False) -> None:
        of = built.build()
        body = msgspec.Raw(encode_msgpack(of))
        self._tell(PodChange(of.uid, of.namespace, of.name, node=of.spec.node_name, gone=gone, body=body))

    def _tell(self, change: ObjectChange | PodChange) -> None:
        for seen in self._decoder.decode(change, self.queue.now):
            self.queue.tell(seen)

    def told(self) -> dict[str, list[str] | None]:
        """The claims of each pod that is handed out, if their names do not matter."""
        batch = self.queue.ask()
        pods = [] if batch is None else batch.pods
        claims = [None if each.volumes is None else each.volumes.claims for each in pods]
        names = [msgspec.msgpack.decode(each.pod)["metadata"]["name"] for each in pods]
        return dict(zip(names, claims, strict=True))


def test_claims_of_ones_own_are_told_with_equal_content() -> None:
    cluster = Cluster("a", "b")
    cluster.pod(pod("p").claim("a"))
    cluster.pod(pod("q").claim("b"))
    batch = cluster.queue.ask()
    assert batch is not None
    (p, q) = (each.volumes for each in batch.pods)
    assert p is not None
    assert q is not None
    assert (p.claims, q.claims, p.content) == (["a"], ["b"], q.content)


def test_a_claim_that_pending_pods_share_is_not_told() -> None:
    cluster = Cluster("a", "b")
    for name, of in (("p", "a"), ("q", "a"), ("r", "b")):
        cluster.pod(pod(name).claim(of))
    assert cluster.told() == {"p": None, "q": None, "r": ["b"]}


def test_a_claim_that_a_pod_on_a_node_uses_is_not_told_until_that_pod_is_gone() -> None:
    cluster = Cluster("a", "b")
    cluster.pod(pod("there").on("n").claim("a"))
    cluster.pod(pod("p").claim("a"))
    cluster.pod(pod("q").claim("b"))
    assert cluster.told() == {"p": None, "q": ["b"]}
    cluster.pod(pod("q").claim("b").on("n"))
    cluster.pod(pod("there").on("n").claim("a"), gone=True)
    cluster.pod(pod("q").claim("b").on("n"), gone=True)
    cluster.pod(pod("r").claim("b"))
    cluster.queue.fail("p")
    cluster.queue.at(cluster.queue.now + 100.0)
    assert cluster.told() == {"p": ["a"], "r": ["b"]}
