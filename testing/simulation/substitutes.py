"""Replaces connections, threads and clocks of the services during a simulation."""

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib import import_module
from typing import Any, TypeVar
from unittest.mock import patch

import shared.runtime.leadership as leadership
import shared.runtime.lease_keeper as lease_keeper
from shared.config.building import flotilla_plugins
from shared.config.points import ExtensionPoint
from shared.config.reading import load_config
from shared.framework.profile import Framework
from shared.kube.client import KubeClient
from shared.plugins.registry import in_tree
from testing.simulation.loop import VirtualLoop, owner
from testing.simulation.storage import ByHand

SERVICES = ("watcher", "queue", "cycle", "snapshot", "worker", "binder")

T = TypeVar("T")


def run_on_virtual_time(run: Callable[[], Coroutine[None, None, T]], seed: int = 0) -> T:
    """Run with all substitutes; AssertionError for uncaught exceptions of tasks."""
    loop = VirtualLoop()
    random.seed(seed)
    with substitutes(), asyncio.Runner(loop_factory=lambda: loop) as runner:
        result = runner.run(run())
    assert loop.errors == [], "\n".join(loop.errors)
    return result


@contextmanager
def substitutes() -> Iterator[None]:
    with ExitStack() as stack:

        def substitute(target: Any, name: str, other: Any) -> None:
            if hasattr(target, name):
                stack.enter_context(patch.object(target, name, other))

        substitute(KubeClient, "open", _open)
        substitute(leadership, "LeaseKeeper", _keeper(lease_keeper.LeaseKeeper))
        substitute(lease_keeper, "time", _Time)
        for service in SERVICES:
            module = import_module(f"services.{service}.service")
            substitute(module, "Shell", _known_to_process(module.Shell))
            substitute(module, "connect", _connect)
            substitute(module, "load_frameworks", lambda *_: _frameworks())
            substitute(module, "load_scheduler_config", lambda *_: _config())
        substitute(import_module("services.queue.retry_store"), "connect", _connect)
        yield


@cache
def _config() -> Any:
    """The default configuration and the ByHand plugin."""
    plugins = {"permit": {"enabled": [{"name": ByHand.name}]}}
    return load_config(
        {"profiles": [{"plugins": plugins}]}, flotilla_plugins({ByHand.name: [ExtensionPoint.PERMIT]}.__getitem__)
    )


@cache
def _frameworks() -> Any:
    registry = {**in_tree(), ByHand.name: lambda _: ByHand()}
    return {profile.scheduler_name: Framework(profile, registry) for profile in _config().profiles}


async def _open(*_: object, **__: object) -> Any:
    return owner().client()


async def _connect(*_: object, **__: object) -> Any:
    return owner().link()


class _Time:
    @staticmethod
    def monotonic() -> float:
        return float(owner().clock())

    @staticmethod
    def time() -> float:
        return float(owner().wall())


def _known_to_process(shell: Any) -> Any:
    """Hands the shell to its process."""

    class Known(shell):  # type: ignore[misc]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            process = owner()
            process.shell = self
            for listwatch in getattr(self, "_listwatches", {}).values():
                listwatch._rng = random.Random(process.name)

    return Known


def _keeper(keeper: Any) -> Any:
    """Keeps the Lease in a task instead of a thread."""

    class Keeper(keeper):  # type: ignore[misc]
        def _start_thread(self) -> None:
            self._task = asyncio.create_task(self._live_in_task())

        def _end_thread(self) -> None:
            """The task has ended."""

        async def _live_in_task(self) -> None:
            try:
                await self._live()
            finally:
                self._on_end()

    return Keeper
