"""Rules of names, label keys and label values."""

from __future__ import annotations

import re

_SEGMENT = r"[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?"
_NAME = re.compile(_SEGMENT)
_PATH = re.compile(rf"{_SEGMENT}(?:/{_SEGMENT})*")
_QUALIFIED = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")
_MAX_NAME = 253


def check_name(name: str, *, path: bool = False) -> str:
    """What is wrong with the name of an object ("" when nothing); with `path`, `a/b` is a name too."""
    if not name:
        return "a name is needed"
    if len(name) > _MAX_NAME:
        return f"the name has {len(name)} characters, more than {_MAX_NAME}"
    if (_PATH if path else _NAME).fullmatch(name):
        return ""
    allowed = "lower-case letters, digits, '-' and '.'" + (", in parts joined by '/'" if path else "")
    return f"{name!r} is not a name: {allowed} are allowed, a letter or digit first and last"


def check_label_key(key: str) -> str:
    """What is wrong with a label key ("" when nothing)."""
    prefix, slash, rest = key.rpartition("/")
    if slash and (not _NAME.fullmatch(prefix) or len(prefix) > _MAX_NAME):
        return f"{key!r} is not a label key: what stands before '/' must be a DNS name"
    if not _QUALIFIED.fullmatch(rest) or len(rest) > 63:
        allowed = "at most 63 letters, digits, '-', '_' and '.', optionally after a DNS name and '/'"
        return f"{key!r} is not a label key: {allowed}"
    return ""


def check_label_value(value: str) -> str:
    """What is wrong with a label value ("" when nothing)."""
    if value and (not _QUALIFIED.fullmatch(value) or len(value) > 63):
        return f"{value!r} is not a label value: at most 63 letters, digits, '-', '_' and '.'"
    return ""


def check_text(text: str) -> str:
    """What keeps a text from being stored, or ""."""
    if "\0" in text:
        return "has a NUL character"
    if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
        return "has half a surrogate pair, which is no character"
    return ""
