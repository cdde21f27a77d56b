"""The first two minutes in README.md happen as they are told.

Every command is executed, as in the terminal of a newcomer, and its output compared. What differs from run to run is
left out of the comparison: ages, random suffixes, the order of lines and the width of columns. A command that only
looks is repeated until it shows what is told, since nobody types as fast as a test.
"""

import asyncio
import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli.commands import flotilla

ROOT = Path(__file__).parents[1]
STORY = "The first two minutes"
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LOOKS = ("kubectl get", "flotilla queue")
PATIENCE = 20.0
PAUSE = 0.3


class Step(NamedTuple):
    command: str
    output: str


def steps(page: str) -> Iterator[Step]:
    """Commands after `$`, continued after `>`, each with what it prints."""
    section = page.partition(f"\n## {STORY}\n")[2].partition("\n## ")[0]
    for block in CONSOLE.findall(section):
        for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *rest = step.splitlines()
            while rest and rest[0].startswith("> "):
                command += "\n" + rest.pop(0).removeprefix("> ")
            yield Step(command, "\n".join(rest))


def comparable(output: str) -> list[str]:
    """The lines without what differs from run to run."""
    text = re.sub(r"\b(?:\d+[smh])+\b", "<age>", output)
    text = re.sub(r"\b(\w+-[0-9a-z]{8,10})-[0-9a-z]{5}\b", r"\1-<random>", text)
    return sorted(" ".join(line.split()) for line in text.strip().splitlines())


async def typed(command: str, environment: Mapping[str, str]) -> str:
    process = await asyncio.create_subprocess_exec(
        *("bash", "-c", command),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=environment,
        cwd=ROOT,
    )
    output, _ = await process.communicate()
    return output.decode()


async def follows(step: Step, environment: Mapping[str, str]) -> None:
    """Type the command; AssertionError unless it prints what is told, for a command that only looks: in time."""
    deadline = time.monotonic() + PATIENCE
    output = await typed(step.command, environment)
    while comparable(output) != comparable(step.output):
        looks = step.command.startswith(LOOKS)
        assert looks and time.monotonic() < deadline, (
            f"README.md says of `{step.command}`:\n{step.output}\nnot:\n{output}"
        )
        await asyncio.sleep(PAUSE)
        output = await typed(step.command, environment)


@pytest.mark.asyncio
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on PATH; .ci/run installs it")
async def test_the_first_two_minutes(tmp_path: Path) -> None:
    activate, start, *story = steps((ROOT / "README.md").read_text())
    assert activate == (". .venv/bin/activate", "")
    program, *arguments = shlex.split(start.command)
    assert program == "flotilla"
    async with flotilla(tmp_path, *arguments) as command:
        line = await command.prints(lambda line: "export " in line)
        variables = dict(re.findall(r"(\w+)=([^\s\"]+)", line))
        assert set(variables) == {"KUBECONFIG", "FLOTILLA_NATS_URL_FILE"}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, **variables, "PATH": path, "HOME": str(tmp_path)}
        for step in story:
            await follows(step, environment)


def test_a_story_is_compared_by_what_it_says() -> None:
    told = "POD NODE\nweb-58778d5d75-hfvbs   a2\nweb-58778d5d75-zqwtd  b1  24s\n"
    seen = "POD  NODE\nweb-58778d5d75-aaaaa b1 1m3s\nweb-58778d5d75-bbbbb a2\n"
    assert comparable(told) == comparable(seen)
    assert comparable(told) != comparable(seen.replace("b1", "c1"))
    assert comparable("9/12") != comparable("12/12")
