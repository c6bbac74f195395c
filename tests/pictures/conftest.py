"""The option that draws anew."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--draw", action="store_true", help="draw the pictures of the docs anew")
