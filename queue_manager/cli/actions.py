"""Actions on a workload."""

from __future__ import annotations

import sys
from typing import Any

from queue_manager.cli.client import Client
from queue_manager.cli.commanding import Job
from queue_manager.cli.output import Format, print_data
from queue_manager.config.human import clean


def act(client: Client, action: str, job: Job, form: Format, **body: Any) -> None:
    """Asks for an action and says what has become of the workload."""
    with client.naming(job):
        found = client.action(job.namespace, job.name, action, kind=job.kind, **body)
    if form is not Format.TABLE:
        print_data(found, form, [str(job)])
        return
    state = found["state"] if not found["afterDrain"] else f"{found['state']}, then {found['afterDrain']}"
    where = f" in queue {found['queue']}" if found["queue"] else ""
    rank = f", priority class {found['priorityClass']}" if found["priorityClass"] else ""
    # At once, so that what follows on stderr stands after it.
    print(clean(f"{found['kind']} {job}: {state}{where}{rank}"), flush=True)
    if found["message"]:
        print(clean(found["message"]), file=sys.stderr)
