"""Lists that come in pieces, trials with the first ones, and what became of a batch."""

import csv
import io
from collections.abc import Iterator

import orjson
import pytest

from app.domain.csv_cells import plain
from app.services.batches.expand import Expand
from tests.batch_parts import add_users, batch, made, make_expander
from tests.integration.api.conftest import error_of
from tests.integration.api.test_api_batches import Batches, to_segment
from tests.pipeline_parts import sql
from tests.user_rows import add_user


@pytest.fixture
def batches(api) -> Batches:
    return Batches(api)


@pytest.fixture
def expander(database_url: str) -> Iterator[Expand]:
    made = make_expander(database_url, chunk=10)
    yield made
    made.engine.dispose()


def uploading(batches: Batches, form: str = "csv", **chosen) -> str:
    body = to_segment(channels=["SMS"], upload={"format": form}) | chosen
    del body["segment"]
    return batches.accepted(body)


def fill(batches: Batches, identifier: str, data: bytes, piece: int) -> None:
    for offset in range(0, len(data), piece):
        answer = batches.put(identifier, offset, data[offset : offset + piece])
        assert answer.get_json() == {"next_offset": min(offset + piece, len(data))}, answer.get_json()
    assert batches.do(identifier, "start").status_code == 200


@pytest.mark.parametrize("piece", [1, 7, 100_000])
def test_pieces_may_end_anywhere(batches, expander, engine, piece):
    """A byte order mark, quotes, line breaks in quotes and UTF-8 survive being cut into single bytes.

    Fails when a row is looked for inside one piece, or the place to go on from is not at a row's end.
    """
    data = (
        '\ufeffuser_id,recipients.SMS,name\r\nu1,+447700900001,"Ana ""A"", São\r\nPaulo"\r\n'
        "u2,+447700900002,Bia\r\n\r\nu3,12,C\r\nu4,+447700900004,D"
    ).encode()
    identifier = uploading(batches)
    fill(batches, identifier, data, piece)
    expander.run(20)
    view = batches.view(identifier)
    assert (view["state"], view["progress"]["notifications"], view["progress"]["rejected"]) == ("COMPLETED", 3, 1)
    assert [line["row"] for line in batches.lines(identifier, "errors")] == [3]
    assert [user for user, _ in made(engine, identifier)] == ["u1", "u2", "u4"]
    assert sql(engine, "SELECT count(*) FROM batch_piece") == [(0,)]


def test_an_upload_is_resumed_where_it_stopped(batches, expander, engine):
    """A piece that is sent again changes nothing; a gap, an overlap and another piece are refused."""
    identifier = uploading(batches)
    first, second = b"user_id,recipients.SMS\n1,+4477009", b"00001\n2,+447700900002\n"
    for _ in range(2):
        assert batches.put(identifier, 0, first).get_json() == {"next_offset": len(first)}
    for offset, data, code in (
        (len(first) + 1, second, "DOMAIN_BATCH_OFFSET"),
        (3, second, "DOMAIN_BATCH_OFFSET"),
        (0, first[:-1], "DOMAIN_BATCH_PIECE_DIFFERS"),
        (0, first[:-1] + b"x", "DOMAIN_BATCH_PIECE_DIFFERS"),
    ):
        answer = batches.put(identifier, offset, data)
        assert (answer.status_code, error_of(answer)["code"]) == (422, code)
        assert error_of(answer)["details"][0]["message"] == f"go on at {len(first)}"
    assert batches.view(identifier)["upload"]["next_offset"] == len(first)
    assert not expander.step()
    fill_rest = batches.put(identifier, len(first), second)
    assert fill_rest.status_code == 200
    for _ in range(2):
        assert batches.do(identifier, "start").status_code == 200
    late = batches.put(identifier, len(first) + len(second), b"3\n")
    assert (late.status_code, error_of(late)["code"]) == (422, "DOMAIN_BATCH_NOT_UPLOADING")
    expander.run(20)
    assert [user for user, _ in made(engine, identifier)] == ["1", "2"]


def test_nothing_that_was_uploaded_lies_open_in_the_tables(batches, engine):
    """Lists are sealed, and gone when they were read."""
    identifier = uploading(batches)
    batches.put(identifier, 0, b"user_id,recipients.SMS\nsecret-user,+447700900001\n")
    (row,) = sql(engine, "SELECT sealed FROM batch_piece")
    assert b"secret" not in bytes(row[0])


@pytest.mark.parametrize("data", [b"name,age\nx,1\n", b"user_id,user_id\n1,2\n", b"\xff\xfe\n1\n", b"\n\n"])
def test_a_csv_without_a_column_of_users_fails(batches, expander, engine, data):
    """It has FAILED with the reason, and makes nothing."""
    identifier = uploading(batches)
    fill(batches, identifier, data, 1000)
    expander.run(20)
    view = batches.view(identifier)
    assert (view["state"], view["reason"], view["progress"]["read"]) == ("FAILED", "no_header", 0)


def test_rows_that_are_none_do_not_end_the_list(batches, expander, engine):
    """Each is told with its number and why; the rest goes on."""
    rows = [
        b'{"user_id": "a", "recipients": {"SMS": "+447700900001"}}',
        b"{broken",
        b"[1]",
        b'{"user_id": ""}',
        b'{"user_id": true}',
        b'{"user_id": "b", "recipients": {"SMS": 5}}',
        b'{"user_id": "c", "surprise": 1}',
        b'{"user_id": "d", "payload": {"x": NaN}}',
        b'{"user_id": "e", "payload": {"x": "\\u0000"}}',
        b'{"user_id": "' + b"x" * 70_000 + b'"}',
        b"\xff\xfe",
        b'{"user_id": 9, "recipients": {"SMS": "+447700900009"}}',
    ]
    identifier = uploading(batches, "ndjson")
    fill(batches, identifier, b"\n".join(rows), 30_000)
    expander.run(20)
    assert [user for user, _ in made(engine, identifier)] == ["9", "a"]
    errors = {line["row"]: line["code"] for line in batches.lines(identifier, "errors")}
    assert errors == {
        2: "unreadable",
        3: "unreadable",
        4: "user_id",
        5: "user_id",
        6: "recipients",
        7: "unknown_field",
        8: "unreadable",
        9: "text",
        10: "too_long",
        11: "encoding",
    }


def test_an_upload_has_its_limits(make_api):
    """A piece that is too long is 413, a list that is too long 422, an empty or compressed piece is refused."""
    batches = Batches(make_api(batch_piece_max_bytes=100, batch_upload_max_bytes=150))
    identifier = uploading(batches)
    assert batches.put(identifier, 0, b"x" * 101).status_code == 413
    assert batches.put(identifier, 0, b"").status_code == 400
    assert batches.put(identifier, 0, b"x", "application/json").status_code == 415
    assert batches.put(identifier, 0, b"x" * 100).status_code == 200
    over = batches.put(identifier, 100, b"x" * 51)
    assert (over.status_code, error_of(over)["code"]) == (422, "DOMAIN_BATCH_TOO_LARGE")
    empty = uploading(batches)
    answer = batches.do(empty, "start")
    assert (answer.status_code, error_of(answer)["code"]) == (422, "DOMAIN_BATCH_EMPTY")


def test_an_export_carries_no_formulas(batches, expander, engine):
    """Text that a spreadsheet would run gets an apostrophe, numbers of phones stay, and reading gives it back.

    Case J15. Fails without the guard of cells.
    """
    names = [
        *('=HYPERLINK("http://x","y")', "+1-1", "-2+3", "@SUM(A1)", "+12025550123", "'=1", "''+x"),
        'with "quotes", commas',
        "plain",
    ]
    rows = b"\n".join(orjson.dumps({"user_id": name}) for name in names)
    identifier = uploading(batches, "ndjson")
    fill(batches, identifier, rows, 1000)
    expander.run(20)
    answer = batches.get(f"/{identifier}/errors?format=csv")
    assert answer.mimetype == "text/csv"
    cells = [line[1] for line in csv.reader(io.StringIO(answer.get_data(as_text=True), newline=""))][1:]
    assert not [cell for cell in cells if cell[0] in "=-@\t\r" or (cell[0] == "+" and not cell[1:].isdigit())]
    assert "+12025550123" in cells
    assert [plain(cell) for cell in cells] == names


def _end_canary(engine, identifier: str, failed: int) -> None:
    sql(
        engine,
        "UPDATE delivery SET status = 'SENT', sent_at = now() WHERE status = 'PENDING'",
    )
    sql(
        engine,
        "UPDATE delivery SET status = 'FAILED', error_code = 'rejected'"
        " WHERE id IN (SELECT id FROM delivery ORDER BY id LIMIT %(failed)s)",
        failed=failed,
    )
    sql(engine, "UPDATE batch SET canary_until = now() WHERE id = %(id)s::uuid", id=identifier)


@pytest.mark.parametrize(("failed", "state"), [(0, "COMPLETED"), (2, "COMPLETED"), (3, "PAUSED")])
def test_a_canary_decides_about_the_rest(batches, expander, engine, failed, state):
    """The first tenth goes out; more failures than allowed among it stop the rest, which somebody may resume."""
    add_users(engine, 200)
    canary = {"percent": 10, "max_failure_rate": 0.1, "wait_seconds": 60}
    identifier = batches.accepted(to_segment(channels=["SMS"], canary=canary))
    expander.run(20)
    view = batches.view(identifier)
    assert (view["state"], view["progress"]["notifications"]) == ("CANARY_WAIT", 20)
    _end_canary(engine, identifier, failed)
    expander.run(20)
    view = batches.view(identifier)
    assert view["state"] == state
    if state == "PAUSED":
        assert (view["reason"], view["progress"]["notifications"]) == ("canary_failed", 20)
        assert batches.do(identifier, "resume").get_json()["canary"]["state"] == "WAIVED"
        expander.run(20)
        assert batches.view(identifier)["state"] == "COMPLETED"
    assert len(made(engine, identifier)) == 200


def test_a_canary_without_news_waits_and_then_stops(batches, expander, engine):
    """Silence is no good sign: while less than half has ended it waits, ten times as long at most."""
    add_users(engine, 30)
    canary = {"count": 10, "wait_seconds": 60}
    identifier = batches.accepted(to_segment(channels=["SMS"], canary=canary))
    expander.run(20)
    sql(engine, "UPDATE batch SET canary_until = now()")
    expander.run(20)
    assert batches.view(identifier)["state"] == "CANARY_WAIT"
    sql(engine, "UPDATE batch SET canary_until = now()")
    sql(engine, "UPDATE batch_chunk SET made_at = now() - interval '11 minutes'")
    expander.run(20)
    view = batches.view(identifier)
    assert (view["state"], view["reason"]) == ("PAUSED", "canary_undecided")


def test_who_got_it_is_listed_page_by_page(batches, expander, engine):
    """Over the chunks, none twice and none left out, whatever the size of a page."""
    add_users(engine, 35)
    identifier = batches.accepted(to_segment(channels=["SMS"]))
    expander.run(20)
    sql(engine, "UPDATE delivery SET status = 'SENT', sent_at = now() WHERE user_id <= 'u0000023'")
    for limit in (1, 10, 1000):
        listed = batches.lines(identifier, f"recipients?state=sent&limit={limit}")
        assert [line["user_id"] for line in listed] == [f"u{n:07d}" for n in range(1, 24)]
    assert len(batches.lines(identifier, "recipients?state=waiting&limit=7")) == 12
    for query in ("state=all", "limit=0", "limit=x", "cursor=x", "colour=red"):
        assert batches.get(f"/{identifier}/recipients?{query}").status_code == 400


def test_only_what_fits_the_state_can_be_done(batches, expander, engine):
    """An ended batch cannot be cancelled or paused, only recalled."""
    add_user(engine, "a", phone="+447700900001")
    sql(engine, "UPDATE app_user SET created_at = now() - interval '1 hour'")
    identifier = batches.accepted(to_segment(channels=["SMS"]))
    expander.run(20)
    for verb in ("pause", "cancel"):
        answer = batches.do(identifier, verb)
        assert (answer.status_code, error_of(answer)["code"]) == (422, "DOMAIN_BATCH_STATE")
    assert batches.do(identifier, "recall").get_json()["state"] == "CANCELLING"
    expander.run(20)
    assert batch(engine, identifier)["state"] == "CANCELLED"
