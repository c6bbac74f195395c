"""What a command says when it can't do its work."""

from __future__ import annotations


class CommandError(Exception):
    """Ends the command with exit code 1: what went wrong, and in `hint` what to do about it."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
