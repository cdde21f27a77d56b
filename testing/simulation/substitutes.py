"""What the services' `main` finds in place of connections, threads and clocks while a simulation runs."""

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
from shared.config.points import ExtensionPoint
from shared.config.reading import load_config
from shared.framework.profile import Framework
from shared.kube.client import KubeClient
from shared.plugins.registry import IN_TREE
from testing.simulation.loop import VirtualLoop, owner
from testing.simulation.storage import ByHand

SERVICES = ("watcher", "queue", "cycle", "snapshot", "worker", "binder")
CONNECTING = ("services.snapshot.service", "services.worker.service", "services.queue.status.retry_store")

T = TypeVar("T")


def run_on_virtual_time(run: Callable[[], Coroutine[None, None, T]], seed: int = 0) -> T:
    """With all substitutes; AssertionError for exceptions that no task has caught."""
    loop = VirtualLoop()
    random.seed(seed)
    with substitutes(), asyncio.Runner(loop_factory=lambda: loop) as runner:
        result = runner.run(run())
    assert loop.errors == [], "\n".join(loop.errors)
    return result


@contextmanager
def substitutes() -> Iterator[None]:
    with ExitStack() as stack:
        stack.enter_context(patch.object(KubeClient, "open", _open))
        stack.enter_context(patch.object(leadership, "LeaseKeeper", _keeper(lease_keeper.LeaseKeeper)))
        stack.enter_context(patch.object(lease_keeper, "time", _Time))
        for name in CONNECTING:
            stack.enter_context(patch.object(import_module(name), "connect", _connect))
        for service in SERVICES:
            module = import_module(f"services.{service}.service")
            stack.enter_context(patch.object(module, "Shell", _told_of(module.Shell)))
            if hasattr(module, "load_frameworks"):
                stack.enter_context(patch.object(module, "load_frameworks", lambda config: _frameworks()))
            if hasattr(module, "load_scheduler_config"):
                stack.enter_context(patch.object(module, "load_scheduler_config", lambda source: _config()))
        yield


@cache
def _config() -> Any:
    """The default, with a plugin that has labelled pods wait for a permit."""
    plugins = {"permit": {"enabled": [{"name": ByHand.name}]}}
    return load_config({"profiles": [{"plugins": plugins}]}, {ByHand.name: [ExtensionPoint.PERMIT]}.__getitem__)


@cache
def _frameworks() -> Any:
    registry = {**IN_TREE, ByHand.name: lambda _: ByHand()}
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


def _told_of(shell: Any) -> Any:
    """The process learns of its shell."""

    class Told(shell):  # type: ignore[misc]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            process = owner()
            process.shell = self
            for listwatch in getattr(self, "_listwatches", {}).values():
                listwatch._rng = random.Random(process.name)

    return Told


def _keeper(keeper: Any) -> Any:
    """Keeps the Lease in a task, where the real one has a thread."""

    class Keeper(keeper):  # type: ignore[misc]
        def start(self) -> None:
            self._thread = _Thread(asyncio.create_task(self._live_in_task()))

        async def _live_in_task(self) -> None:
            try:
                await self._keep()
            except Exception as cause:
                self._on_failure(cause)
            finally:
                self._on_end()

        def _say(self, what: Callable[..., None], *arguments: object) -> None:
            what(*arguments)

    return Keeper


class _Thread:
    def __init__(self, task: "asyncio.Task[None]") -> None:
        self._task = task

    def join(self) -> None:
        """It has ended when it is joined."""
