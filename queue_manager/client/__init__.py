"""A client of the REST API for Python programs: `Client` waits, `AsyncClient` is for asyncio.

    with Client("https://queues.example.com", token) as queues:
        for job in queues.workloads(state=["waiting"], cohort="research"):
            print(job["namespace"], job["name"], queues.explanation(job["namespace"], job["name"])["message"])

Both have the methods of `Operations`, described once in `operations.py`. Needs nothing of the rest of the program.
"""

from __future__ import annotations

from queue_manager.client.asynchronous import AsyncClient
from queue_manager.client.call import Versioned
from queue_manager.client.events import Event
from queue_manager.client.problem import ApiError, ClientError, NotOursError, UnreachableError
from queue_manager.client.retry import NEVER, Retry
from queue_manager.client.sync import Client

__all__ = [
    "NEVER",
    "ApiError",
    "AsyncClient",
    "Client",
    "ClientError",
    "Event",
    "NotOursError",
    "Retry",
    "UnreachableError",
    "Versioned",
]
