"""Command line: `queue-manager`, alias `qm`."""

import sys
from importlib import import_module
from pathlib import Path

# A wheel must not install a package of so common a name as `api`: there it is called `queue_manager_api`.
# A checkout has it under its own name, and an editable install may hold an old copy under the other one.
if not (Path(__file__).parents[2] / "pyproject.toml").exists():
    sys.modules["api"] = import_module("queue_manager_api")
