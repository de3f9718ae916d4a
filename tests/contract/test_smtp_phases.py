"""What a mail server can do at each step of a transaction, and what must come of it."""

import asyncio
import email
import email.policy
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from providers.base import Message
from providers.email.connections import STALE_SECONDS
from providers.outcome import Accepted, Misconfigured, Outcome, Rejected, Retry, Scope, Throttled, Unknown
from providers.registry import build
from tests.contract.smtp_fakes import CLOSE, SILENCE, FakeSmtp


def message(recipient: str = "ana@example.com", **texts: str) -> Message:
    return Message("0190-ref", recipient, **{"title": "Hi", "body": "Olá\n.dot\n", **texts})


def talk(
    server: FakeSmtp, *messages: Message, scheme: str = "smtp", login: str = "", timeout_seconds: float = 5.0
) -> list[Outcome]:
    """Send the messages one after the other through one adapter."""

    async def run() -> list[Outcome]:
        async with server.running():
            url = f"{scheme}://{login}127.0.0.1:{server.port}"
            provider = build("EMAIL", url, sender="Arauto <arauto@example.com>", timeout_seconds=timeout_seconds)
            try:
                return [await provider.send(each) for each in messages]
            finally:
                await provider.close()

    return asyncio.run(run())


def one(server: FakeSmtp, sent: Message | None = None, **options: str | float) -> Outcome:
    return talk(server, sent or message(), **options)[0]


@pytest.fixture(scope="module")
def other_hosts_tls(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    """A server context with a certificate for another host, signed by nobody that we trust."""
    folder: Path = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "other.example.net")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    (folder / "cert.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context


PHASES = [
    ("RCPT", "550 5.1.1 no such user", Rejected, "recipient_gone"),
    ("RCPT", "550 5.7.1 blocked", Rejected, "policy"),
    ("RCPT", "550 no", Rejected, "recipient_refused"),
    ("RCPT", "552 5.2.2 mailbox full", Rejected, "mailbox_full"),
    ("MAIL", "553 not this sender", Rejected, "sender_refused"),
    ("MAIL", "530 5.7.0 authenticate first", Misconfigured, "auth_required"),
    ("BODY", "554 5.7.1 spam", Rejected, "policy"),
    ("BODY", "552 too big", Rejected, "too_large"),
    ("GREETING", "421 come back later", Retry, "unavailable"),
    ("GREETING", "554 go away", Misconfigured, "service_refused"),
    ("MAIL", "421 closing", Retry, "unavailable"),
    ("RCPT", "450 busy", Retry, "mailbox_busy"),
    ("RCPT", "451 4.7.1 Greylisted, try again in 5 minutes", Retry, "greylisted"),
    ("RCPT", "452 4.3.1 no room", Retry, "no_storage"),
    ("BODY", "451 4.3.0 later", Retry, "deferred"),
    ("DATA", "454 4.7.0 Throttling failure: Maximum sending rate exceeded", Throttled, "rate_limited"),
]


@pytest.mark.parametrize(("verb", "reply", "kind", "code"), PHASES)
def test_reply_is_read_by_code_and_phase(verb, reply, kind, code):
    """Case G07. 5yz is final and 4yz is a retry, wherever it comes; only a dead mailbox is gone."""
    outcome = one(FakeSmtp({verb: [reply]}))
    assert isinstance(outcome, kind)
    assert outcome.code == code
    if isinstance(outcome, Rejected):
        assert outcome.recipient_gone is ("5.1.1" in reply)


@pytest.mark.parametrize("reply", ["535 5.7.8 wrong", "530 no", "534 5.7.9 weak"])
def test_refused_login_is_our_fault_and_never_the_recipients(reply):
    """Case G07. Nothing is offered, and the account is what is wrong."""
    server = FakeSmtp({"AUTH": [reply]}, extensions=("AUTH PLAIN",))
    outcome = one(server, login="user:secret@")
    assert isinstance(outcome, Misconfigured)
    assert outcome.scope is Scope.ACCOUNT
    assert "MAIL" not in server.verbs()


def test_temporary_login_failure_is_a_retry():
    """Case G07. The server's own directory may be down."""
    server = FakeSmtp({"AUTH": ["454 4.7.0 later"]}, extensions=("AUTH PLAIN",))
    assert isinstance(one(server, login="user:secret@"), Retry)


@pytest.mark.parametrize("reply", [CLOSE, SILENCE])
def test_answer_lost_after_the_body_leaves_the_outcome_unknown(reply):
    """Case G09. The server has the whole message, and whether it kept it cannot be known."""
    server = FakeSmtp({"BODY": [reply]})
    outcome = one(server, timeout_seconds=0.6)
    assert isinstance(outcome, Unknown)
    assert len(server.messages) == 1
    assert server.connections == 1


@pytest.mark.parametrize("verb", ["GREETING", "MAIL", "RCPT", "DATA"])
@pytest.mark.parametrize("reply", [CLOSE, SILENCE])
def test_connection_lost_before_the_body_is_a_retry(verb, reply):
    """Case G09. A server may not deliver what it was not given."""
    server = FakeSmtp({verb: [reply]})
    outcome = one(server, timeout_seconds=0.6)
    assert isinstance(outcome, Retry)
    assert server.messages == []


def test_resend_carries_the_same_message_id():
    """Case G09. A mailbox that has the first can drop the second."""
    server = FakeSmtp({"BODY": ["451 later", "250 ok"]})
    first, second = talk(server, message(), message())
    assert isinstance(first, Retry)
    assert isinstance(second, Accepted)
    ids = {email.message_from_bytes(raw)["Message-ID"] for raw in server.messages}
    assert ids == {"<0190-ref@example.com>"}


def test_missing_starttls_ends_before_the_password():
    """Case G11. The offer may have been stripped on the way; going on in clear would give the password away."""
    server = FakeSmtp(extensions=("AUTH PLAIN",))
    outcome = one(server, scheme="smtp+starttls", login="user:secret@")
    assert isinstance(outcome, Misconfigured)
    assert outcome.code == "tls_missing"
    assert not {"AUTH", "MAIL"} & set(server.verbs())


def test_refused_starttls_ends_before_the_password():
    """Case G11. 454 is temporary; clear text is still no alternative."""
    server = FakeSmtp({"STARTTLS": ["454 not now"]}, extensions=("STARTTLS", "AUTH PLAIN"))
    outcome = one(server, scheme="smtp+starttls", login="user:secret@")
    assert isinstance(outcome, Retry)
    assert not {"AUTH", "MAIL"} & set(server.verbs())


def test_certificate_of_another_host_ends_before_the_password(other_hosts_tls):
    """Case G11. The recipient is not blamed, and nothing is handed over."""
    server = FakeSmtp(extensions=("STARTTLS", "AUTH PLAIN"), tls=other_hosts_tls)
    outcome = one(server, scheme="smtp+starttls", login="user:secret@")
    assert isinstance(outcome, Misconfigured)
    assert outcome.code == "tls_certificate"
    assert not {"AUTH", "MAIL"} & set(server.verbs())


def test_subject_cannot_add_a_header_or_a_recipient():
    """Case G01. A line break in a rendered text is a space, and the envelope has one recipient."""
    server = FakeSmtp()
    outcome = one(server, message(title="Hi\r\nBcc: x@example.net"))
    assert isinstance(outcome, Accepted)
    mail = email.message_from_bytes(server.messages[0], policy=email.policy.default)
    assert mail["Subject"] == "Hi Bcc: x@example.net"
    assert set(mail.keys()) == {
        "From", "To", "Subject", "Date", "Message-ID", "X-Arauto-Reference", "Auto-Submitted", "MIME-Version",
        "Content-Type", "Content-Transfer-Encoding",
    }  # fmt: skip
    assert [command for command in server.commands if command.startswith("RCPT")] == ["RCPT TO:<ana@example.com>"]


@pytest.mark.parametrize(
    "recipient", ["a@example.com>\r\nRCPT TO:<b@example.com", "a@b.example,c@d.example", "a b@c.de"]
)
def test_recipient_that_is_more_than_one_address_is_rejected(recipient):
    """Case G01. It never reaches the server."""
    server = FakeSmtp()
    outcome = one(server, message(recipient))
    assert isinstance(outcome, Rejected)
    assert not outcome.recipient_gone
    assert server.connections == 0


def test_international_domain_travels_as_ascii():
    """Case G05. Envelope and header carry the same ASCII form, and no extension is needed."""
    server = FakeSmtp()
    assert isinstance(one(server, message("user@exämple.com")), Accepted)
    assert "RCPT TO:<user@xn--exmple-cua.com>" in server.commands
    assert email.message_from_bytes(server.messages[0])["To"] == "user@xn--exmple-cua.com"
    assert not any("SMTPUTF8" in command for command in server.commands)


def test_international_local_part_needs_a_server_that_can():
    """Case G05. Without SMTPUTF8 the address cannot be written; with it, it is asked for."""
    plain = FakeSmtp()
    outcome = one(plain, message("ünal@example.com"))
    assert isinstance(outcome, Rejected)
    assert outcome.code == "smtputf8_unsupported"
    able = FakeSmtp(extensions=("SMTPUTF8",))
    assert isinstance(one(able, message("ünal@example.com")), Accepted)
    assert any(command.endswith("SMTPUTF8") for command in able.commands)


def test_body_arrives_as_it_was_written():
    """Leading dots are doubled on the wire and single again in the message."""
    server = FakeSmtp()
    one(server, message(body=".\n..two\nend"))
    assert b"\r\n..\r\n...two\r\nend\r\n" in server.messages[0]


def test_connection_is_used_again():
    """Ten mails, one connection, one greeting."""
    server = FakeSmtp()
    outcomes = talk(server, *(message() for _ in range(10)))
    assert all(isinstance(outcome, Accepted) for outcome in outcomes)
    assert (server.connections, server.verbs().count("EHLO")) == (1, 1)


def test_connection_is_reset_after_a_refusal():
    """A refused recipient leaves the transaction open, so the next mail begins with RSET."""
    server = FakeSmtp({"RCPT": ["550 5.1.1 no", "250 ok"]})
    first, second = talk(server, message(), message())
    assert isinstance(first, Rejected)
    assert isinstance(second, Accepted)
    assert "RSET" in server.verbs()
    assert server.connections == 1


@pytest.mark.parametrize("reply", ["421 bye", CLOSE])
def test_connection_that_the_server_closed_is_replaced(reply):
    """No message was offered on it, so a new connection is no second try."""
    server = FakeSmtp({"MAIL": ["250 ok", reply, "250 ok"]})
    outcomes = talk(server, message(), message())
    assert all(isinstance(outcome, Accepted) for outcome in outcomes)
    assert (server.connections, len(server.messages)) == (2, 2)


def test_stale_connection_is_asked_before_it_is_used():
    """After a pause the connection proves that it lives, or is replaced."""

    async def run(server: FakeSmtp) -> Outcome:
        async with server.running():
            provider = build("EMAIL", f"smtp://127.0.0.1:{server.port}", sender="a@example.com")
            await provider.send(message())
            (kept,) = provider._pool._idle
            kept.used_at -= STALE_SECONDS + 1
            try:
                return await provider.send(message())
            finally:
                await provider.close()

    server = FakeSmtp({"RSET": [CLOSE]})
    assert isinstance(asyncio.run(run(server)), Accepted)
    assert (server.connections, server.verbs().count("RSET")) == (2, 1)


def test_pool_holds_no_more_connections_than_allowed():
    """A bound for servers that allow few; the rest waits within its deadline."""

    async def run(server: FakeSmtp) -> list[Outcome]:
        async with server.running():
            url = f"smtp://127.0.0.1:{server.port}?connections=3"
            provider = build("EMAIL", url, sender="a@example.com")
            try:
                return await asyncio.gather(*(provider.send(message()) for _ in range(30)))
            finally:
                await provider.close()

    server = FakeSmtp()
    outcomes = asyncio.run(run(server))
    assert all(isinstance(outcome, Accepted) for outcome in outcomes)
    assert server.connections == 3
