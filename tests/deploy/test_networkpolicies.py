"""Who may speak to whom in the cluster: what is needed, and nothing else."""

import pytest

from tests.deploy.rendering import OVERLAYS, Object, labels_of, of_kind, rendered, selects, service_of, workloads

ANYWHERE = "anywhere"
NAMES, API, NATS, REDIS, HTTP = (53,), (443, 6443), (4222,), (6379,), (8080,)
NEEDS = {
    "watcher": {NATS, API, NAMES},
    "queue": {NATS, API, NAMES, REDIS},
    "snapshot": {NATS, API, NAMES, REDIS},
    "cycle": {NATS, API, NAMES},
    "core": {NATS, API, NAMES, REDIS},
    "worker": {NATS, API, NAMES, REDIS},
    "binder": {NATS, API, NAMES},
}
SERVERS = {"nats": NATS, "valkey": REDIS}


def policies(found: list[Object]) -> list[Object]:
    return [each["spec"] for each in of_kind(found, "NetworkPolicy")]


def pods(found: list[Object]) -> dict[str, dict[str, str]]:
    """The labels of each kind of pod, by its service or the server's name."""
    return {service_of(each) or each["metadata"]["name"]: labels_of(each) for each in workloads(found)}


def ports(rule: Object) -> tuple[int, ...]:
    return tuple(sorted({each["port"] for each in rule["ports"]}))


def allowed(found: list[Object], direction: str, labels: dict[str, str]) -> list[Object]:
    """All rules that let this pod speak or be spoken to."""
    rules: list[Object] = []
    for spec in policies(found):
        if direction in spec["policyTypes"] and selects(spec["podSelector"], labels):
            rules += spec.get(direction.lower(), [])
    return rules


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_everything_else_is_forbidden(overlay: str) -> None:
    forbidding = [spec for spec in policies(rendered(f"overlays/{overlay}")) if spec["podSelector"] == {}]
    assert forbidding == [{"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_services_reach_what_they_use(overlay: str) -> None:
    found = rendered(f"overlays/{overlay}")
    for name, labels in pods(found).items():
        rules = allowed(found, "Egress", labels)
        assert {ports(rule) for rule in rules} == NEEDS.get(name, set()), name
        for rule in rules:
            reached = [
                other for other, theirs in pods(found).items() for peer in rule.get("to", []) if _is(peer, theirs)
            ]
            if ports(rule) in (NATS, REDIS) and overlay != "external":
                assert reached == ["nats" if ports(rule) == NATS else "valkey"]
            else:
                assert reached == []


@pytest.mark.parametrize("overlay", ["beside", "instead", "core"])
def test_servers_are_reached_by_their_users(overlay: str) -> None:
    found = rendered(f"overlays/{overlay}")
    everyone = pods(found)
    for server, port in SERVERS.items():
        users = {name for name, needs in NEEDS.items() if port in needs} & everyone.keys()
        (rule,) = allowed(found, "Ingress", everyone[server])
        assert ports(rule) == port
        assert {name for name, labels in everyone.items() for peer in rule["from"] if _is(peer, labels)} == users


def test_only_prometheus_reaches_services() -> None:
    for labels in pods(rendered("overlays/beside")).values():
        rules = allowed(rendered("monitoring"), "Ingress", labels)
        if labels["app.kubernetes.io/name"] == "flotilla":
            assert allowed(rendered("overlays/beside"), "Ingress", labels) == []
            (rule,) = rules
            assert ports(rule) == HTTP
            (peer,) = rule["from"]
            assert peer.keys() == {"namespaceSelector", "podSelector"}
        else:
            assert rules == []


def _is(peer: Object, labels: dict[str, str]) -> bool:
    """Whether a pod of our own namespace is meant."""
    return "namespaceSelector" not in peer and selects(peer["podSelector"], labels)
