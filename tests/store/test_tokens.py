"""Tokens: only a hash is kept, names are taken once, ends are final; the search of the audit log."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import text

from queue_manager.store.audits import Wanted, search_query
from queue_manager.store.store import Store
from queue_manager.store.tokens import Maker, NameTaken, Scope, new_secret
from tests.store.builders import NOW

ADA = Maker("ada", "oidc", "10.0.0.7", "for CI")
SCOPES = (Scope("operator", "research/nlp"),)
MINUTE = timedelta(minutes=1)


def test_the_token_itself_is_kept_nowhere(store: Store) -> None:
    secret = new_secret()
    assert secret.startswith("qm_")
    assert len(secret) > 40
    token = store.access.create_token(secret, "ci", SCOPES, None, ADA, NOW)
    assert store.access.find_token(secret) == token
    assert store.access.find_token(secret + "x") is None
    with store.engine.connect() as connection:
        for table in ("tokens", "audit"):
            assert secret[3:] not in str(connection.execute(text(f"SELECT * FROM {table}")).all())


def test_a_name_is_free_again_when_its_token_is_revoked(store: Store) -> None:
    first = store.access.create_token(new_secret(), "ci", SCOPES, None, ADA, NOW)
    with pytest.raises(NameTaken):
        store.access.create_token(new_secret(), "ci", SCOPES, None, ADA, NOW)
    revoked = store.access.revoke_token(first.id, ADA, NOW)
    assert revoked is not None
    assert revoked.ended(NOW) == "is revoked"
    assert store.access.revoke_token(first.id, ADA, NOW) is None
    second = store.access.create_token(new_secret(), "ci", SCOPES, NOW + MINUTE, ADA, NOW)
    assert [token.id for token in store.access.list_tokens(10)] == [second.id]
    assert [token.id for token in store.access.list_tokens(10, revoked=True)] == [second.id, first.id]
    assert second.ended(NOW) == ""
    assert second.ended(NOW + MINUTE) == "has expired"


def test_the_first_token_is_made_once(store: Store) -> None:
    first = store.access.create_first_token(new_secret(), "admin", SCOPES, ADA, NOW)
    assert first is not None
    assert store.access.create_first_token(new_secret(), "other", SCOPES, ADA, NOW) is None
    store.access.revoke_token(first.id, ADA, NOW)
    assert store.access.create_first_token(new_secret(), "other", SCOPES, ADA, NOW) is None


def test_a_use_is_noted_once_a_minute(store: Store) -> None:
    secret = new_secret()
    id_ = store.access.create_token(secret, "ci", SCOPES, None, ADA, NOW).id
    for later in (0, 30, 59, 61):
        store.access.token_used(id_, NOW + timedelta(seconds=later))
        token = store.access.find_token(secret)
        assert token is not None
        assert token.used_at == NOW + timedelta(seconds=61 if later == 61 else 0)


def test_making_and_revoking_is_audited(store: Store) -> None:
    id_ = store.access.create_token(new_secret(), "ci", SCOPES, None, ADA, NOW).id
    store.access.revoke_token(id_, Maker("grace", "token", "::1"), NOW)
    revoked, made = store.audit_entries(object="token/ci")
    assert (made.action, made.who, made.source, made.address, made.reason) == (
        "token.create",
        "ada",
        "oidc",
        "10.0.0.7",
        "for CI",
    )
    assert made.after is not None
    assert made.after["scopes"] == [{"role": "operator", "node": "research/nlp"}]
    assert (revoked.action, revoked.who, revoked.before) == ("token.revoke", "grace", made.after)


def test_the_audit_log_is_searched_by_every_filter(store: Store) -> None:
    for minute, (who, action, object_) in enumerate(
        [("ada", "hold", "workload/nlp/a"), ("grace", "hold", "workload/nlp/a_b"), ("ada", "evict", "workload/vis/a")]
    ):
        store.audit(who, action, object_, None, None, "token", "why", NOW + minute * MINUTE)

    def found(**wanted: object) -> list[str]:
        return [entry.object for entry in store.access.audit_page(Wanted(**wanted), None, 10)]  # type: ignore[arg-type]

    assert found() == ["workload/vis/a", "workload/nlp/a_b", "workload/nlp/a"]
    assert found(who="ada") == ["workload/vis/a", "workload/nlp/a"]
    assert found(action="hold") == ["workload/nlp/a_b", "workload/nlp/a"]
    assert found(object="workload/nlp/a") == ["workload/nlp/a_b", "workload/nlp/a"]
    assert found(object="workload/nlp/a_") == ["workload/nlp/a_b"]
    assert found(since=NOW + MINUTE, until=NOW + 2 * MINUTE) == ["workload/nlp/a_b"]
    assert [entry.object for entry in store.access.audit_all(Wanted(who="ada"))] == found(who="ada")


def test_pages_of_the_audit_log_have_no_gap_and_nothing_twice(store: Store) -> None:
    for number in range(25):
        store.audit("ada", "hold", f"workload/nlp/{number}", None, None, "token", "", NOW + number // 3 * MINUTE)
    seen: list[int] = []
    after = None
    while page := store.access.audit_page(Wanted(), after, 4):
        seen += [entry.id for entry in page]
        after = page[-1].at, page[-1].id
        store.audit("ada", "hold", "workload/nlp/new", None, None, "token", "", NOW + 100 * MINUTE)
    assert seen == sorted(seen, reverse=True)
    assert len(seen) == 25


@pytest.mark.parametrize(
    ("wanted", "index"),
    [
        (Wanted(), "audit_at_id_idx"),
        (Wanted(who="user-7"), "audit_who_at_id_idx"),
        (Wanted(action="rare"), "audit_action_at_id_idx"),
        (Wanted(object="workload/team-7/"), "audit_prefix_idx"),
        (Wanted(since=NOW, until=NOW + MINUTE), "audit_at_id_idx"),
    ],
)
def test_each_search_has_an_index(store: Store, wanted: Wanted, index: str) -> None:
    with store.engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO audit (at, who, action, object) SELECT CAST(:now AS timestamptz) + n * interval '1 s', "
                "'user-' || n % 1000, CASE WHEN n % 5000 = 0 THEN 'rare' ELSE 'hold' END, "
                "'workload/team-' || n % 1000 || '/job-' || n FROM generate_series(1, 20000) AS n"
            ),
            {"now": NOW},
        )
        connection.execute(text("ANALYZE audit"))
        query = search_query(wanted, (NOW + timedelta(days=1), 0), 100)
        sql = query.compile(connection.engine, compile_kwargs={"literal_binds": True})
        plan = "\n".join(connection.execute(text(f"EXPLAIN {sql}".replace(":", "\\:"))).scalars())
    assert index in plan
    assert "Seq Scan" not in plan
