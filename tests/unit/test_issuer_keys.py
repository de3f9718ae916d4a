"""Which keys of a published set count: public ones that may sign with the pinned algorithm, of a sound size."""

import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from app.services.issuer_keys import read_key_set

_RSA = rsa.generate_private_key(65537, 2048)
_EC = ec.generate_private_key(ec.SECP256R1())


def rsa_jwk(**chosen: Any) -> dict[str, Any]:
    return RSAAlgorithm.to_jwk(_RSA.public_key(), as_dict=True) | {"kid": "rsa"} | chosen


def ec_jwk(**chosen: Any) -> dict[str, Any]:
    return ECAlgorithm.to_jwk(_EC.public_key(), as_dict=True) | {"kid": "ec"} | chosen


def read(algorithm: str, *keys: Any) -> set[str]:
    return set(read_key_set(json.dumps({"keys": keys}).encode(), algorithm))


def test_only_keys_of_the_pinned_algorithm_are_taken():
    """One set serves many uses; the others are passed over and break nothing."""
    okp = OKPAlgorithm.to_jwk(ed25519.Ed25519PrivateKey.generate().public_key(), as_dict=True) | {"kid": "okp"}
    oct_ = {"kty": "oct", "k": "c2VjcmV0", "kid": "oct", "alg": "RS256"}
    everything = (rsa_jwk(), ec_jwk(), okp, oct_, 7, None, "key", [])
    assert read("RS256", *everything) == {"rsa"}
    assert read("ES256", *everything) == {"ec"}


@pytest.mark.parametrize(
    "bad",
    [
        *({"use": "enc"}, {"alg": "RS512"}, {"key_ops": ["encrypt"]}, {"key_ops": "verify"}, {"kid": 7}),
        *({"n": "AQAB"}, {"n": "!"}, {"e": None}, {"n": ...}, {"kty": "EC"}),
    ],
)
def test_a_key_for_something_else_or_a_broken_one_is_passed_over(bad):
    """Its token would be a token of no known key."""
    jwk = {name: value for name, value in (rsa_jwk(kid="bad") | bad).items() if value is not ...}
    assert read("RS256", jwk, rsa_jwk()) == {"rsa"}


def test_weak_and_published_private_keys_are_passed_over():
    """1024 bits are too few, another curve is another algorithm, and what is published in full is no secret."""
    weak = RSAAlgorithm.to_jwk(rsa.generate_private_key(65537, 1024).public_key(), as_dict=True) | {"kid": "weak"}
    curve = ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP384R1()).public_key(), as_dict=True) | {
        "kid": "p384"
    }
    private = RSAAlgorithm.to_jwk(_RSA, as_dict=True) | {"kid": "private"}
    assert read("RS256", weak, private, rsa_jwk(key_ops=["verify"], use="sig", alg="RS256")) == {"rsa"}
    assert read("ES256", curve, ec_jwk()) == {"ec"}


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"[]", b"null", b'{"keys": {}}', b'{"keys": []}', b'{"keys": [{}]}', b"\xff", b"7"]
)
def test_an_answer_without_a_usable_key_is_an_error(raw):
    """So that it counts as a failed fetch and takes nothing away."""
    with pytest.raises(ValueError):
        read_key_set(raw, "RS256")


def test_a_key_without_an_id_stands_for_tokens_without_one():
    """The first of two with the same id counts."""
    jwk = rsa_jwk()
    del jwk["kid"]
    assert read("RS256", jwk, rsa_jwk(kid="")) == {""}
