"""Who may do what over HTTP: tokens, roles, grants, paths, limits; and what is written down of it."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import socket
import ssl
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import ebla
from ebla.server.app import create_app
from ebla.server.listener import Address, Listener, require_safe
from ebla.server.options import Limits, Options
from ebla.server.request_pool import RequestPool
from ebla.tables import writes
from support.certificates import make_certificate
from support.warehouse import eventually, unchanged

Make = Callable[..., Any]
Tokens = dict[str, str]


@pytest.fixture
def table(db: ebla.Database) -> None:
    db.sql("CREATE TABLE t (id BIGINT, name STRING, PRIMARY KEY (id)); INSERT INTO t VALUES (1, 'Ada')")


@pytest.mark.parametrize("token", [None, "ebla_wrong"])
@pytest.mark.parametrize("path", ["/v1/sql", "/v1/query", "/v1/views", "/metrics", "/v1/changes?table=t"])
def test_a_request_without_a_right_token_is_refused(node: Make, tokens: Tokens, caller: Make, token: str, path: str):
    found = caller(node(), token).http.get(path)
    assert (found.status_code, found.json()["title"]) == (401, "TokenError")
    assert found.headers["WWW-Authenticate"].startswith("Bearer")
    assert "ebla_wrong" not in found.text


REFUSED = [
    ("reader", "INSERT INTO t VALUES (2, 'x')", "the right WRITE on t"),
    ("reader", "UPDATE t SET name = 'x'", "the right WRITE on t"),
    ("reader", "CREATE TABLE u (id INT)", "the role writer"),
    ("writer", "DROP TABLE t", "the right OWN on t"),
    ("writer", "ALTER TABLE t ADD COLUMN more INT", "the right OWN on t"),
    ("writer", "CREATE INDEX i ON t (name)", "the right OWN on t"),
    ("writer", "CREATE USER eve ROLE admin", "the role admin"),
    ("writer", "GRANT OWN ON t TO the_writer", "the role admin"),
    ("writer", "SELECT * FROM system.users", "the role admin"),
    ("writer", "ALTER CLUSTER SET balancing = OFF", "the role admin"),
    ("writer", "VACUUM", "the role admin"),
    ("admin", "SELECT reflect('java.lang.System', 'getenv')", "Java"),
    ("admin", "SELECT TRANSFORM(id) USING 'cat' FROM t", "a program"),
    ("admin", "LOAD INTO t FROM '/etc/hostname'", "below one of the node's directories"),
    ("writer", "INSERT INTO t VALUES (2, 'x'); DROP TABLE t", "the right OWN on t"),
]


@pytest.mark.parametrize(("role", "text", "named"), REFUSED)
def test_what_a_role_may_not_is_refused_with_the_right_and_changes_nothing(
    db: ebla.Database, node: Make, tokens: Tokens, caller: Make, table: None, role: str, text: str, named: str
):
    url = node()
    with unchanged(db):
        found = caller(url, tokens[role]).sql(text)
    assert found.status_code == 403, found.text
    assert found.json()["title"] == "RightError"
    assert named in found.json()["detail"]


def test_a_grant_raises_and_a_revoke_lowers_what_a_role_gives(node: Make, tokens: Tokens, caller: Make, table: None):
    url = node()
    admin, reader = caller(url, tokens["admin"]), caller(url, tokens["reader"])
    query = {"relation": "t"}
    assert reader.http.post("/v1/query", json=query).status_code == 200
    admin.sql("GRANT WRITE ON t TO the_reader")
    assert reader.sql("INSERT INTO t VALUES (2, 'Bob')").status_code == 200
    assert reader.http.post("/v1/tables/t/rows", json={"rows": [{"id": 3}]}).status_code == 200
    admin.sql("REVOKE SELECT ON t FROM the_reader")
    for found in (
        reader.http.post("/v1/query", json=query),
        reader.sql("SELECT * FROM t ORDER BY id LIMIT 1"),
        reader.sql("DELETE FROM t WHERE id IN (SELECT id FROM t)"),
        reader.http.get("/v1/tables/t"),
        reader.http.get("/v1/tables/t/changes?since=1"),
        reader.http.get("/v1/changes?table=t"),
        reader.http.request("DELETE", "/v1/tables/t/rows", json={"rows": [{"id": 1}]}),
    ):
        assert found.status_code == 403, found.text
    assert admin.sql("SELECT count(*) AS n FROM system.grants").json()["rows"] == [[1]]


def test_a_writer_owns_what_it_creates(node: Make, tokens: Tokens, caller: Make):
    writer = caller(node(), tokens["writer"])
    assert writer.sql("CREATE TABLE mine (id BIGINT, PRIMARY KEY (id))").status_code == 200
    assert writer.sql("ALTER TABLE mine ADD COLUMN more INT").status_code == 200
    refused = writer.sql("GRANT SELECT ON mine TO the_reader")
    assert (refused.status_code, "the role admin" in refused.json()["detail"]) == (403, True)
    assert writer.sql("DROP TABLE mine").status_code == 200


def test_who_lacks_a_right_is_told_which_statement_of_whom_gives_it(
    node: Make, tokens: Tokens, caller: Make, table: None
):
    url = node()
    admin, writer = caller(url, tokens["admin"]), caller(url, tokens["writer"])
    detail = writer.sql("ALTER TABLE t ADD COLUMN more INT").json()["detail"]
    said = re.fullmatch(r".* found WRITE; an admin can say (GRANT OWN ON t TO the_writer)", detail)
    assert said is not None, detail
    assert admin.sql(said[1]).status_code == 200
    assert writer.sql("ALTER TABLE t ADD COLUMN more INT").status_code == 200
    admin.sql("REVOKE OWN ON t FROM the_writer")
    assert writer.sql("ALTER TABLE t ADD COLUMN again INT").status_code == 403
    assert writer.sql("UPSERT INTO t (id) VALUES (2)").status_code == 200


def test_a_token_that_was_replaced_and_a_dropped_user_are_refused(node: Make, tokens: Tokens, caller: Make):
    url = node()
    admin, reader = caller(url, tokens["admin"]), caller(url, tokens["reader"])
    new = reader.sql("ALTER USER the_reader ROTATE TOKEN").json()["rows"][0][1]
    assert reader.sql("SHOW TABLES").status_code == 401
    again = caller(url, new)
    assert again.sql("SHOW TABLES").status_code == 200
    admin.sql("DROP USER the_reader")
    assert again.sql("SHOW TABLES").status_code == 401


def test_every_commit_of_a_user_is_in_the_audit_log(node: Make, tokens: Tokens, caller: Make, table: None):
    url = node()
    caller(url, tokens["writer"]).sql("UPSERT INTO t VALUES (2, 'Bob')", headers={"Ebla-Request": "r-7"})
    found = caller(url, tokens["admin"]).sql("SELECT user_name, request_id, action, statement FROM system.audit")
    assert found.json()["rows"] == [["the_writer", "r-7", "upsert into t", "UPSERT INTO t VALUES (2, 'Bob')"]]


def test_files_are_loaded_from_below_the_allowed_directories_alone(
    node: Make, tokens: Tokens, caller: Make, table: None, tmp_path: Path
):
    inside, outside = tmp_path / "in", tmp_path / "out"
    for folder in (inside, outside):
        folder.mkdir()
        (folder / "rows.json").write_text('{"id": 9}\n')
    (inside / "link.json").symlink_to(outside / "rows.json")
    writer = caller(node(load_from=(inside,)), tokens["writer"])
    for path in (outside / "rows.json", inside / ".." / "out" / "rows.json", inside / "link.json", outside / "*.json"):
        assert writer.sql(f"LOAD INTO t FROM '{path}'").status_code == 403, path
        assert writer.http.post("/v1/tables/t/load", json={"path": str(path)}).status_code == 403, path


def test_limits_of_body_rows_and_pace(node: Make, caller: Make, db: ebla.Database, table: None):
    url = node(users=False, limits=Limits(body_bytes=1000, rows=1, requests_per_s=0.001, burst=5))
    one = caller(url, None)
    assert one.http.post("/v1/sql", content=b"x" * 2000).status_code == 413
    assert one.http.post("/v1/sql", content=iter([b"x" * 800] * 3)).status_code == 413
    db.sql("INSERT INTO t VALUES (2, 'Bob')")
    found = one.sql("SELECT * FROM t ORDER BY id LIMIT 5")
    assert (found.status_code, found.json()["title"]) == (413, "LimitError")
    while (found := one.sql("SHOW TABLES")).status_code == 200:
        pass
    assert (found.status_code, found.json()["title"]) == (429, "RateLimitError")
    assert int(found.headers["Retry-After"]) >= 1


def test_a_node_that_stops_refuses_with_the_time_to_try_again(node: Make, caller: Make):
    stopping = threading.Event()
    one = caller(node(users=False, stopping=stopping.is_set), None)
    assert one.sql("SHOW TABLES").status_code == 200
    stopping.set()
    found = one.sql("SHOW TABLES")
    assert (found.status_code, found.json()["title"]) == (503, "NodeUnavailableError")
    assert found.headers["Retry-After"] == "5"
    assert one.http.get("/health/ready").status_code == 503
    assert one.http.get("/health/live").status_code == 200


@pytest.fixture
def held_write(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """A write stops when its files are written: the first event says that it has, the second one lets it go on."""
    reached, go_on = threading.Event(), threading.Event()

    def wait(name: str) -> None:
        if name == "write.files_written":
            reached.set()
            assert go_on.wait(250)

    monkeypatch.setattr(writes, "hit", wait)
    return reached, go_on


def test_a_request_that_is_cancelled_commits_nothing(
    node: Make, caller: Make, db: ebla.Database, table: None, held_write: tuple[threading.Event, threading.Event]
):
    reached, go_on = held_write
    one = caller(node(users=False), None)
    found: list[httpx.Response] = []

    def work() -> None:
        found.append(one.sql("INSERT INTO t VALUES (5, 'x')", headers={"Ebla-Request": "slow"}))

    thread = threading.Thread(target=work)
    thread.start()
    assert reached.wait(150)
    assert one.http.get("/v1/requests/slow").json()["statement"] == "INSERT INTO t VALUES (5, 'x')"
    assert one.http.delete("/v1/requests/slow").status_code == 202
    go_on.set()
    thread.join(150)
    assert (found[0].status_code, found[0].json()["title"]) == (409, "RequestCancelledError")
    assert db.query("t").rows() == [(1, "Ada")]
    assert one.http.get("/v1/requests/slow").status_code == 404


@pytest.mark.parametrize(
    ("limits", "given", "reason"),
    [
        (Limits(), {"timeout_s": 0.2}, "expected to end within 0.2 s, found it running"),
        (Limits(request_s=0.3), {"timeout_s": 60}, "expected to end within 0.3 s, found it running"),
        (Limits(), None, "the client went away"),
    ],
    ids=["its own limit", "the limit of the node", "a client that went"],
)
def test_a_statement_ends_with_its_time_and_with_its_client(
    node: Make,
    caller: Make,
    db: ebla.Database,
    table: None,
    held_write: tuple[threading.Event, threading.Event],
    limits: Limits,
    given: dict[str, float] | None,
    reason: str,
):
    reached, go_on = held_write
    url, found = node(users=False, limits=limits), list[httpx.Response]()
    body = {"sql": "INSERT INTO t VALUES (5, 'x')", **(given or {})}

    def ask() -> None:
        found.append(httpx.post(f"{url}/v1/sql", json=body, headers={"Ebla-Request": "slow"}, timeout=60))

    def ask_and_go() -> None:
        """The client goes while its statement writes, wherever that is then."""
        with socket.create_connection(("127.0.0.1", httpx.URL(url).port or 0)) as asking:
            said = json.dumps(body).encode()
            head = f"POST /v1/sql HTTP/1.1\r\nHost: node\r\nEbla-Request: slow\r\nContent-Length: {len(said)}\r\n"
            asking.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + said)
            assert reached.wait(150)

    thread, other = threading.Thread(target=ask if given else ask_and_go), caller(url, None).http
    thread.start()
    # On a busy machine its time is over before it writes anything, and it has ended before it is asked for.
    eventually(lambda: bool(found) or other.get("/v1/requests/slow").json().get("cancelled") == reason)
    go_on.set()
    thread.join(150)
    eventually(lambda: other.get("/v1/requests/slow").status_code == 404)
    assert [(one.status_code, reason in one.json()["detail"]) for one in found] == ([(409, True)] if given else [])
    assert db.query("t").rows() == [(1, "Ada")]


def test_a_statement_whose_time_is_over_before_it_has_begun_does_not_begin(
    node: Make, caller: Make, db: ebla.Database, table: None, held_write: tuple[threading.Event, threading.Event]
):
    """The only thread for statements is taken. Its answer does not wait for that one."""
    reached, go_on = held_write
    one = caller(node(users=False, limits=Limits(statements=1)), None)
    thread = threading.Thread(target=one.sql, args=("INSERT INTO t VALUES (5, 'x')",))
    thread.start()
    try:
        assert reached.wait(150)
        late = one.http.post("/v1/sql", json={"sql": "INSERT INTO t VALUES (6, 'y')", "timeout_s": 0.1}, timeout=150)
        assert (late.status_code, late.json()["title"]) == (409, "RequestCancelledError")
    finally:
        go_on.set()
        thread.join(150)
    assert sorted(db.query("t").rows()) == [(1, "Ada"), (5, "x")]


def test_a_statement_whose_time_is_over_as_it_begins_does_nothing(
    node: Make, caller: Make, db: ebla.Database, monkeypatch: pytest.MonkeyPatch
):
    """Its thread has begun, and its request is not seen yet."""
    version, over = db.version, threading.Event()
    begin, give_up = RequestPool._begun, RequestPool._give_up

    @contextlib.contextmanager
    def begin_late(pool: RequestPool, *given: Any) -> Iterator[Any]:
        with begin(pool, *given) as running:
            assert over.wait(150)
            yield running

    def give_up_first(pool: RequestPool, *given: Any) -> None:
        give_up(pool, *given)
        over.set()

    monkeypatch.setattr(RequestPool, "_begun", begin_late)
    monkeypatch.setattr(RequestPool, "_give_up", give_up_first)
    one = caller(node(users=False), None)
    body = {"sql": "CREATE TABLE t (id BIGINT PRIMARY KEY)", "timeout_s": 0.1}
    late = one.http.post("/v1/sql", json=body, timeout=150)
    assert (late.status_code, late.json()["title"]) == (409, "RequestCancelledError")
    assert db.version == version


BEYOND = Address(host="0.0.0.0", port=7601)


def test_answers_are_fetched_page_by_page(node: Make, caller: Make, db: ebla.Database, table: None):
    db.sql("INSERT INTO t VALUES (2, 'Bob'), (3, 'Cy')")
    one = caller(node(users=False), None)
    body = {"sql": "SELECT id FROM t ORDER BY id LIMIT 9", "page_rows": 2}
    first = one.http.post("/v1/sql", json=body).json()
    second = one.http.get(first["next_page"]).json()
    assert (first["rows"], second["rows"], "next_page" in second) == ([[1], [2]], [[3]], False)
    assert one.http.get("/v1/results/other").status_code == 404


# ---- listening ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "users", "missing"),
    [
        (BEYOND, True, "TLS"),
        (Address(host="0.0.0.0", tls_cert="c", tls_key="k"), False, "users"),
        (Address(host="example.org"), False, "TLS"),
        (Address(tls_cert="c"), True, "a key"),
    ],
)
def test_an_unsafe_address_needs_a_word(address: Address, users: bool, missing: str):
    with pytest.raises(ebla.UsageError, match=missing):
        require_safe(address, users=users)


def test_safe_addresses_and_the_word():
    require_safe(BEYOND, users=False, insecure=True)
    require_safe(Address(host="0.0.0.0", tls_cert="c", tls_key="k"), users=True)
    require_safe(Address(), users=False)
    assert Address.of("[::1]:7601") == Address(host="::1")
    with pytest.raises(ebla.UsageError, match="HOST:PORT"):
        Address.of("7601")


def test_a_client_checks_the_certificate_of_a_node(db: ebla.Database, tmp_path: Path):
    cert, key = make_certificate(tmp_path)
    address = Address(port=0, tls_cert=str(cert), tls_key=str(key))
    with Listener(create_app(db, Options(users=False)), address) as listener:
        assert listener.url.startswith("https://")
        with ebla.connect(listener.url, ca_file=str(cert)) as remote:
            assert remote.tables() == []
        with (
            ebla.connect(listener.url, catalog_retry_s=0) as remote,
            pytest.raises(ebla.NodeUnavailableError, match=r"certificate"),
        ):
            remote.tables()
    assert ssl.OPENSSL_VERSION


def test_no_token_is_in_a_log_or_a_file_that_others_read(
    node: Make, tokens: Tokens, caller: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG)
    one = caller(node(), tokens["admin"])
    one.sql("SHOW USERS")
    one.sql("SELEC")
    secret = tokens["admin"].encode()
    assert tokens["admin"] not in "".join(record.getMessage() for record in caplog.records if "ebla" in record.name)
    for path in (tmp_path / "warehouse").rglob("*"):
        if path.is_file():
            assert secret not in path.read_bytes()
            assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path


def test_a_user_without_the_right_learns_nothing_of_a_relation_that_is_kept_for_queries(
    node: Make, tokens: Tokens, caller: Make, table: None
):
    """Not by waiting for a version either, nor by asking for what it does not have."""
    url = node()
    admin, reader = caller(url, tokens["admin"]), caller(url, tokens["reader"])
    admin.sql("REVOKE SELECT ON t FROM the_reader")
    for name in ("t", "T"):
        asked = {"relation": name}
        for body in (asked, {**asked, "at_least": 10**6}, {**asked, "where": {"nothing": 1}}):
            found = reader.http.post("/v1/query", json=body)
            assert (found.status_code, found.json()["title"]) == (403, "RightError"), found.text
            assert "expected the right SELECT on t" in found.json()["detail"]
        assert admin.http.post("/v1/query", json=asked).json()["rows"] == [[1, "Ada"]]  # and from now on it is kept


def test_a_user_reads_no_reasons_of_commits_of_what_the_user_may_not_read(
    node: Make, tokens: Tokens, caller: Make, table: None
):
    url = node()
    admin, reader = caller(url, tokens["admin"]), caller(url, tokens["reader"])
    for statement in (
        "CREATE INDEX by_name ON t (name) WITH (build = 'deferred')",
        "DROP INDEX by_name",
        "CREATE INDEX by_name ON t (name) WITH (build = 'deferred')",
        "CREATE TABLE other (id BIGINT, PRIMARY KEY (id))",
    ):
        assert admin.sql(statement).status_code == 200

    def history(who: Any) -> set[str]:
        return {row[2] for row in who.http.get("/v1/history", params={"limit": 1000}).json()["rows"]}

    before = history(admin)
    mine = {reason for reason in before if re.search(r"\bt\b|by_name", reason)}
    assert "create index by_name on t" in mine
    assert history(reader) == before
    query = "SELECT reason FROM system.history ORDER BY version LIMIT 100"
    assert reader.sql(query).status_code == 200
    admin.sql("REVOKE SELECT ON t FROM the_reader")
    revoked = history(admin) - before
    assert history(reader) == (before - mine) | revoked
    for name in ("history", "transactions"):
        found = reader.sql(f"SELECT * FROM system.{name} LIMIT 1")
        assert (found.status_code, found.json()["title"]) == (403, "RightError"), found.text
        assert "SELECT on every relation for system." + name + ", found NONE on t;" in found.json()["detail"]
    assert reader.sql("SELECT * FROM system.counters LIMIT 1").status_code == 200
    assert admin.sql(query).status_code == 200
    admin.sql("GRANT SELECT ON t TO the_reader")
    assert reader.sql(query).status_code == 200
    assert history(reader) == history(admin)
    admin.sql("REVOKE SELECT ON t FROM the_reader")
    admin.sql("DROP TABLE t")
    assert not history(reader) & {*mine, "drop table t"}
    assert reader.sql(query).status_code == 403
