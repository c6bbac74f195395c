"""The day of story.py, typed at `queue-manager up`; the admin guide holds the same with what is really printed.

`pytest tests/walk --write-guide` writes that part of the guide anew.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from queue_manager.client import Client, ClientError
from tests.e2e.product import free_port, wait_for
from tests.walk.story import ADMIN, PEOPLE, STORY, File, Hand, Say, Submit, Type, Until

BIN = Path(sys.executable).parent
GUIDE = Path(__file__).parents[2] / "docs" / "admin-guide.md"
BEGIN, END = "<!-- the walk: written by tests/walk -->\n", "<!-- end of the walk -->\n"
AT = "2026-03-02T09:00:00Z"
SECRET = re.compile(r"\bqm_[\w-]{20,}")
RACING = {"release", "reprioritise"}
EXPLAINED = 30.0
"""Seconds until an explanation is complete; it is looked at again every other second."""
HASH = re.compile(r"--if-plan ([0-9a-f]{16,})")


@contextmanager
def up(folder: Path, database: str, environment: dict[str, str]) -> Iterator[str]:
    """URL of `queue-manager up`, started by somebody, once it is ready; ended afterwards."""
    port = free_port()
    jobs = folder / "jobs.yaml"
    jobs.touch()
    options = ["--port", str(port), "--data", str(folder / "data"), "--database", database, "--jobs", str(jobs)]
    options += ["--auth", "required"]
    with (folder / "up.log").open("ab") as log:
        process = subprocess.Popen([BIN / "queue-manager", "up", *options], stdout=log, stderr=log, env=environment)
    url = f"http://127.0.0.1:{port}"

    def ready() -> bool:
        try:
            with Client(url) as client:
                client.get("/readyz")
        except ClientError:
            return False
        return True

    try:
        wait_for(ready, f"ready; log: {folder / 'up.log'}", 60)
        yield url
    finally:
        process.terminate()
        process.wait(60)


@dataclass
class Walk:
    """The story as it goes on: what is written into the guide, and what the plan before has said."""

    folder: Path
    client: Client
    environments: dict[str, dict[str, str]]
    guide: list[str] = field(default_factory=list)
    plan: str = ""
    secret: str = ""

    def say(self, step: Say) -> None:
        self.guide.append(f"{step.text}\n\n")

    def write(self, step: File) -> None:
        (self.folder / step.name).write_text(step.text)
        if step.shown:
            self.guide.append(f"```yaml\n# {step.name}\n{step.text}```\n\n")

    def submit(self, step: Submit) -> None:
        with (self.folder / "jobs.yaml").open("a") as jobs:
            jobs.write("".join(f"---\n{job}" for job in step.jobs))
        self.until(Until(step.until))
        # Lists are ordered by the second in which a job was created.
        created = [datetime.fromisoformat(self.client.workload(*job.split("/"))["created"]) for job in step.until]
        wait_for(lambda: datetime.now(UTC) >= max(created) + timedelta(seconds=1), "the next second")

    def until(self, step: Until) -> None:
        for job, state in step.states.items():
            wait_for(lambda job=job, state=state: self.state(job) == state, f"{job} is {state}", 60)

    def state(self, job: str) -> str:
        try:
            return self.client.workload(*job.split("/"))["state"]
        except ClientError:
            return ""

    def hand(self, step: Hand) -> None:
        command = [BIN / "qm", "profile", "set", "queues", "--server", self.client.connection.server, "--token", "-"]
        subprocess.run(command, env=self.environments[step.who], text=True, input=self.secret, check=True)

    def type(self, step: Type) -> None:
        command, deadline = step.command.replace("{hash}", self.plan), time.monotonic() + EXPLAINED
        shown = self.run(step, command)
        while command.startswith("qm explain") and not all(text in shown for text in step.says):
            assert time.monotonic() < deadline, f"{step.who}$ {command}\n{shown}"
            shown = self.run(step, command)
        missing = [text for text in step.says if text not in shown]
        assert not missing, f"{step.who}$ {command}\n{shown}"
        if found := HASH.search(shown):
            self.plan = found[1]
        if found := SECRET.search(shown):
            self.secret = found[0]
        self.guide.append(f"```\n{step.who}$ {even(command)}\n{even(shown)}```\n\n")

    def run(self, step: Type, command: str) -> str:
        """What a command prints; AssertionError where its exit code is another than the step's."""
        done = subprocess.run(
            shlex.split(command),
            cwd=self.folder,
            env=self.environments[step.who],
            text=True,
            stdout=subprocess.PIPE,
            # What is told of a job beside its state may be the next plan's word already.
            stderr=subprocess.DEVNULL if set(command.split()) & RACING else subprocess.STDOUT,
            check=False,
        )
        assert done.returncode == step.fails, f"{step.who}$ {command}\n{done.stdout}"
        return done.stdout


def even(text: str) -> str:
    """Without what is another at each run: times, ages, hashes."""
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", AT, text)
    text = re.sub(r"(created |looked at |for |\()\d+[sm](?= ago|,|\)|$)", r"\g<1>9s", text, flags=re.MULTILINE)
    # In a table the column keeps its width.
    text = re.sub(
        r"(?<=  )( ?)\b\d+[sm]\b(?=  | *$)", lambda found: f"{'9s':>{len(found[0])}}", text, flags=re.MULTILINE
    )
    text = SECRET.sub("qm_" + "x" * 43, text)
    return re.sub(r"\b[0-9a-f]{32,}\b", "0123456789abcdef", text)


def connect(environment: dict[str, str]) -> Client:
    """The client of whoever started the server, by the profile that was kept."""
    file = Path(environment["HOME"], ".config", "queue-manager", "profiles.json")
    [profile] = json.loads(file.read_text())["profiles"].values()
    return Client(profile["server"], profile["token"])


@pytest.fixture
def environments(tmp_path: Path) -> dict[str, dict[str, str]]:
    """Of each person: a home of the person's own."""
    path = f"{BIN}:{os.environ['PATH']}"
    return {who: {"PATH": path, "HOME": str(tmp_path / who)} for who in PEOPLE}


def test_a_day(
    environments: dict[str, dict[str, str]], database_url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with up(tmp_path, database_url, environments[ADMIN]) as url, connect(environments[ADMIN]) as client:
        assert client.connection.server == url
        walk = Walk(tmp_path, client, environments)
        for step in STORY:
            match step:
                case Say():
                    walk.say(step)
                case File():
                    walk.write(step)
                case Submit():
                    walk.submit(step)
                case Until():
                    walk.until(step)
                case Hand():
                    walk.hand(step)
                case Type():
                    walk.type(step)
    written = "".join(walk.guide)
    before, _, rest = GUIDE.read_text().partition(BEGIN)
    known, _, after = rest.partition(END)
    if request.config.getoption("--write-guide", default=False):
        GUIDE.write_text(f"{before}{BEGIN}\n{written}{END}{after}")
    else:
        assert known.strip() == written.strip(), (
            "docs/admin-guide.md is not what is printed: pytest tests/walk --write-guide"
        )
