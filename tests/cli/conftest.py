"""A real server over a small company, for commands that talk to one."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Iterator

import pytest
import structlog
import uvicorn
from prometheus_client import CollectorRegistry

from api.app import create_app
from api.auth.authentication import Authentication
from queue_manager.store.store import Store
from tests.api.world import small_company
from tests.store.builders import NOW


@pytest.fixture(autouse=True)
def _logs_as_before() -> Iterator[None]:
    """A command sends the logs to the runner's stderr, which is closed when the command is over; what the server in
    this process logs is no output of a command."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


@pytest.fixture(autouse=True)
def _nobodys_settings(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whoever runs the tests may have profiles and variables of their own."""
    for name in ("QM_SERVER", "QM_TOKEN", "QM_PROFILE", "QM_DATABASE", "KUBECONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))


@contextlib.contextmanager
def serving(store: Store, authentication: Authentication | None = None) -> Iterator[str]:
    """URL of a server over a store."""
    listening = socket.create_server(("127.0.0.1", 0))
    app = create_app(store, now=lambda: NOW, registry=CollectorRegistry(), patience=0.05, authentication=authentication)
    config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=1)
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not running.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    running.should_exit = True
    thread.join()
    listening.close()


@pytest.fixture
def server(store: Store) -> Iterator[str]:
    """URL of a server over an empty database."""
    with serving(store) as url:
        yield url


@pytest.fixture
def company(server: str, store: Store) -> str:
    """The same with configuration and workloads."""
    small_company(store)
    return server
