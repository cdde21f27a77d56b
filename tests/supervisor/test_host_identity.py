"""The identity of a pipeline in Leases: kept over crashes, and never shared by two running pipelines."""

import asyncio
import os
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tools.supervisor import host_identity as module
from tools.supervisor.host_identity import HostIdentity, host_identity

pytestmark = pytest.mark.asyncio


class Crash:
    """A pipeline whose supervisor is killed: locks go with open files, and nothing is removed."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder, self._patch = folder, monkeypatch

    async def after(self) -> HostIdentity:
        with self._patch.context() as patch:
            patch.setattr(module, "_remove", lambda path: None)
            async with host_identity(self._folder) as identity:
                return identity


async def test_the_identity_is_the_same_after_a_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = await Crash(tmp_path, monkeypatch).after()
    async with host_identity(tmp_path) as identity:
        assert identity.name == before.name
    assert not list(tmp_path.iterdir()), "a clean end leaves no file"
    async with host_identity(tmp_path) as identity:
        assert identity.name != before.name


async def test_running_pipelines_never_share_an_identity(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        many = [await stack.enter_async_context(host_identity(tmp_path)) for _ in range(module.MAX_SLOTS + 2)]
        assert len({identity.name for identity in many}) == len(many)


async def test_services_that_outlive_their_supervisor_are_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(module, "_remove", lambda path: None)
        async with host_identity(tmp_path) as before:
            still_open = os.dup(before.inherited[0])
    taking = asyncio.create_task(_name_of_next(tmp_path))
    done, _ = await asyncio.wait([taking], timeout=5 * module.POLL)
    assert not done
    os.close(still_open)
    assert await taking == before.name


async def test_services_that_do_not_end_keep_their_identity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(module, "_remove", lambda path: None)
        async with host_identity(tmp_path) as before:
            still_open = os.dup(before.inherited[0])
    monkeypatch.setattr(module, "END_TIMEOUT", 0.05)
    assert await _name_of_next(tmp_path) != before.name
    os.close(still_open)


async def test_files_that_other_users_can_write_and_links_are_not_used(tmp_path: Path) -> None:
    first = tmp_path / f"flotilla-{os.getuid()}-0.id"
    first.write_text("0" * 32)
    first.chmod(0o666)
    (tmp_path / f"flotilla-{os.getuid()}-1.lock").symlink_to(tmp_path / "elsewhere")
    async with host_identity(tmp_path) as identity:
        assert os.fstat(identity.inherited[0]).st_ino != first.stat().st_ino
    assert not (tmp_path / "elsewhere").exists()


async def test_without_a_folder_the_identity_is_that_of_this_process(tmp_path: Path) -> None:
    async with host_identity(tmp_path / "missing") as identity:
        assert str(os.getpid()) in identity.name and not identity.inherited


async def _name_of_next(folder: Path) -> str:
    async with host_identity(folder) as identity:
        return identity.name
