"""The option that writes the admin guide anew."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-guide", action="store_true", help="write docs/admin-guide.md anew")
