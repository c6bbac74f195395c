"""Tables that fit, whatever is in them and however narrow the terminal is; colours only where they are wanted."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from queue_manager.cli.client import ApiProblem
from queue_manager.cli.errors import CommandError
from queue_manager.cli.main import fail
from queue_manager.cli.output import Format, Table, Text, colours, cut, finding_text, print_data
from queue_manager.client import ApiError

COLUMNS = ("WORKLOAD", "QUEUE", "PRIORITY", "STATE", "WHY")


def table(*rows: list[object]) -> Table:
    return Table(COLUMNS, rows, ("PRIORITY",), "WHY")


ROW = ["team/实验-一", "company/nlp", 100, "waiting", "12 GPUs short: " + "词" * 40]


def test_the_column_that_gives_way_is_cut_first():
    [heading, line] = table(ROW).lines(70)
    assert heading.split() == list(COLUMNS)
    assert line.startswith("team/实验-一  company/nlp       100  waiting  12 GPUs short: ")
    assert line.endswith("…")
    assert cell_len(line) in (69, 70)  # a wide character that does not fit leaves one column


@given(
    st.lists(st.lists(st.text(max_size=30), min_size=5, max_size=5), max_size=4),
    st.integers(1, 120),
    st.booleans(),
)
def test_no_line_is_wider_than_the_terminal(rows: list[list[object]], width: int, coloured: bool):
    for line in table(*rows).lines(width, coloured):
        bare = line
        for code in ("\x1b[1m", "\x1b[0m", "\x1b[33m"):
            bare = bare.replace(code, "")
        assert cell_len(bare) <= max(width, len("WORKLOAD"))


@given(st.text(), st.integers(0, 20))
def test_a_cut_text_is_as_narrow_as_wanted_and_begins_alike(text: str, width: int):
    short = cut(text, width)
    assert cell_len(short) <= width
    assert text.startswith(short.removesuffix("…"))


def test_elsewhere_nothing_is_cut():
    [_, line] = table(ROW).lines()
    assert line.endswith("词" * 40)


def test_numbers_stand_right_and_states_have_their_colour():
    plain = Table(("N", "STATE"), [[1, "running"], [100, "other"]], ("N",)).lines()
    assert plain == ["  N  STATE", "  1  running", "100  other"]
    assert Table(("N", "STATE"), [[1, "running"]], ("N",)).lines(0, True)[1] == "1  \x1b[32mrunning\x1b[0m"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "environment", "expected"),
    [
        (Terminal(), {}, True),
        (io.StringIO(), {}, False),
        (Terminal(), {"NO_COLOR": "1"}, False),
        (Terminal(), {"NO_COLOR": ""}, True),
        (Terminal(), {"TERM": "dumb"}, False),
    ],
)
def test_colours_only_on_a_terminal_that_wants_them(
    stream: io.StringIO, environment: dict[str, str], expected: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert colours(stream) is expected


def test_long_lines_are_broken_between_words_under_their_own_indent():
    lines = Text(["  1. alpha beta gamma delta", "", "short"]).lines(16)
    assert lines == ["  1. alpha beta", "    gamma delta", "", "short"]


def test_what_has_no_names_says_so(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(CommandError):
        print_data({}, Format.NAME)
    print_data({}, Format.NAME, ["a\x1b", "b"])
    assert capsys.readouterr().out == "a\ufffd\nb\n"


@pytest.mark.parametrize(
    ("field", "shown"),
    [("body.reason", "reason"), ("query.from", "from"), ("path.number", "number"), ("spec.body.x", "spec.body.x")],
)
def test_a_finding_names_the_field_and_not_the_part_of_the_request(field: str, shown: str):
    assert finding_text({"field": field, "message": "is empty"}) == f"{shown}: is empty"


@pytest.mark.parametrize("detail", ["there is no queue 'x'", "queue: there is no queue 'x'", "see errors"])
def test_what_a_finding_says_is_not_said_twice(detail: str, capsys: pytest.CaptureFixture[str]):
    findings = [{"field": "body.queue", "message": "there is no queue 'x'"}]
    error = ApiProblem(ApiError(422, {"title": "Request is not valid", "detail": detail, "errors": findings}))
    with pytest.raises(SystemExit):
        fail(error)
    assert capsys.readouterr().err == "queue: there is no queue 'x'\nerror: Request is not valid\n"


def test_what_no_finding_says_is_said(capsys: pytest.CaptureFixture[str]):
    error = ApiProblem(ApiError(403, {"title": "Forbidden", "detail": "not yours", "errors": [{"message": "m"}]}))
    with pytest.raises(SystemExit):
        fail(error)
    assert capsys.readouterr().err == "m\nerror: Forbidden: not yours\n"
