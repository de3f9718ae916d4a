"""Settings: what is refused, and that the message says which name is wrong and why."""

from typing import Any

import pytest
from pydantic import ValidationError

from app.domain.kinds import Channel, Priority
from app.domain.uncertainty import Policy
from app.settings import DEVELOPMENT_SECRET, Settings, get_settings, parse_policies


def make(**chosen: Any) -> Settings:
    """Return settings that read no file."""
    return Settings(_env_file=None, **chosen)


OWN = "x" * 40
OWN_KEY = "A" * 43 + "="


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"transport": "pigeon"}, r"transport\s.*'kafka' or 'direct'"),
        ({"environment": "staging"}, "environment"),
        ({"environment": "production"}, "JWT_SECRET is the development secret: set your own"),
        ({"environment": "production", "jwt_secret": "x" * 31}, "JWT_SECRET must be at least 32 bytes"),
        ({"environment": "production", "jwt_secret": OWN}, "ENCRYPTION_KEYS holds the development key"),
        (
            {"environment": "production", "jwt_secret": OWN, "encryption_keys": f"2:{OWN_KEY}"},
            "BLIND_INDEX_KEY holds the development key",
        ),
        ({"encryption_keys": "1:c2hvcnQ="}, "ENCRYPTION_KEYS: a key is 32 bytes"),
        ({"blind_index_key": "?"}, "BLIND_INDEX_KEY: a key is base64"),
        ({"jwt_secret": "-----BEGIN PUBLIC KEY-----\nMFkw"}, "JWT_SECRET is a key that others know"),
        ({"jwt_secret": "ssh-rsa AAAA"}, "JWT_SECRET is a key that others know"),
        ({"jwt_algorithm": "none"}, "jwt_algorithm"),
        ({"jwt_algorithm": "HS512"}, "jwt_algorithm"),
        ({"jwt_algorithm": "RS256"}, "JWT_ALGORITHM=RS256 needs JWT_JWKS_URL"),
        ({"jwt_algorithm": "ES256", "jwt_jwks_url": "http://issuer.example/keys"}, "needs JWT_JWKS_URL, https"),
        ({"jwt_algorithm": "ES256", "jwt_jwks_url": "http://127.0.0.1.example/keys"}, "needs JWT_JWKS_URL, https"),
        ({"jwt_algorithm": "ES256", "jwt_jwks_url": "file:///etc/keys"}, "needs JWT_JWKS_URL, https"),
        ({"jwt_algorithm": "ES256", "jwt_jwks_url": "https://"}, "needs JWT_JWKS_URL, https"),
        ({"jwt_algorithm": "ES256", "jwt_jwks_url": "https://[x/keys"}, "needs JWT_JWKS_URL, https"),
        ({"jwt_jwks_url": "https://issuer.example/keys"}, "JWT_JWKS_URL is set but unused"),
        ({"provider_rate_per_second": 0}, "provider_rate_per_second"),
        ({"sms_rate_per_second": -1}, "sms_rate_per_second"),
        ({"retry_jitter": 1.0}, "retry_jitter"),
        ({"retry_attempts": 0}, "retry_attempts"),
        ({"retry_cap_seconds": "inf"}, "retry_cap_seconds"),
        ({"retry_base_seconds": "nan"}, "retry_base_seconds"),
        ({"relay_tick_seconds": 0}, "relay_tick_seconds"),
        ({"breaker_failure_ratio": 1.1}, "breaker_failure_ratio"),
        ({"bridge_high_water": "many"}, r"bridge_high_water\s.*valid integer"),
        ({"log_level": "LOUD"}, "log_level"),
        ({"unknown_policy": "SMS=hold"}, "'SMS=hold' is not CHANNEL:PRIORITY=resend"),
        ({"unknown_policy": "FAX:LOW=hold"}, "'FAX:LOW=hold' is not CHANNEL:PRIORITY"),
        ({"unknown_policy": "SMS:SOON=hold"}, "SMS:SOON=hold"),
        ({"unknown_policy": "SMS:LOW=maybe"}, "SMS:LOW=maybe"),
        ({"rate_wait_seconds": 120}, "RATE_WAIT_SECONDS must be less than RESCUE_HOLD_SECONDS"),
        ({"visibility_timeout_seconds": 270}, r"VISIBILITY_TIMEOUT_SECONDS must be greater than 270"),
    ],
)
def test_a_bad_value_is_refused_with_its_name(chosen, message):
    """A process that would misbehave does not start, and says what to change."""
    with pytest.raises(ValidationError, match=f"(?s){message}"):
        make(**chosen)


def test_settings_come_from_the_environment_and_cannot_change(monkeypatch):
    """Each name in upper case is a variable; a strange variable is nobody's business; a frozen value stays."""
    monkeypatch.setenv("SMS_RATE_PER_SECOND", "7")
    monkeypatch.setenv("NOT_A_SETTING_OF_OURS", "x")
    settings = make()
    assert settings.sms_rate_per_second == 7
    with pytest.raises(ValidationError, match="frozen"):
        settings.sms_rate_per_second = 8
    get_settings.cache_clear()
    assert get_settings() is get_settings()
    get_settings.cache_clear()


def test_secrets_are_not_shown():
    """A repr in a log or a traceback tells no secret."""
    shown = repr(make(jwt_secret="my-own-secret", sms_provider_token="my-own-token"))
    assert "my-own" not in shown
    assert DEVELOPMENT_SECRET not in repr(make())


def test_production_starts_with_secrets_of_its_own():
    """What production must bring: a signing key and the keys of what is personal."""
    keys = {"encryption_keys": f"2:{OWN_KEY}", "blind_index_key": OWN_KEY}
    assert make(environment="production", jwt_secret=OWN, **keys).environment == "production"


@pytest.mark.parametrize(
    "url",
    [
        *("https://issuer.example/keys", "https://10.0.0.1/keys", "https://1issuer.example/keys"),
        *("http://localhost:8080/keys", "http://127.0.0.1/keys", "http://127.9.9.9/keys", "http://[::1]:80/keys"),
    ],
)
def test_keys_come_over_tls_or_from_this_machine(url):
    """Whoever could change the set on its way could sign tokens."""
    assert not make(jwt_algorithm="ES256", jwt_jwks_url=url).signs_tokens


def test_rates_fall_back_from_channel_to_provider():
    """A channel's own rate wins; in-app calls no provider and has no limit."""
    settings = make(provider_rate_per_second=500, sms_rate_per_second=100)
    assert [settings.rate_per_second(c) for c in (Channel.SMS, Channel.EMAIL, Channel.PUSH, Channel.IN_APP)] == [
        100, 500, 500, 0,
    ]  # fmt: skip


def test_policies_override_the_defaults_one_by_one():
    """`UNKNOWN_POLICY` names what differs; all else stays at its default."""
    settings = make(unknown_policy=" SMS:HIGH=hold , EMAIL:LOW=hold,")
    assert settings.policy(Channel.SMS, Priority.HIGH) is Policy.HOLD
    assert settings.policy(Channel.EMAIL, Priority.LOW) is Policy.HOLD
    assert settings.policy(Channel.EMAIL, Priority.HIGH) is Policy.RESEND
    assert settings.policy(Channel.SMS, Priority.LOW) is Policy.HOLD
    assert parse_policies("") == {}


def test_one_redis_serves_all_unless_others_are_named():
    """Broker, limits and cache are three settings and one server by default."""
    settings = make(redis_url="redis://one/0")
    assert (settings.celery_broker_url, settings.cache_redis_url) == ("redis://one/0", "redis://one/0")
    settings = make(redis_url="redis://one/0", broker_url="redis://two/0", cache_url="redis://three/0")
    assert (settings.celery_broker_url, settings.cache_redis_url) == ("redis://two/0", "redis://three/0")


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ("postgres://u:p@h/d", "postgresql+psycopg2://u:p@h/d"),
        ("postgresql://h/d", "postgresql+psycopg2://h/d"),
        ("postgresql+psycopg2://h/d", "postgresql+psycopg2://h/d"),
    ],
)
def test_the_driver_is_named_for_sqlalchemy(given, made):
    """Whatever a hosting company calls PostgreSQL."""
    assert make(database_url=given).sqlalchemy_url == made


def test_the_lease_outlasts_every_call():
    """A lease is longer than the adapters' deadline by the margin, and at least the minimum."""
    assert make(provider_timeout_seconds=20).lease_seconds == 120
    assert make(provider_timeout_seconds=200).lease_seconds == 230
