"""Decided pods count with the labels that the API server will copy from their node, once it has been seen to do so."""

from services.snapshot.events import Effect, PodSeen
from shared.messages.state import Delta, PodPlaced
from shared.model.wellknown import REGION, ZONE
from testing.inprocess.pipeline import bound
from tests.rounds.support import SnapshotLog, changes, commit, relabelled, small_node, small_pod

A = relabelled(small_node("a"), **{ZONE: "z", REGION: "r"})
B = small_node("b")
COPIED = {ZONE: "z", REGION: "r"}


def placed(effects: list[Effect]) -> list[dict[str, str]]:
    """The labels with which pods count from this delta on."""
    (delta,) = [effect for effect in effects if isinstance(effect, Delta)]
    return [dict(delta.loads[each.load].labels) for each in delta.changes if isinstance(each, PodPlaced)]


class Binding:
    """A snapshot, and an API server that copies labels or does not."""

    def __init__(self) -> None:
        self.log = SnapshotLog(A, B)
        self._commits = 0

    def decide(self, *names: str, where: str = "a", **labels: str) -> list[Effect]:
        self._commits += 1
        wanted = [(small_pod(name, **labels), where, self.log.core.seq) for name in names]
        return self.log.handle(commit(self._commits, *wanted))

    def show_bound(self, name: str, where: str = "a", **labels: str) -> list[Effect]:
        return self.log.handle(PodSeen(bound(small_pod(name, **labels), where)))


def test_nothing_is_added_before_it_was_seen() -> None:
    assert placed(Binding().decide("p", app="web")) == [{"app": "web"}]


def test_once_it_was_seen_a_confirmed_pod_changes_nothing() -> None:
    binding = Binding()
    binding.decide("p", app="web")
    binding.show_bound("p", app="web", **COPIED)
    assert placed(binding.decide("q", app="web"))[-1] == {"app": "web", **COPIED}
    assert changes(binding.show_bound("q", app="web", **COPIED)) == []
    assert not binding.log.core.cluster.has_postponed
    assert binding.log.core.cluster.pods[small_pod("q").uid].load.labels == {"app": "web", **COPIED}


def test_pods_of_one_kind_on_nodes_of_one_zone_share_a_load() -> None:
    binding = Binding()
    binding.decide("p")
    binding.show_bound("p", **COPIED)
    binding.decide("flush", where="b")
    (delta,) = [each for each in binding.decide("q", "r") if isinstance(each, Delta)]
    q, r = (each for each in delta.changes if isinstance(each, PodPlaced))
    assert (q.load, delta.loads[q.load].labels) == (r.load, COPIED)


def test_a_node_without_such_labels_gives_none_and_teaches_nothing() -> None:
    binding = Binding()
    binding.decide("p")
    binding.show_bound("p", **COPIED)
    binding.decide("q", where="b")
    binding.show_bound("q", where="b")
    assert placed(binding.decide("r", where="b"))[-1] == {}
    assert placed(binding.decide("s"))[-1] == COPIED


def test_it_ends_when_the_api_server_does_so_no_more() -> None:
    binding = Binding()
    binding.decide("p")
    binding.show_bound("p", **COPIED)
    binding.decide("q")
    binding.show_bound("q")
    assert binding.log.core.cluster.pods[small_pod("q").uid].load.labels == {}
    assert placed(binding.decide("r")) == [{}, {}], "q again, without them, and r"


def test_what_an_earlier_decision_was_given_is_in_the_ledger() -> None:
    binding = Binding()
    binding.decide("p")
    binding.show_bound("p", **COPIED)
    binding.decide("q")
    (entry,) = binding.log.core.cluster.ledger
    assert entry.load.labels == COPIED
