"""Command line: `queue-manager`, alias `qm`."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path


def _name_api(installed: Path) -> None:
    """Makes `api` mean the package in that folder. Under its own name, not an alias: `from . import x` in a package
    of two names would load a second copy of x."""
    spec = spec_from_file_location("api", installed / "__init__.py", submodule_search_locations=[str(installed)])
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["api"] = module_from_spec(spec)
    spec.loader.exec_module(module)


# A wheel must not install a package of so common a name as `api`: there it is called `queue_manager_api`, beside ours.
# A checkout has it under its own name; an editable install's old copy under the other one lies elsewhere.
_INSTALLED = Path(__file__).parents[2] / "queue_manager_api"
if _INSTALLED.is_dir():
    _name_api(_INSTALLED)
