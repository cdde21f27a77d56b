"""The console's API and its page in a real browser beside a real pipeline."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import aiohttp
import msgspec
import pytest

from shared.config.settings import Settings
from testing.builders import node
from tests.console.browser import CHROMIUM, Page, a_page
from tests.pipeline.support import Cluster, a_cluster, plain, until, web
from tools.supervisor.options import PipelineOptions
from tools.supervisor.pipeline import Pipeline

MARKUP = "<img src=x onerror=alert(1)>"


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


async def timeline(url: str, name: str) -> list[str]:
    return [each["what"] for each in await get(f"{url}/api/timeline", namespace="shop", name=name)]


@pytest.mark.asyncio
async def test_a_pipeline_in_the_api_and_in_a_browser() -> None:
    async with a_console() as (url, cluster):
        await api_answers(url)
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


async def api_answers(url: str) -> None:
    async def both_are_shown() -> bool:
        return await rows(url) == {"huge": "unschedulable", "small": "placed"}

    async def end_is_known() -> bool:
        """The binder and the queue, each of which may be the first to see that the pod is bound."""
        return {"bound", "left the queue"} <= set(await timeline(url, "small"))

    await until(both_are_shown, "the console does not show both pods", 20.0)
    await until(end_is_known, "the timeline of small has no end", 20.0)
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
    explained = await get(f"{url}/api/explanation", namespace="shop", name="huge")
    assert explained["sentence"].startswith("shop/huge fits none of 2 nodes") and explained["help"]
    happened = await timeline(url, "small")
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
