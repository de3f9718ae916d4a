"""Turning a message into a mail: envelope, headers and body that no input can bend.

The recipient is one address and stays one: it is taken apart at its last `@`, its domain becomes ASCII (IDNA),
and what is no address is refused. Header texts are one line. Lines stay under 998 octets without folding, since
a folded long word would be turned into an encoded one, which breaks links in headers.
"""

import email.policy
import re
from dataclasses import dataclass
from email.errors import MessageError
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import format_datetime, localtime, parseaddr

import idna

from providers.base import Message
from providers.texts import encodable, one_line

_POLICY = email.policy.SMTP.clone(max_line_length=998, cte_type="7bit")
_POLICY_UTF8 = _POLICY.clone(utf8=True)
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f-\x9f\u2028\u2029\ud800-\udfff<>@,;:\\\"()\[\]]")
_UNSAFE_IN_ID = re.compile(r"[^A-Za-z0-9._-]")
LOCAL_OCTETS = 64
DOMAIN_OCTETS = 253


class InvalidAddressError(ValueError):
    """The text is no address that SMTP can carry; the text itself is not repeated."""


@dataclass(frozen=True, slots=True)
class Mail:
    """A message ready for the wire. `needs_utf8`: the server must speak SMTPUTF8."""

    sender: str
    recipient: str
    content: bytes
    needs_utf8: bool


@dataclass(frozen=True, slots=True)
class Sender:
    """Who a mail comes from: a display name, perhaps empty, and an address in ASCII."""

    name: str
    address: Address


def parse_address(text: str) -> Address:
    """Return one address with its domain in ASCII; raise InvalidAddressError for anything else."""
    local, at, domain = text.strip().rpartition("@")
    if not at or not local or _FORBIDDEN.search(local) or len(local.encode()) > LOCAL_OCTETS:
        raise InvalidAddressError("no address of the form local@domain")
    if local.startswith(".") or local.endswith(".") or ".." in local:
        raise InvalidAddressError("misplaced dot in the local part")
    try:
        ascii_domain = idna.encode(domain, uts46=True).decode("ascii")
    except (idna.IDNAError, UnicodeError) as error:
        raise InvalidAddressError("the domain is not valid") from error
    if len(ascii_domain) > DOMAIN_OCTETS:
        raise InvalidAddressError("the domain is too long")
    return Address(username=local, domain=ascii_domain)


def parse_sender(text: str) -> Sender:
    """Return the sender of `Name <local@domain>` or `local@domain`; raise InvalidAddressError."""
    name, address = parseaddr(one_line(text))
    parsed = parse_address(address)
    if not parsed.username.isascii():
        raise InvalidAddressError("the sender's local part must be ASCII")
    return Sender(one_line(name), parsed)


def render(message: Message, default_sender: Sender) -> Mail:
    """Return the mail of a message; raise InvalidAddressError. The same message gives the same Message-ID."""
    sender = parse_sender(message.sender) if message.sender else default_sender
    recipient = parse_address(message.recipient)
    needs_utf8 = not recipient.username.isascii()
    reference = _UNSAFE_IN_ID.sub("", message.reference)
    mail = EmailMessage(policy=_POLICY_UTF8 if needs_utf8 else _POLICY)
    mail["From"] = Address(sender.name, sender.address.username, sender.address.domain)
    mail["To"] = recipient
    mail["Subject"] = one_line(message.title)
    mail["Date"] = format_datetime(localtime())
    mail["Message-ID"] = f"<{reference}@{sender.address.domain}>"
    mail["X-Arauto-Reference"] = reference
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(_body(message.body))
    if message.html:
        mail.add_alternative(_body(message.html), subtype="html")
    try:
        content = mail.as_bytes()
    except (MessageError, UnicodeError) as error:
        raise InvalidAddressError("the headers cannot be written") from error
    return Mail(sender.address.addr_spec, recipient.addr_spec, content, needs_utf8)


def _body(text: str) -> str:
    return encodable(text).replace("\x00", "\ufffd")
