"""`up --jobs FILE`: what a file holds is created in the simulated cluster, as `kubectl create` would at a real one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import structlog
import yaml

from queue_manager.cluster.port import ApiError, Resource
from queue_manager.cluster.simulated import SimulatedCluster
from queue_manager.kinds.registry import JOB_KINDS

log = structlog.get_logger(__name__)

PAUSE = 0.5
"""Seconds between two looks at the file."""
USER = "simulated.queue-manager.io/user"
"""Annotation: who submits the job."""
KINDS: dict[str, Resource] = {kind.resource.kind: kind.resource for kind in JOB_KINDS}


async def submit(cluster: SimulatedCluster, file: Path) -> None:
    """Creates every job that the file holds once, also those that somebody adds to it later, until cancelled."""
    seen: set[tuple[str, str, str]] = set()
    read = ""
    while True:
        text = await asyncio.to_thread(_text, file)
        if text != read:
            read = text
            for job in _jobs(text, file):
                metadata = job["metadata"]
                key = job["kind"], metadata.get("namespace", "default"), metadata["name"]
                if key not in seen:
                    seen.add(key)
                    await _create(cluster, job, *key)
        await asyncio.sleep(PAUSE)


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        log.warning("the file of jobs can't be read", file=str(file), error=str(error))
        return ""


def _jobs(text: str, file: Path) -> Iterator[dict[str, Any]]:
    try:
        documents = list(yaml.safe_load_all(text))
    except yaml.YAMLError as error:
        log.warning("the file of jobs is no YAML", file=str(file), error=str(error))
        return
    for document in documents:
        if not isinstance(document, dict) or document.get("kind") not in KINDS:
            log.warning("in the file of jobs is something else", kinds=sorted(KINDS), found=str(document)[:100])
        elif not isinstance(document.get("metadata"), dict) or "name" not in document["metadata"]:
            log.warning("a job of the file has no name", file=str(file))
        else:
            yield document


async def _create(cluster: SimulatedCluster, job: dict[str, Any], kind: str, namespace: str, name: str) -> None:
    user = (job["metadata"].get("annotations") or {}).get(USER, "user")
    try:
        await cluster.as_user(user).create(KINDS[kind], namespace, job)
    except ApiError as error:
        log.warning("a job was refused", job=f"{namespace}/{name}", error=str(error))
