"""Envelopes: what we write is read back, and garbage raises nothing but EnvelopeError."""

import json
from uuid import uuid4

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.domain.envelope import DeliveryDue, EnvelopeError, Marker, decode
from app.domain.kinds import Channel, Priority

counts = st.integers(0, 2**63 - 1)
texts = st.text(min_size=1)
deliveries = st.builds(
    DeliveryDue,
    event_id=st.uuids().map(str),
    delivery_id=st.uuids().map(str),
    notification_id=st.uuids().map(str),
    channel=st.sampled_from(Channel),
    priority=st.sampled_from(Priority),
    tenant_id=texts,
    rescues=counts,
)
markers = st.builds(Marker, topic=texts, partition=counts, seq=counts)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
trees = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)


@given(deliveries | markers)
def test_what_is_encoded_is_decoded(envelope):
    """decode(encode(x)) == x, whatever the texts hold."""
    assert decode(envelope.encode()) == envelope


@given(deliveries)
def test_an_envelope_carries_ids_and_nothing_else(envelope):
    """A new field needs a decision: no address, no content, ever."""
    assert set(json.loads(envelope.encode())) == {
        "version", "event_id", "event_type", "timestamp", "delivery_id", "notification_id", "channel", "priority",
        "tenant_id", "rescues",
    }  # fmt: skip


@given(st.binary(max_size=200) | trees.map(lambda tree: json.dumps(tree).encode()))
@example(b"")
@example(b"\xff\xfe{")
@example(b'{"schema":999}')
@example(b'{"version":1}')
@example(b"[" * 100_000)
@example(b'{"version":' + b"[" * 900 + b"]" * 900 + b"}")
@example(b'{"version":1,"event_type":' + b"[" * 900 + b"]" * 900 + b"}")
@example(b"9" * 5_000)
@example(b'\xef\xbb\xbf{"version":1}')
def test_garbage_raises_nothing_but_envelope_error(value):
    """Case B11 in part. Undecodable, deep, huge or foreign: poison with a short reason, by either JSON reader."""
    for parse in (json.loads, orjson.loads):
        with pytest.raises(EnvelopeError) as caught:
            decode(value, parse)
        assert len(str(caught.value)) < 500


def test_a_tombstone_is_poison():
    """A record without a value (a Kafka tombstone) is nobody's delivery."""
    with pytest.raises(EnvelopeError):
        decode(None)


@given(deliveries | markers, st.data())
def test_one_broken_field_is_poison_or_harmless(envelope, data):
    """Any field replaced by any JSON value: EnvelopeError, or an envelope that can be sent again."""
    fields = json.loads(envelope.encode())
    field = data.draw(st.sampled_from(sorted(fields)))
    fields[field] = data.draw(trees | st.just(2**70) | st.just(float("inf")) | st.just(True))
    try:
        decoded = decode(json.dumps(fields).encode())
    except EnvelopeError:
        return
    assert decode(decoded.encode()) == decoded
    if isinstance(decoded, Marker):
        assert (type(decoded.partition), type(decoded.seq)) == (int, int)
    else:
        assert decoded.rescues >= 0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tenant_id", None),
        ("tenant_id", ""),
        ("event_id", 7),
        ("delivery_id", "42"),
        ("channel", "PIGEON"),
        ("priority", 0),
        ("priority", "URGENT"),
        ("rescues", -1),
        ("rescues", 1.5),
        ("rescues", True),
        ("version", 2),
        ("event_type", "delivery.done"),
    ],
)
def test_a_wrong_field_is_named(field, value):
    """The reason in the dead letter says what is wrong, so that a person can tell a bug from a stranger."""
    good = DeliveryDue("e", str(uuid4()), str(uuid4()), Channel.SMS, Priority.HIGH, "demo")
    fields = json.loads(good.encode()) | {field: value}
    with pytest.raises(EnvelopeError, match=r"broken field|unknown version|unknown event_type"):
        decode(json.dumps(fields).encode())
