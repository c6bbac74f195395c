"""The wheel, laid out as pip lays it out: other names of packages, the same behaviour."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHECK = """
import sys
from prometheus_client import CollectorRegistry
from starlette.testclient import TestClient
import queue_manager.cli.up
from api.app import create_app
from queue_manager.store.database import make_engine
from queue_manager.store.store import Store

store = Store(make_engine("postgresql://127.0.0.1:9/none"))
client = TestClient(create_app(store, registry=CollectorRegistry(), not_ready=lambda: "wait"),
                    base_url="http://localhost", raise_server_exceptions=False)
assert client.get("/readyz").json()["detail"] == "wait", client.get("/readyz").text
assert client.get("/static/page.css").status_code == 200
copies = [name for name in sys.modules if name.startswith("queue_manager_api")]
assert not copies, copies
print(sys.modules["api"].__file__)
"""


@pytest.mark.parametrize("name", ["queue_manager_api", "api"], ids=["wheel", "image"])
def test_the_api_is_there_once_under_one_name(tmp_path: Path, name: str):
    without = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "queue_manager", tmp_path / "queue_manager", ignore=without)
    shutil.copytree(ROOT / "api", tmp_path / name, ignore=without)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", CHECK], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == str(tmp_path / name / "__init__.py")
