"""Mails as they are written, read back by the standard library."""

import email
import email.policy
from email.message import EmailMessage
from email.utils import parsedate_to_datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from providers.base import Message
from providers.email.mime import InvalidAddressError, parse_address, parse_sender, render
from providers.texts import SUBJECT_CHARACTERS, encodable, one_line

SENDER = parse_sender("Arauto <arauto@example.com>")
HEADERS = {
    "From", "To", "Subject", "Date", "Message-ID", "X-Arauto-Reference", "Auto-Submitted", "MIME-Version",
    "Content-Type", "Content-Transfer-Encoding",
}  # fmt: skip


def message(**fields: str | None) -> Message:
    return Message(**{"reference": "r-1", "recipient": "ana@example.com", "title": "Hi", "body": "b", **fields})


def read(raw: bytes) -> EmailMessage:
    parsed = email.message_from_bytes(raw, policy=email.policy.default)
    assert isinstance(parsed, EmailMessage)
    return parsed


def lines_of(text: str) -> list[str]:
    """The lines of a text, whatever ends them, without the empty ones after its end."""
    return text.replace("\r\n", "\n").replace("\r", "\n").rstrip("\n").split("\n")


@pytest.mark.parametrize("length", [60, 900, 901, 4000])
def test_the_unsubscribe_pair_is_written_and_read_back(length):
    """RFC 8058: both headers, the link whole once white space inside <> is passed over, no line too long."""
    url = "https://notify.example.com/v1/unsubscribe/".ljust(length, "A")
    raw = render(message(unsubscribe_url=url), SENDER).content
    mail = read(raw)
    assert "".join(str(mail["List-Unsubscribe"]).split()) == f"<{url}>"
    assert mail["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"
    assert all(len(line) <= 998 for line in raw.split(b"\r\n"))
    assert set(mail.keys()) == HEADERS | {"List-Unsubscribe", "List-Unsubscribe-Post"}


@pytest.mark.parametrize(
    "url",
    ["https://a.de/x\r\nBcc: b@a.de", "https://a.de/> <x", "javascript:x", "", "https://a.de/é"],
)
def test_what_is_no_link_adds_no_header(url):
    """The link is made by the service; anything else could add headers. Fails when it is not looked at."""
    assert set(read(render(message(unsubscribe_url=url), SENDER).content).keys()) == HEADERS


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=400), st.text(max_size=3000))
def test_any_text_arrives_and_adds_no_header(title, body):
    """Cases G01 and G15. Names of headers are fixed, lines are short, subject and body read back the same."""
    raw = render(message(title=title, body=body), SENDER).content
    mail = read(raw)
    assert set(mail.keys()) == HEADERS
    assert raw.isascii()
    assert all(len(line) <= 998 for line in raw.split(b"\r\n"))
    assert b"\n" not in raw.replace(b"\r\n", b"")
    assert b"\r" not in raw.replace(b"\r\n", b"")
    assert " ".join(str(mail["Subject"]).split()) == one_line(title)
    assert lines_of(mail.get_content()) == lines_of(encodable(body).replace("\x00", "\ufffd"))


@pytest.mark.parametrize(
    ("title", "subject"),
    [
        ("\n Hi {{ name }}\n", "Hi {{ name }}"),
        ("Hi A\nB", "Hi A B"),
        ("a\r\n\r\nb\tc\x00d", "a b c d"),
        ("x" * 3000, "x" * (SUBJECT_CHARACTERS - 1) + "…"),
        ("", ""),
    ],
)
def test_subject_is_one_short_line(title, subject):
    """Case G03. White space collapsed, length limited, and the mail can be written on the first try."""
    assert read(render(message(title=title), SENDER).content)["Subject"] == subject


def test_subject_that_looks_encoded_stays_what_it_is():
    """Text of the form of an encoded word must not be decoded into something else by the reader."""
    title = "=?utf-8?q?Bcc=3A_x?="
    raw = render(message(title=title), SENDER).content
    assert title.encode() not in raw
    assert read(raw)["Subject"] == title


def test_text_comes_before_html():
    """RFC 2046: the reader takes the last alternative that it can show."""
    mail = read(render(message(body="plain é", html="<p>é</p>"), SENDER).content)
    assert mail.get_content_type() == "multipart/alternative"
    assert [part.get_content_type() for part in mail.iter_parts()] == ["text/plain", "text/html"]
    assert [part.get_content().strip() for part in mail.iter_parts()] == ["plain é", "<p>é</p>"]


def test_headers_say_who_and_when():
    """The date is a date, the reference can be found again, and nobody answers with an out-of-office note."""
    mail = read(render(message(), SENDER).content)
    assert mail["From"] == "Arauto <arauto@example.com>"
    assert mail["Message-ID"] == "<r-1@example.com>"
    assert mail["X-Arauto-Reference"] == "r-1"
    assert mail["Auto-Submitted"] == "auto-generated"
    assert parsedate_to_datetime(mail["Date"]).tzinfo is not None


def test_reference_cannot_leave_its_header():
    """Only what an id is made of goes into the Message-ID."""
    mail = read(render(message(reference="a\r\nBcc: x> <y"), SENDER).content)
    assert mail["Message-ID"] == "<aBccxy@example.com>"
    assert set(mail.keys()) == HEADERS


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a@example.com", "a@example.com"),
        ("Ana <a@exämple.com>", "Ana <a@xn--exmple-cua.com>"),
        ('"Ana, Sales" <a@example.com>', '"Ana, Sales" <a@example.com>'),
        ("Ana\r\nBcc: x@y.example <a@example.com>", '"Ana Bcc: x@y.example" <a@example.com>'),
    ],
)
def test_sender_is_a_name_and_an_address(text, shown):
    """Case G01. A display name with specials is quoted, a line break in it is a space."""
    assert read(render(message(sender=text), SENDER).content)["From"] == shown


def test_international_name_is_encoded():
    """The header is ASCII on the wire and the name is whole when read."""
    mail = read(render(message(sender="José Ñandú <a@example.com>"), SENDER).content)
    assert mail["From"].addresses[0].display_name == "José Ñandú"


@pytest.mark.parametrize(
    ("text", "ascii_form"),
    [
        ("user@exämple.com", "user@xn--exmple-cua.com"),
        ("user@EXAMPLE.com", "user@example.com"),
        ("user+tag@example.com", "user+tag@example.com"),
        (" user@example.com ", "user@example.com"),
    ],
)
def test_address_has_an_ascii_domain(text, ascii_form):
    """Case G05. One form for the envelope and the header."""
    assert str(parse_address(text)) == ascii_form


@pytest.mark.parametrize(
    "text",
    ["", "a", "@example.com", "a@", "a@b@c.example", "a b@c.example",
     "a\r\n@c.example", ".a@c.example", "a..b@c.example",
     "a@exa mple.com", "a@-x.example", f"{'x' * 65}@c.example", "a@" + "x" * 64 + ".example", "<a@c.example>",
     "a@c.example,d@e.example", "\ud83d@c.example", "a@\ud83d.example"],
)  # fmt: skip
def test_what_is_no_address_is_refused(text):
    """The message is rejected once, instead of failing on every try."""
    with pytest.raises(InvalidAddressError):
        parse_address(text)


@given(st.text(max_size=80))
def test_no_text_breaks_the_address_parser(text):
    """Any text is an address or is refused in one way."""
    try:
        address = str(parse_address(text))
    except InvalidAddressError:
        return
    assert address.count("@") == 1
    assert not set(address) & set(' \r\n<>,;:"')
