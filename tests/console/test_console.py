"""The console: its model, its API, and its page in a real browser beside a real pipeline."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import aiohttp
import msgspec
import pytest
from msgspec.structs import replace

from shared.config.settings import Settings
from shared.messages.inspection import DescribedPod, ListQueue
from shared.messages.state import Delta, Heartbeat, NodeRemoved, NodeUpserted, PodGone, PodNominated, PodPlaced
from shared.messages.status import Distribution, ProcessStatus
from shared.model.load import load_of
from shared.runtime.context import Health
from shared.runtime.pages import Pages
from shared.runtime.serving import Desk, served
from shared.telemetry.metrics import Metrics
from testing.builders import NodeBuilder, node, pod
from tests.bus.support import PREFIX, a_bus, until
from tests.console.browser import CHROMIUM, Page, a_page
from tests.pipeline.support import Cluster, a_cluster, plain, web
from tests.servers import nats_server
from tools.console import follower as following
from tools.console.cluster import ClusterModel
from tools.console.follower import Follower
from tools.console.kinds import node_kinds
from tools.console.overview import Services
from tools.console.pending import PendingPods, matching
from tools.console.site import POLICY, files, site
from tools.following import GAP_PATIENCE
from tools.live_state import StateBuilder
from tools.supervisor.options import PipelineOptions
from tools.supervisor.pipeline import Pipeline

SMALL = load_of(pod("small").request(cpu="500m", memory="1Gi").build())
MARKUP = "<img src=x onerror=alert(1)>"

# The model


def a_node(name: str) -> NodeBuilder:
    return node(name).capacity(cpu=4, memory="8Gi", pods=110).label({"zone": "z1"})


def loaded(*names: str) -> ClusterModel:
    state = StateBuilder()
    state.nodes = {name: a_node(name).build() for name in names}
    state.pods = {"uid-p": (names[0], SMALL, "shop/p", None)}
    model = ClusterModel()
    model.load(state, epoch=1, seq=10, now=0.0)
    model.take_changes()
    return model


def delta(seq: int, *changes: Any, epoch: int = 1) -> Delta:
    return Delta(epoch, seq, list(changes), [SMALL])


def cpu_of(model: ClusterModel) -> dict[str, int]:
    return {name: entry.requested.get("cpu", 0) for name, entry in model.nodes.items()}


def test_deltas_move_amounts_between_nodes_and_name_only_what_changed() -> None:
    model = loaded("a", "b", "c")
    assert cpu_of(model) == {"a": 500, "b": 0, "c": 0}
    model.take(delta(11, PodPlaced("uid-q", "b", 0, "shop/q"), PodNominated("uid-n", "a", 0, "shop/n")), 0.0)
    model.take(delta(12, PodPlaced("uid-p", "b", 0, "shop/p")), 0.0)
    assert cpu_of(model) == {"a": 0, "b": 1000, "c": 0}
    changes = model.take_changes()
    assert [entry.name for entry in changes.used] == ["b", "a"] and not changes.added and not changes.gone
    assert (model.placed, model.nominations["uid-n"].node) == (1, "a")
    model.take(delta(13, PodGone("uid-q"), PodGone("uid-p")), 0.0)
    assert cpu_of(model) == {"a": 0, "b": 0, "c": 0} and not model.pods


def test_nodes_come_and_go_with_their_pods() -> None:
    model = loaded("a")
    model.take(delta(11, NodeUpserted(a_node("b").unschedulable().build()), NodeRemoved("a")), 0.0)
    assert [entry.name for entry in model.take_changes().added] == ["b", "a"]
    assert model.nodes["b"].unschedulable and model.capacity(model.nodes["a"]) == [0, 0, 0, 0]
    model.take(delta(12, PodPlaced("uid-q", "b", 0, "shop/q"), NodeUpserted(a_node("a").build())), 0.0)
    assert model.label_keys() == ["zone"]
    assert model.totals() == [("cpu", 1000, 8000), ("memory", 2 << 30, 16 << 30), ("pods", 2, 220)]


@pytest.mark.parametrize("lost", [delta(12), delta(3, epoch=2), Heartbeat(2, 1)])
def test_a_lost_delta_and_another_term_make_the_model_stale(lost: Delta | Heartbeat) -> None:
    model = loaded("a")
    model.take(delta(10), 0.0)  # is in the state already
    assert not model.stale
    model.take(lost, 0.0)
    model.take(Heartbeat(1, 10), GAP_PATIENCE)
    assert model.stale


def test_a_delta_may_be_later_than_the_heartbeat_that_names_it() -> None:
    model = loaded("a")
    for at in range(3):
        model.take(Heartbeat(1, 11), at * GAP_PATIENCE / 4)
    model.take(delta(11), 0.9 * GAP_PATIENCE)
    model.take(Heartbeat(1, 12), 2 * GAP_PATIENCE)
    assert not model.stale
    model.take(Heartbeat(1, 12), 3 * GAP_PATIENCE)
    assert model.stale


def test_a_model_that_is_loaded_again_has_other_numbers() -> None:
    model = loaded("a")
    (before,) = model.nodes.values()
    model.load(StateBuilder(), 2, 1, 0.0)
    assert model.take_changes().gone == [before.id]
    assert not model.nodes


def test_nodes_of_one_pool_and_size_are_a_kind() -> None:
    model = loaded("n10")
    pool = {"node.kubernetes.io/instance-type": "large"}
    nodes = [
        a_node("a").label(pool).unschedulable(),
        a_node("b").label(pool),
        a_node("c").label(pool),
        a_node("d").label(pool).capacity(cpu="500m"),
    ]
    model.take(delta(11, *(NodeUpserted(each.build()) for each in nodes), PodPlaced("uid-q", "gone", 0, "s/q")), 0.0)
    kinds = [(each.name, each.like, each.nodes, each.cpu) for each in node_kinds(model.nodes.values())]
    assert kinds == [("large", "b", 3, 4.0), ("n10", "n10", 1, 4.0), ("large-2", "d", 1, 0.5)]


def described(name: str, state: str, message: str = "", **more: Any) -> DescribedPod:
    return DescribedPod(f"uid-{name}", "shop", name, "s", state, 1.0, 1.0, 1.0, message=message, **more)


def test_pending_pods_are_grouped_by_reason_and_found_by_text() -> None:
    full = "0/5 nodes are available: 3 Insufficient cpu, 2 node(s) had untolerated taint(s). preemption: none."
    pods = [
        described("a", "unschedulable", full, plugins=("NodeResourcesFit",)),
        described("b", "backoff", "0/5 nodes are available: 5 Insufficient cpu."),
        described("c", "gated", gate="SchedulingGates", gate_reason="waiting for x"),
        described("d", "binding", full, node="n1"),
    ]
    pending = PendingPods()
    pending.take({each.uid: each for each in pods}, len(pods))
    assert [(each.text, each.pods, each.nodes) for each in pending.reasons] == [
        ("Insufficient cpu", 2, 5),
        ("node(s) had untolerated taint(s)", 1, 2),
        ("waiting for x", 1, 0),
    ]
    assert [each.name for each in matching(pods, "Insufficient", "")] == ["a", "b", "d"]
    assert [each.name for each in matching(pods, "n1", "binding")] == ["d"]


def process(now: float, cpu: float, *counts: int) -> ProcessStatus:
    lasted = {"scheduler_pod_scheduling_sli_duration_seconds": Distribution((0.1, 1.0), counts, 1.0)}
    values = {"flotilla_rounds_total": 10 * now}
    return ProcessStatus("1", "queue", "queue", 7, "here", "1", 0.0, now, cpu, 64, values=values, distributions=lasted)


def test_figures_of_services_are_of_the_last_minute() -> None:
    services = Services()
    for at, cpu, counts in ((100.0, 5.0, (1000, 0, 0)), (130.0, 8.0, (1000, 10, 0)), (165.0, 15.0, (1000, 110, 0))):
        services.take([process(at, cpu, *counts)], at)
    shown = services.shown
    assert shown["processes"][0]["cpu"] == pytest.approx(10 / 65, abs=1e-3)
    services.take([process(170.0, 15.0), replace(process(170.0, 15.0), service="cycle", name="cycle")], 170.0)
    assert [each["memory"] for each in services.shown["processes"]] == [64, None], "of one process, once"
    (duration,) = shown["durations"]
    assert duration[:2] == ["from the queue to the node", 110] and duration[2][0] == pytest.approx(0.55)
    assert shown["counters"][0] == ["rounds", 1650.0, 10.0]


# What is served


@asynccontextmanager
async def a_site(**given: Any) -> AsyncIterator[tuple[str, aiohttp.ClientSession]]:
    settings = Settings(**given)
    pages = Pages(service="console", name="console", settings=settings, health=Health())
    async with (
        served(settings, Desk(pages, Metrics()), site(settings, Follower())) as url,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as session,
    ):
        yield url, session


@pytest.mark.asyncio
async def test_every_answer_forbids_what_a_page_does_not_need() -> None:
    async with a_site() as (url, session):
        for path in (*files(), "/api/labels", "/api/node", "/livez", "/nothing"):
            async with session.get(url + path) as answer:
                assert answer.status == (404 if path in ("/api/node", "/nothing") else 200), path
                headers = answer.headers
            assert headers["Content-Security-Policy"] == POLICY
            assert (headers["X-Content-Type-Options"], headers["Referrer-Policy"]) == ("nosniff", "no-referrer")
        for part in ("default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"):
            assert part in POLICY
        assert "unsafe" not in POLICY
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            async with session.request(method, f"{url}/api/pods") as answer:
                assert answer.status == 405


def test_the_page_makes_no_markup_of_text() -> None:
    for path, (body, _) in files().items():
        found = re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", body.decode()
        )
        assert found is None, f"{path}: {found}"


@pytest.mark.asyncio
async def test_another_name_of_this_machine_is_refused() -> None:
    async with a_site() as (url, session):
        port = url.rpartition(":")[2]
        hosts = {
            f"localhost:{port}": 200,
            "[::1]:99": 200,
            "127.0.0.1": 200,
            "evil.example": 403,
            f"evil.example:{port}": 403,
        }
        for host, status in hosts.items():
            for path in ("/", "/api/labels"):
                async with session.get(url + path, headers={"Host": host}) as answer:
                    assert answer.status == status, host


@pytest.mark.asyncio
async def test_pages_of_other_sites_may_lead_here_and_learn_nothing() -> None:
    async with a_site() as (url, session):
        for site_, path, status in (
            ("cross-site", "/", 200),
            ("cross-site", "/api/labels", 403),
            ("none", "/api/labels", 200),
        ):
            async with session.get(url + path, headers={"Sec-Fetch-Site": site_}) as answer:
                assert answer.status == status
                assert "Access-Control-Allow-Origin" not in answer.headers


@pytest.mark.asyncio
async def test_elsewhere_than_on_loopback_the_data_needs_a_token_and_the_page_does_not() -> None:
    async with a_site(http_scheme="https") as (url, session):
        for path in ("/", "/main.js", "/livez"):
            async with session.get(url + path) as answer:
                assert answer.status == 200
        for path in (
            "/api/stream",
            "/api/pods",
            "/api/pod",
            "/api/node",
            "/api/labels",
            "/api/preemptions",
            "/metrics",
        ):
            async with session.get(url + path) as answer:
                assert answer.status == 401, path


@pytest.mark.asyncio
async def test_nothing_is_asked_while_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "UNWATCHED", 0.1)
    follower, heard = Follower(), list[object]()
    async with nats_server() as server, a_bus(server) as bus, a_bus(server) as other:
        await other.subscribe("queue.list", ListQueue, lambda asked, _: heard.append(asked))
        running = asyncio.create_task(follower.run(bus, Settings(prefix=PREFIX)))
        viewer = follower.open()
        assert viewer is not None
        await until(lambda: bool(heard))
        follower.close(viewer)
        await until(lambda: not bus._subscriptions)
        assert not follower.watched
        running.cancel()


# The page


@asynccontextmanager
async def a_console() -> AsyncIterator[tuple[str, Cluster]]:
    """Of a pipeline with two nodes, a pod on one of them and a pod that fits nowhere."""
    settings = Settings(trace_url="http://127.0.0.1:9/jaeger", trace_ratio=1.0)
    async with (
        Pipeline.running(PipelineOptions(workers=1, settings=settings)) as pipeline,
        a_cluster(pipeline) as cluster,
    ):
        await cluster.create_namespace("shop")
        for name, zone in (("n1", "z1"), ("n2", "z2")):
            await cluster.create(
                node(name).capacity(cpu=2, memory="8Gi", pods=110).label({"zone": zone, "all": "same"})
            )
        await cluster.create(web("small", "shop").request(cpu=1).node_selector({"zone": "z1"}))
        await cluster.create(web("huge", "shop").request(cpu=64))
        yield (await pipeline.open_console()).rstrip("/"), cluster


async def get(url: str, **query: str) -> Any:
    async with aiohttp.ClientSession() as session, session.get(url, params=query) as answer:
        return msgspec.json.decode(await answer.read())


def manifest(cpu: int) -> str:
    made = plain(web("new", "shop").request(cpu=cpu))
    return msgspec.json.encode({"apiVersion": "v1", "kind": "Pod", **made}).decode()


async def what_if(url: str, text: str, **question: object) -> int | dict[str, str]:
    """The nodes of new pods, or the status of a refusal."""
    async with aiohttp.ClientSession() as session:
        async with session.post(f"{url}/api/manifests", json=text) as answer:
            if answer.status != 200:
                return answer.status
            manifests = await answer.json()
        async with session.post(f"{url}/api/whatif", json={"manifests": manifests, **question}) as answer:
            pods = (await answer.json())["pods"]
        return {f"{each['namespace']}/{each['name']}": each.get("node", "") for each in pods if each["origin"] == "new"}


async def rows(url: str, **query: str) -> dict[str, str]:
    return {each["name"]: each["state"] for each in (await get(f"{url}/api/pods", **query))["pods"]}


@pytest.mark.asyncio
async def test_a_pipeline_in_the_api_and_in_a_browser() -> None:
    async with a_console() as (url, cluster):
        await api_tells(url)
        if CHROMIUM is None:
            pytest.skip("there is no Chromium on this machine: the API was tested, the page was not")
        async with a_page() as page:
            await page.look(1280, 800)
            await overview_is_live(page, url, cluster)
            await map_shows_nodes(page, url)
            await pods_are_found(page, url)
            await questions_are_answered(page, url)
            await nothing_is_wider_than_a_phone(page, url)
            assert page.errors == []
            await text_stays_text(page, url)
            await page.value("document.head.append(Object.assign(document.createElement('script'), {text: 'x = 1'}))")
            assert await page.value("typeof x") == "undefined"


async def api_tells(url: str) -> None:
    expected = {"huge": "unschedulable", "small": "placed"}

    async with asyncio.timeout(20):
        while await rows(url) != expected:
            await asyncio.sleep(0.05)
    assert await rows(url, text="Insufficient") == {"huge": "unschedulable"}
    assert await rows(url, state="placed") == {"small": "placed"}
    assert await rows(url, offset="1") == {"small": "placed"}
    found = await get(f"{url}/api/pod", namespace="shop", name="huge")
    assert "Insufficient cpu" in found["queued"]["message"]
    assert [move[1] for move in found["queued"]["history"]][-1] == "unschedulable"
    assert re.fullmatch(r"http://127\.0\.0\.1:9/jaeger/trace/[0-9a-f]{32}", found["trace"])
    shown = await get(f"{url}/api/node", name="n1")
    assert (shown["pods"], shown["labels"]["zone"]) == (["shop/small"], "z1")
    assert ["cpu", 1000, 2000] in shown["resources"]
    assert sorted((await get(f"{url}/api/labels", key="zone")).values()) == ["z1", "z2"]
    assert await get(f"{url}/api/pod", namespace="shop", name="none") == {
        "problem": "there is no such pod here: it is gone, or of another scheduler"
    }
    assert (await get(f"{url}/api/preemptions"), await get(f"{url}/api/gangs")) == ([], [])
    told = await get(f"{url}/api/explanation", namespace="shop", name="huge")
    assert told["sentence"].startswith("shop/huge fits none of 2 nodes") and told["help"]
    happened = [each["what"] for each in await get(f"{url}/api/timeline", namespace="shop", name="small")]
    assert happened[:3] == ["created", "queued", "attempt"] and happened[3].startswith("decided: n1")
    assert sorted(happened[4:]) == ["bound", "left the queue", "the call that binds"]
    rejections = await get(f"{url}/api/rejections", namespace="shop", name="huge")
    numbers = await get(f"{url}/api/labels", key="zone")
    assert rejections["nodes"] == dict.fromkeys(numbers, 0) and rejections["reasons"][0]["nodes"] == 2
    assert await what_if(url, text="{}: {") == 400
    assert await what_if(url, text=manifest(2)) == {"shop/new": "n2"}
    assert await what_if(url, text=manifest(2), remove=["n2"]) == {"shop/new": ""}
    assert "does not wait" in (await get(f"{url}/api/rejections", namespace="shop", name="small"))["problem"]


async def overview_is_live(page: Page, url: str, cluster: Cluster) -> None:
    await page.go(f"{url}/")
    await page.until("document.getElementById('status')?.textContent === 'live'")
    await page.until("document.querySelectorAll('section[aria-label=Services] tbody tr').length === 6")
    await page.until("document.body.innerText.includes('Insufficient cpu')")
    placed = "document.querySelectorAll('.figure .value')[2].textContent"
    await page.until(f"{placed} === '1pods'")
    await cluster.create(web("late", "shop").request(cpu="500m").node_selector({"zone": "z1"}))
    await page.until(f"{placed} === '2pods'")


async def map_shows_nodes(page: Page, url: str) -> None:
    await page.go(f"{url}/#/map")
    await page.until("document.querySelector('canvas')?.dataset.nodes === '2'")
    await page.value("document.querySelector('canvas').focus()")
    for key in ("ArrowRight", "ArrowRight"):
        await page.press(key)
    await page.until("document.querySelector('.side h2').textContent === 'n2'")
    await page.press("ArrowRight")
    await page.value("document.querySelector('canvas').dispatchEvent(new KeyboardEvent('keydown', {key: 'Home'}))")
    side = "document.querySelector('.side').innerText"
    await page.until(f"{side}.includes('shop/late') && {side}.includes('75 %')")
    await page.value("document.querySelector('details').open = true")
    await page.until("document.querySelectorAll('details tbody tr').length === 2")
    group = "document.querySelectorAll('select')[1]"
    await page.value(f"{group}.value = 'all'; {group}.dispatchEvent(new Event('change'))")
    await page.until("document.querySelector('canvas').dataset.nodes === '2'")
    await page.choose("select", "why")
    assert await page.value("document.activeElement.id") == "why-pod"
    await page.until("document.querySelector('#waiting-pods option')?.value === 'shop/huge'")
    await page.type("shop/huge")
    await page.press("Enter")
    await page.until("document.querySelector('.legend .key')?.textContent.includes('cpu')")
    assert await page.value("location.hash") == "#/map?why=shop%2Fhuge"
    await page.choose("select", "memory")
    await page.until("document.querySelector('.legend').textContent.includes('memory requested')")
    assert await page.value("document.querySelector('#why-pod').offsetParent") is None


async def pods_are_found(page: Page, url: str) -> None:
    await page.go(f"{url}/#/pods")
    await page.until("document.querySelector('.rows')?.dataset.total === '3'")
    await page.value("document.querySelector('#pod-text').focus()")
    await page.type("huge")
    await page.until("document.querySelector('.rows').dataset.total === '1'")
    await page.value("document.querySelector('.rows .row').focus()")
    await page.press("Enter")
    await page.until("document.querySelector('.verdict')?.textContent.startsWith('It fits none of 2 nodes')")
    await page.until("document.querySelectorAll('.timeline li').length > 2")
    assert await page.value("document.querySelector('.facts a').href.startsWith('http://127.0.0.1:9/jaeger/trace/')")
    await page.value("document.querySelector('a[href^=\"#/map?why=\"]').click()")
    await page.until("document.querySelector('.legend .key')?.textContent.includes('cpu')")


async def questions_are_answered(page: Page, url: str) -> None:
    await page.go(f"{url}/#/whatif")
    await page.until("!!document.querySelector('form')")
    await page.value("document.querySelector('form button').click()")  # its example
    await page.until(
        "document.querySelector('.verdict')?.textContent === '1 of 1 pod would be placed, and 0 of 1 that wait now.'"
    )
    await page.until("document.querySelector('.map canvas')?.dataset.nodes === '2'")
    assert "n2" in await page.value("document.querySelector('section[aria-label=Pods]').innerText")
    await capacity_is_shown(page)
    await nodes_are_chosen(page)
    await another_configuration_is_tried(page)


async def asked(page: Page, verdict: str) -> None:
    await page.value("document.querySelector('form button').click()")
    await page.until(f"document.querySelector('.verdict')?.textContent === {json.dumps(verdict)}")


async def capacity_is_shown(page: Page) -> None:
    await page.choose("form select", "capacity")
    await page.fill("#if-by", "zone")
    await page.fill("#if-count", "3")
    await page.fill("#if-like", "n2")
    await asked(page, "4 more of this pod fit, on 4 nodes; 1 before the change.")
    await page.until("document.querySelector('.map canvas')?.dataset.nodes === '5'")
    assert "1 → 4" in await page.value("document.querySelector('section[aria-label=\"Where they fit\"]').innerText")
    await page.fill("#if-count", "0")
    await page.fill("#if-like", "")


async def nodes_are_chosen(page: Page) -> None:
    """The kind that is there is too small for the pod that waits, the one that is written down is not."""
    await page.choose("form select", "groups")
    await page.fill("#if-text", "")
    await page.value("document.querySelector('form button').click()")
    await page.until("document.querySelector('[role=alert]')?.textContent.startsWith('Choose a kind of node')")
    await page.value("document.querySelector('.kinds input[type=checkbox]').click()")
    big = "{name: big, max: 2, price: 9, template: {status: {allocatable: {cpu: '64', memory: 64Gi, pods: '9'}}}}"
    await page.fill("#if-groups", f"- {big}")
    await asked(page, "Needed: 1 big, at a price of 9: no cheaper set does.")
    assert "big-1" in await page.value("document.querySelector('section[aria-label=Pods]').innerText")


async def another_configuration_is_tried(page: Page) -> None:
    await page.choose("form select", "placed")
    other = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles: "
    await page.fill("#if-config", f"{other}[{{schedulerName: other}}]")
    await page.value("document.querySelector('form button').click()")
    await page.until("document.querySelector('section[aria-label=Pods]')?.innerText.includes('another scheduler')")
    await page.fill("#if-config", f"{other}1")
    await page.value("document.querySelector('form button').click()")
    await page.until("document.querySelector('[role=alert]')?.textContent.includes('profiles')")
    assert "status of 400" in page.errors.pop()  # the browser's own line about the answer
    await page.fill("#if-config", "")


async def text_stays_text(page: Page, url: str) -> None:
    await page.go(f"{url}/#/pod/shop/{quote(MARKUP)}")
    await page.until(f"document.querySelector('h1')?.textContent === 'shop/{MARKUP}'")
    assert await page.value("document.querySelectorAll('main img').length") == 0


async def nothing_is_wider_than_a_phone(page: Page, url: str) -> None:
    await page.look(400, 800, dark=True)
    for place in ("", "map", "pods", "gangs", "preemptions", "whatif", "pod/shop/huge"):
        await page.go(f"{url}/#/{place}")
        await page.until("!!document.querySelector('main h1')")
        assert await page.value("document.documentElement.scrollWidth") <= 400, place
