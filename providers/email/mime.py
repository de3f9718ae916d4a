"""Turning a message into a mail: envelope, headers and body that no input can bend.

The recipient is one address and stays one: it is taken apart at its last `@`, its domain becomes ASCII (IDNA),
and what is no address is refused. Every header text is one line, so no input can add a header; no line is longer
than 998 octets (RFC 5322, 2.1.1), and none needs 8BITMIME.

The few headers are written here and not by `email.message.EmailMessage`, which takes 50 times as long for them;
the tests read each mail back with the standard library and compare.
"""

import re
import secrets
from binascii import b2a_qp
from dataclasses import dataclass
from datetime import UTC, datetime
from email.header import Header
from email.utils import format_datetime
from functools import lru_cache

import idna

from providers.base import Message
from providers.texts import encodable, one_line

_FORBIDDEN = re.compile(r"[\x00-\x20\x7f-\x9f\u2028\u2029\ud800-\udfff<>@,;:\\\"()\[\]]")
_UNSAFE_IN_ID = re.compile(r"[^A-Za-z0-9._-]")
_LINE_END = re.compile(r"\r\n|\r|\n")
_LONG_LINE = re.compile(rb"[^\r\n]{998}")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9 !#$%&'*+/=?^_`{|}~-]*")
_LINK = re.compile(r"https?://[\x21-\x3b\x3d\x3f-\x7e]+")
_FOLD_AT = 900
LOCAL_OCTETS = 64
DOMAIN_OCTETS = 253


class InvalidAddressError(ValueError):
    """The text is no address that SMTP can carry; the text itself is not repeated."""


@dataclass(frozen=True, slots=True)
class Address:
    """One mailbox; the domain is ASCII, the local part may not be."""

    local: str
    domain: str

    def __str__(self) -> str:
        return f"{self.local}@{self.domain}"


@dataclass(frozen=True, slots=True)
class Sender:
    """Who a mail comes from: the From header as it is written, and the address in it, in ASCII."""

    header: str
    address: Address


@dataclass(frozen=True, slots=True)
class Mail:
    """A message ready for the wire. `needs_utf8`: the server must speak SMTPUTF8."""

    sender: str
    recipient: str
    content: bytes
    needs_utf8: bool


def parse_address(text: str) -> Address:
    """Return one address with its domain in ASCII; raise InvalidAddressError for anything else."""
    local, at, domain = text.strip().rpartition("@")
    if not at or not local or _FORBIDDEN.search(local) or len(local.encode()) > LOCAL_OCTETS:
        raise InvalidAddressError("no address of the form local@domain")
    if local.startswith(".") or local.endswith(".") or ".." in local:
        raise InvalidAddressError("misplaced dot in the local part")
    return Address(local, _ascii_domain(domain))


@lru_cache(maxsize=4096)
def _ascii_domain(domain: str) -> str:
    try:
        ascii_domain = idna.encode(domain, uts46=True).decode("ascii")
    except (idna.IDNAError, UnicodeError) as error:
        raise InvalidAddressError("the domain is not valid") from error
    if len(ascii_domain) > DOMAIN_OCTETS:
        raise InvalidAddressError("the domain is too long")
    return ascii_domain


def parse_sender(text: str) -> Sender:
    """Return the sender of `Name <local@domain>` or `local@domain`; raise InvalidAddressError."""
    name, opening, given = one_line(text).rpartition("<")
    if opening and not given.endswith(">"):
        raise InvalidAddressError("a < without its >")
    address = parse_address(given.removesuffix(">") if opening else given)
    if not address.local.isascii():
        raise InvalidAddressError("the sender's local part must be ASCII")
    name = name.strip().removeprefix('"').removesuffix('"').replace('\\"', '"')
    return Sender(f"{_phrase(name)} <{address}>" if name else str(address), address)


def render(message: Message, default_sender: Sender) -> Mail:
    """Return the mail of a message; raise InvalidAddressError. The same message gives the same Message-ID."""
    sender = parse_sender(message.sender) if message.sender else default_sender
    recipient = parse_address(message.recipient)
    reference = _UNSAFE_IN_ID.sub("", message.reference)
    headers = (
        f"From: {sender.header}\r\n"
        f"To: {recipient}\r\n"
        f"Subject: {_unstructured(one_line(message.title))}\r\n"
        f"Date: {format_datetime(datetime.now(UTC))}\r\n"
        f"Message-ID: <{reference}@{sender.address.domain}>\r\n"
        f"X-Arauto-Reference: {reference}\r\n"
        "Auto-Submitted: auto-generated\r\n"
        f"{_unsubscribe(message.unsubscribe_url)}"
        "MIME-Version: 1.0\r\n"
    ).encode()
    text = _part("plain", message.body)
    content = headers + (_alternative(text, _part("html", message.html)) if message.html else text)
    return Mail(str(sender.address), str(recipient), content, not recipient.local.isascii())


def _unsubscribe(url: str | None) -> str:
    """Return the pair of headers of RFC 8058. Readers pass over white space inside <>, so a long URL is folded."""
    if url is None or not _LINK.fullmatch(url):
        return ""
    pieces = [url[start : start + _FOLD_AT] for start in range(0, len(url), _FOLD_AT)]
    folded = "\r\n ".join(pieces)
    return f"List-Unsubscribe: <{folded}>\r\nList-Unsubscribe-Post: List-Unsubscribe=One-Click\r\n"


def _part(subtype: str, text: str) -> bytes:
    """Return one text part, its headers first: as it is where ASCII lines fit, else quoted-printable."""
    raw = _LINE_END.sub("\n", encodable(text).replace("\x00", "\ufffd")).encode()
    if not raw.endswith(b"\n"):
        raw += b"\n"
    if raw.isascii() and not _LONG_LINE.search(raw):
        charset, encoding = "us-ascii", "7bit"
    else:
        charset, encoding = "utf-8", "quoted-printable"
        raw = b2a_qp(raw, istext=True)
    head = f'Content-Type: text/{subtype}; charset="{charset}"\r\nContent-Transfer-Encoding: {encoding}\r\n\r\n'
    return head.encode() + raw.replace(b"\n", b"\r\n")


def _alternative(text: bytes, html: bytes) -> bytes:
    """Return both parts as alternatives, the better one last (RFC 2046, 5.1.4)."""
    boundary = f"=_{secrets.token_hex(16)}".encode()
    head = b'Content-Type: multipart/alternative; boundary="' + boundary + b'"\r\n\r\n'
    parts = b"".join(b"--" + boundary + b"\r\n" + part + b"\r\n" for part in (text, html))
    return head + parts + b"--" + boundary + b"--\r\n"


def _unstructured(text: str) -> str:
    """Return a header text as ASCII; one that could be taken for an encoded word is encoded itself."""
    if text.isascii() and "=?" not in text:
        return text
    return Header(text, "utf-8", header_name="X-Arauto-Reference").encode(linesep="\r\n")


def _phrase(name: str) -> str:
    """Return a display name as it may stand before `<address>`."""
    if not name.isascii() or "=?" in name:
        return _unstructured(name)
    if _PLAIN_NAME.fullmatch(name):
        return name
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
