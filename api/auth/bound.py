"""Nodes that tokens are for: they stay as long as the tokens do, so that no token wakes up for another node that gets
the name later."""

from __future__ import annotations

from typing import TYPE_CHECKING

from queue_manager.config.problem import Problem
from queue_manager.config.tree import Tree

from ..problems import ProblemError
from .access import granted_node
from .token_verifier import grant_of

if TYPE_CHECKING:
    from ..context import Context


def refuse_orphans(context: Context, before: Tree, after: Tree) -> None:
    """422 where a node that a token is for would be gone; each of them is named."""
    problems = []
    for token in context.store.access.counting_tokens(context.now()):
        for scope in token.scopes:
            node = granted_node(before, grant_of(scope)) if scope.node else None
            if node is None:
                continue
            there = granted_node(after, grant_of(scope))
            if there is None or (there.kind, there.name) != (node.kind, node.name):
                message = f"the token {token.name} (id {token.id}) is for it"
                problems.append(Problem(message, "revoke the token first", kind=node.kind, name=node.name))
    if problems:
        detail = f"{len(problems)} problem(s) found; nothing was changed"
        errors = [each.as_dict() for each in problems]
        raise ProblemError(422, "Configuration is not valid", detail, errors=errors)
