"""What goes over a stream: names of channels, frames, and the bounds of what waits for a client."""

import asyncio
import hashlib
import json

import pytest

from app.domain.inbox_channel import inbox_channel
from app.services.open_stream import Admission
from app.streams.frames import HEARTBEAT, SYNC, frame_of, retry
from app.streams.stream import End, Stream

FRAME = b"event: a\ndata: {}\n\n"


def stream(limit: int = 3, ends_at: float | None = None) -> Stream:
    return Stream("inbox:x", Admission("demo", "u1", None, 0.0, ends_at), limit=limit)


def taken(of: Stream) -> bytes:
    async def take() -> bytes:
        return await asyncio.wait_for(of.take(), 5)

    return asyncio.run(take())


def message(**chosen: object) -> bytes:
    return json.dumps(
        {"event": "notification.created", "id": "n1", "at": "2026-11-30T12:00:00Z"} | chosen
    ).encode()


def test_a_channel_is_the_digest_that_publishers_agreed_on():
    """Fails when either side changes the formula alone: nobody would hear anything, without an error."""
    expected = "inbox:" + hashlib.sha256(b"demo\x0042").hexdigest()[:32]
    assert inbox_channel("demo", "42") == expected
    assert inbox_channel("demo", "42") != inbox_channel("demo4", "2")


def test_a_frame_has_the_fields_that_event_source_reads():
    """Name, id and data, ended by an empty line."""
    assert frame_of(message()) == (
        b"event: notification.created\nid: n1\n"
        b'data: {"event":"notification.created","id":"n1","at":"2026-11-30T12:00:00Z"}\n\n'
    )
    assert retry(3.0) == b"retry: 3000\n\n"


def test_what_is_about_no_single_notification_has_no_id_line():
    """An empty `id:` would make the client forget the last one."""
    frame = frame_of(message(id=None, event="inbox.read_all"))
    assert frame is not None
    assert b"\nid:" not in frame


@pytest.mark.parametrize(
    "raw",
    [
        *(b"", b"{", b"[]", b"null", b'"x"', b"\xff", b"{}"),
        message(event="a\nevent: b"),
        message(event="a" * 65),
        message(event="Notification Created"),
        message(id="n1\ndata: forged"),
        message(id=""),
        message(id=7),
        message(at=None),
        message(at="x\r\ny"),
    ],
)
def test_what_is_no_message_makes_no_frame(raw):
    """Fails when a text is passed on as it came: a line break in it would be a frame that somebody forged."""
    assert frame_of(raw) is None


def test_content_that_was_published_by_mistake_goes_nowhere():
    """Only ids are passed on, whatever else a message holds."""
    assert b"secret" not in (frame_of(message(title="secret")) or b"")


def test_frames_that_wait_go_out_together_and_in_order():
    """One write for all of them."""
    one = stream()
    for text in (b"1", b"2", b"3"):
        assert one.offer(text) == 0
    assert taken(one) == b"123"


def test_a_client_that_reads_slowly_gets_one_sync_for_all_that_it_missed():
    """The bound holds whatever is published, and nothing is lost without a word.

    Fails when the buffer has no bound, and when the frames beyond it are dropped without a sync.
    """
    one = stream(limit=3)
    dropped = sum(one.offer(b"%d" % number) for number in range(1000))
    assert dropped == 4
    assert taken(one) == SYNC
    assert one.offer(FRAME) == 0
    assert taken(one) == FRAME


def test_a_sync_takes_the_place_of_what_waits():
    """The client will see it all in the inbox."""
    one = stream()
    one.offer(FRAME)
    one.sync()
    one.sync()
    assert taken(one) == SYNC


def test_a_heartbeat_is_written_only_when_nothing_else_is():
    """Any byte shows that the connection lives."""
    one = stream()
    one.beat()
    assert taken(one) == HEARTBEAT
    one.offer(FRAME)
    one.beat()
    assert taken(one) == FRAME


def test_an_ended_stream_gives_what_waits_and_then_nothing():
    """The last words say when to come back; nothing is taken in after the end."""
    one = stream()
    one.offer(FRAME)
    one.finish(End.STOPPED, 2.5)
    one.finish(End.EXPIRED)
    assert one.offer(FRAME) == 1
    assert taken(one) == FRAME + b"retry: 2500\n\n: ended: stopped\n\n"
    assert taken(one) == b""


def test_nothing_is_handed_out_after_the_end_of_the_token():
    """Also between two rounds. Fails when only the rounds look at the clock."""
    assert stream(ends_at=1.0).offer(FRAME) == 1


def test_a_waiting_reader_is_woken():
    """By a frame, a heartbeat and the end alike."""

    async def run() -> list[bytes]:
        found = []
        for act in (lambda one: one.offer(FRAME), lambda one: one.beat(), lambda one: one.finish(End.RENEW)):
            one = stream()
            waiting = asyncio.create_task(one.take())
            await asyncio.sleep(0)
            act(one)
            found.append(await asyncio.wait_for(waiting, 5))
        return found

    assert asyncio.run(run()) == [FRAME, HEARTBEAT, b": ended: renew\n\n"]
