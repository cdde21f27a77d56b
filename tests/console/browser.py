"""A headless Chromium, driven over the DevTools protocol."""

import asyncio
import itertools
import json
import shutil
import tempfile
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--mute-audio",
    "--proxy-server=direct://",
    "--remote-debugging-port=0",
)
START_PATIENCE = 30.0
PATIENCE = 15.0
"""Seconds until a condition in the page has to hold."""
POLL = "new Promise(r => setTimeout(r, 20))"


class PageError(AssertionError):
    """Something in the page failed, or a condition did not come to hold."""


class Page:
    """`errors`: uncaught exceptions, and what the browser refused or complained about."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.errors: list[str] = []
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}

    async def listen(self) -> None:
        async for frame in self._socket:
            message = frame.json()
            answer = self._answers.pop(message.get("id", 0), None)
            if answer is not None and not answer.done():
                answer.set_result(message)
            elif message.get("method") == "Runtime.exceptionThrown":
                thrown = message["params"]["exceptionDetails"]
                self.errors.append(thrown.get("exception", {}).get("description", thrown["text"]))
            elif message.get("method") == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
                self.errors.append(f"{message['params']['entry']['text']} {message['params']['entry'].get('url', '')}")

    async def call(self, method: str, **params: Any) -> Any:
        number = next(self._numbers)
        self._answers[number] = answer = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        message = await asyncio.wait_for(answer, START_PATIENCE)
        if "error" in message:
            raise PageError(f"{method}: {message['error']['message']}")
        return message["result"]

    async def value(self, expression: str) -> Any:
        """Of JavaScript in the page; promises are awaited."""
        found = await self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in found:
            raise PageError(found["exceptionDetails"].get("exception", {}).get("description", expression))
        return found["result"].get("value")

    async def until(self, expression: str, patience: float = PATIENCE) -> Any:
        """The value, once it is true; PageError with what the page shows otherwise."""
        waiting = f"""(async () => {{
            const end = Date.now() + {1000 * patience};
            for (;;) {{
                const found = (() => {expression})();
                if (found || Date.now() > end) return found || null;
                await {POLL};
            }}
        }})()"""
        found = await self.value(waiting)
        if not found:
            shown = await self.value("document.body.innerText")
            raise PageError(f"never true: {expression}; errors: {self.errors}; the page shows:\n{shown[:2000]}")
        return found

    async def go(self, url: str) -> None:
        await self.call("Page.navigate", url=url)

    async def press(self, key: str) -> None:
        await self.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, windowsVirtualKeyCode=KEYS[key])
        await self.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=key, windowsVirtualKeyCode=KEYS[key])

    async def type(self, text: str) -> None:
        await self.call("Input.insertText", text=text)

    async def fill(self, selector: str, text: str) -> None:
        """As if this text were typed instead of what the field holds."""
        await self._change(selector, text, "input")

    async def choose(self, selector: str, value: str) -> None:
        await self._change(selector, value, "change")

    async def _change(self, selector: str, value: str, event: str) -> None:
        found = f"document.querySelector({json.dumps(selector)})"
        await self.value(f"{found}.value = {json.dumps(value)}; {found}.dispatchEvent(new Event('{event}'))")

    async def look(self, width: int, height: int, *, dark: bool = False) -> None:
        """As on a screen of this size, with this colour scheme."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])

    async def picture(self, path: Path) -> None:
        found = await self.call("Page.captureScreenshot", format="png")
        path.write_bytes(b64decode(found["data"]))


KEYS = {"Tab": 9, "Enter": 13, "ArrowRight": 39, "ArrowDown": 40}


@asynccontextmanager
async def a_page() -> AsyncIterator[Page]:
    """An empty page of a new browser, which ends with the context."""
    assert CHROMIUM is not None
    with tempfile.TemporaryDirectory(prefix="flotilla-browser-", ignore_cleanup_errors=True) as folder:
        process = await asyncio.create_subprocess_exec(
            CHROMIUM,
            *FLAGS,
            f"--user-data-dir={folder}",
            "about:blank",
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        draining: asyncio.Task[bytes] | None = None
        try:
            assert process.stderr is not None
            port = await asyncio.wait_for(_port(process.stderr), START_PATIENCE)
            draining = asyncio.create_task(process.stderr.read())
            async with aiohttp.ClientSession() as session:
                async with session.get(f"http://127.0.0.1:{port}/json") as listed:
                    (url,) = [each["webSocketDebuggerUrl"] for each in await listed.json() if each["type"] == "page"]
                async with session.ws_connect(url, max_msg_size=0) as socket:
                    page = Page(socket)
                    listening = asyncio.create_task(page.listen())
                    for domain in ("Page", "Runtime", "Log"):
                        await page.call(f"{domain}.enable")
                    yield page
                    listening.cancel()
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
            if draining is not None:
                await draining


async def _port(lines: asyncio.StreamReader) -> int:
    """Where the browser listens, as it says itself."""
    async for line in lines:
        if b"DevTools listening on" in line:
            return int(line.decode().partition("127.0.0.1:")[2].partition("/")[0])
    raise PageError("the browser ended without a word")
