"""Watch events with the moment they arrived."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.control_plane.client import Client

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Seen:
    """One state of an object; `at` is `time.perf_counter`."""

    at: float
    type: str
    object: Object


class Timeline:
    """Follows one kind in a namespace from now on, in a thread of its own."""

    def __init__(self, client: Client, kind: str, namespace: str) -> None:
        self._client, self._kind, self._namespace = client, kind, namespace
        self._changed = threading.Condition()
        self._seen: list[Seen] = []
        self._error: Exception | None = None
        listed = client.request("GET", client.path(kind, None, namespace))
        self._version = listed["metadata"]["resourceVersion"]
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while self._error is None:
            try:
                for event in self._client.watch(
                    self._kind, self._namespace, resource_version=self._version, timeout=900
                ):
                    at = time.perf_counter()
                    self._version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] == "BOOKMARK":
                        continue
                    with self._changed:
                        self._seen.append(Seen(at, event["type"], event["object"]))
                        self._changed.notify_all()
            except Exception as error:
                with self._changed:
                    self._error = error
                    self._changed.notify_all()

    def forget(self) -> None:
        """Drops what was seen so far."""
        with self._changed:
            self._seen.clear()

    def all(self) -> list[Seen]:
        """Everything seen, oldest first."""
        with self._changed:
            return list(self._seen)

    def wait(self, wanted: Callable[[Object], object], timeout: float = 60.0) -> Seen:
        """The first state seen for which `wanted` is true. Raises TimeoutError."""
        deadline, looked = time.monotonic() + timeout, 0
        with self._changed:
            while True:
                for seen in self._seen[looked:]:
                    looked += 1
                    if seen.type != "DELETED" and wanted(seen.object):
                        return seen
                if self._error is not None:
                    raise self._error
                if not self._changed.wait(deadline - time.monotonic()) or time.monotonic() > deadline:
                    raise TimeoutError(f"nothing fitting seen within {timeout} s; {len(self._seen)} events")


def writers(new: Object, old: Object | None) -> str:
    """Who wrote the difference between two states, by managedFields."""

    def entries(obj: Object | None) -> dict[tuple[str, str, str], Any]:
        fields = (obj or {}).get("metadata", {}).get("managedFields") or []
        return {
            (f["manager"], f["operation"], f.get("subresource", "")): (f.get("time"), f["fieldsV1"]) for f in fields
        }

    before, after = entries(old), entries(new)
    changed = [f"{m}{f'/{s}' if s else ''}" for (m, o, s), found in after.items() if before.get((m, o, s)) != found]
    return ", ".join(changed) or "?"
