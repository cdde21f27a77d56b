"""Cycle: nominations go in as many commits as they need, and a gang that fits in none fails."""

from services.cycle.answer_checks import AnswerChecks
from services.cycle.commits import MAX_COMMIT_BYTES, Commits, PlannedNomination
from services.cycle.preemption.candidate_search import Preemption
from services.cycle.round.assign import RoundResult, Unfit
from services.cycle.round.ladder_merge import Placement
from shared.messages.codec import encode
from shared.messages.limits import MAX_BODY
from shared.messages.preemption import Victim
from shared.messages.state import Commit, Committed
from shared.model.load import load_of
from testing.builders import pod
from testing.inprocess.batches import pod_info

VICTIM_BYTES = 1024
PER_POD = MAX_COMMIT_BYTES // VICTIM_BYTES // 4
"""Victims a pod of which three pods fit in one commit, and four do not."""


def planned(name: str, gang: str = "") -> PlannedNomination:
    victims = tuple(Victim(f"{name}-{i}", "x" * VICTIM_BYTES, 5, 1.7e9) for i in range(PER_POD))
    found = Preemption(nominated="n", victims=victims)
    return PlannedNomination(pod_info(pod(name).build(), "class"), (), Unfit("no", ()), found, 7, gang=gang)


def nominated(commit: Commit) -> list[str]:
    return [each.assignment.name for each in commit.nominations]


def test_a_gang_whose_victims_fit_in_no_commit_fails_and_others_are_nominated() -> None:
    commits = Commits(1, "", AnswerChecks())
    refused = commits.plan([planned(f"m{i}", "scheduling.k8s.io/ns/g") for i in range(4)])
    assert [info.name for info, _ in refused.failed] == ["m0", "m1", "m2", "m3"]
    assert {status.message for _, status in refused.failed} == {refused.failed[0][1].message}
    assert "the nominations of 4 pods with" in refused.failed[0][1].message
    assert not commits.has_nominations
    assert not commits.plan([planned(f"n{i}", "scheduling.k8s.io/ns/h") for i in range(3)]).failed
    (send,) = commits.send_planned(0.0)
    assert nominated(send.message) == ["n0", "n1", "n2"]
    assert len(encode(send.message)) <= MAX_BODY


def test_nominations_that_fit_in_no_commit_together_go_one_after_the_other() -> None:
    commits = Commits(1, "", AnswerChecks())
    assert not commits.plan([planned(f"p{i}") for i in range(5)]).failed
    (send,) = commits.send_planned(0.0)
    assert nominated(send.message) == ["p0", "p1", "p2"]
    assert len(encode(send.message)) <= MAX_BODY
    assert commits.send_planned(0.0) == []
    assert {info.name for info in commits.held()} == {f"p{i}" for i in range(5)}
    assert commits.take(Committed(1, send.message.number, 8, [])) is not None
    (send,) = commits.send_planned(0.0)
    assert nominated(send.message) == ["p3", "p4"]


SMALL = load_of(pod("p").build())


def test_a_gang_whose_decisions_fit_in_no_commit_fails_as_a_whole() -> None:
    commits = Commits(1, "", AnswerChecks())
    members = [
        pod_info(pod(f"m{i}").label(large="x" * (MAX_COMMIT_BYTES // 4)).build(), "class", load=SMALL, size=1)
        for i in range(4)
    ]
    withheld = pod_info(pod("w").build(), "class")
    few = RoundResult([], decided=[(info, Placement("n", 1, 7)) for info in members[:3]])
    assert commits.refuse_large("ns/g", few) is few
    every = RoundResult(
        [], decided=[(info, Placement("n", 1, 7)) for info in members], withheld=[(withheld, Unfit("no", ()))]
    )
    refused = commits.refuse_large("ns/g", every)
    assert not refused.decided
    assert [info.name for info, _ in refused.failed] == ["m0", "m1", "m2", "m3", "w"]
    assert "the decisions of 4 pods take 7,3" in refused.failed[0][1].message
