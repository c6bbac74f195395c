"""`hold` and `release`."""

from __future__ import annotations

import sys

from queue_manager.cli.client import Client
from queue_manager.cli.output import Format, print_data
from queue_manager.cli.views import job_name
from queue_manager.config.human import clean


def act(client: Client, action: str, workload: str, kind: str, reason: str, form: Format) -> None:
    """Asks for an action and says what has become of the workload."""
    namespace, name = job_name(workload)
    found = client.action(namespace, name, action, kind=kind, reason=reason)
    if form is not Format.TABLE:
        print_data(found, form)
        return
    state = found["state"] if not found["afterDrain"] else f"{found['state']}, then {found['afterDrain']}"
    print(f"{found['kind']} {clean(workload)}: {state}")
    if found["message"]:
        print(clean(found["message"]), file=sys.stderr)
