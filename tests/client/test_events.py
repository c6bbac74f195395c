"""Server-sent events, however their bytes arrive."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_manager.client.events import Event, EventReader

TEXT = (
    b'\xef\xbb\xbf: hello\r\n\r\nevent: workload\r\nid: 7\r\ndata: {"a":\r\ndata: 1}\r\n\r\n'
    b"data\n\n"
    b"id: 8\rdata:no space\r\r"
    b"retry: 1500\nretry: x\nunknown: y\n\n"
    b"id: a\0b\ndata:  two\n\nid\ndata: \xc3\xa4\xe2\x80\xa8b\n\n"
    b"data: not ended"
)
EVENTS = [
    Event("7", "workload", '{"a":\n1}'),
    Event("7", "message", ""),
    Event("8", "message", "no space"),
    Event("8", "message", " two"),
    Event("", "message", "ä\u2028b"),
]


@given(st.lists(st.integers(0, len(TEXT)), max_size=30))
def test_chunks_may_end_anywhere(cuts: list[int]):
    reader, found, start = EventReader(), [], 0
    for end in [*sorted(cuts), len(TEXT)]:
        found += reader.feed(TEXT[start:end])
        start = end
    assert found == EVENTS
    assert (reader.last_id, reader.pause) == ("", 1.5)


def test_data_as_json():
    assert EVENTS[0].json() == {"a": 1}


@pytest.mark.parametrize("rest", [b"id: 9\ndata: half", b"id: 9\r"])
def test_what_a_break_cuts_off_is_void(rest: bytes):
    reader = EventReader()
    list(reader.feed(b"id: 1\ndata: a\n\n" + rest))
    reader.begin()
    assert reader.last_id == "1"
    assert list(reader.feed(b"data: b\n\n")) == [Event("1", "message", "b")]
