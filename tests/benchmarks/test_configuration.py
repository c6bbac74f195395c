"""The benchmarks' own helpers, where a mistake would make them hang or hide what is wrong."""

from __future__ import annotations

import pytest

from benchmarks.configuration import api_process


def test_an_api_process_that_ends_at_once_fails_the_run_with_what_it_said() -> None:
    with pytest.raises(RuntimeError, match=r"has ended with \d+: .*nowhere"), api_process("nowhere://"):
        pass
