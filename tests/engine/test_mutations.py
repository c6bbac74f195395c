"""The table of broken rules fits the code; whether tests notice them is for `python -m tests.mutations`."""

from __future__ import annotations

import pytest

from tests.mutations import ROOT, Mutation, read_table


@pytest.mark.parametrize("mutation", read_table(), ids=lambda mutation: mutation.rule)
def test_each_snippet_stands_once_in_the_code(mutation: Mutation) -> None:
    assert mutation.occurrences == 1
    assert mutation.old != mutation.new
    assert all((ROOT / test.split("::")[0]).exists() for test in mutation.tests)
