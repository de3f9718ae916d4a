"""Settings: the only reader of the environment. Every name here is an environment variable in upper case."""

from collections.abc import Callable
from functools import lru_cache
from ipaddress import ip_address, ip_network
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationInfo, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from app.domain.encryption_keys import parse_key, parse_keys
from app.domain.kinds import Channel, Priority
from app.domain.uncertainty import Policy, default_policy

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Limit = Annotated[int, Field(ge=0, le=1_000_000)]

DEVELOPMENT_SECRET = "arauto-development-secret-do-not-deploy"  # noqa: S105  refused outside development
DEVELOPMENT_ENCRYPTION_KEY = "YXJhdXRvLWRldmVsb3BtZW50LWtleS1kby1ub3QtdXM="
_SECRET_LEAST_BYTES = 32


class Settings(BaseSettings):
    """All that an installation can choose. Durations are seconds, rates are per second."""

    model_config = SettingsConfigDict(env_file=".env", extra="ignore", frozen=True)

    # Where the parts are
    environment: Literal["development", "production"] = "development"
    database_url: str = "postgresql://arauto:arauto@127.0.0.1:5432/arauto"
    redis_url: str = "redis://127.0.0.1:6379/0"
    broker_url: str = ""
    cache_url: str = ""
    kafka_bootstrap_servers: str = "127.0.0.1:9092"
    kafka_replication: Count = 1
    kafka_min_insync: Count = 1
    kafka_fetch_wait_seconds: Positive = 0.5
    transport: Literal["kafka", "direct"] = "kafka"
    sandbox_url: str = "http://127.0.0.1:8025"
    sandbox_smtp_url: str = "smtp://127.0.0.1:2525"

    # Providers: http(s)://, smtp(s):// or null:// ; empty means the sandbox
    email_provider_url: str = ""
    sms_provider_url: str = ""
    push_provider_url: str = ""
    sms_provider_token: SecretStr = SecretStr("")
    push_provider_token: SecretStr = SecretStr("")
    email_sender: str = "arauto@example.com"
    provider_rate_per_second: Count = 500
    email_rate_per_second: Annotated[int, Field(ge=0)] = 0
    sms_rate_per_second: Annotated[int, Field(ge=0)] = 0
    push_rate_per_second: Annotated[int, Field(ge=0)] = 0
    provider_timeout_seconds: Positive = 20.0

    # API
    api_host: str = "127.0.0.1"
    api_port: int = 8000
    api_workers: Count = 1
    api_threads: Count = 16
    api_database_pool: Count = 8
    api_statement_timeout_seconds: Positive = 5.0
    api_pool_timeout_seconds: Positive = 1.0
    api_max_body_bytes: Count = 262_144
    api_bulk_max_body_bytes: Count = 4_194_304
    jwt_secret: SecretStr = SecretStr(DEVELOPMENT_SECRET)
    jwt_algorithm: Literal["HS256", "RS256", "ES256"] = "HS256"
    jwt_jwks_url: str = ""
    jwt_jwks_fresh_seconds: Positive = 300.0
    jwt_jwks_pause_seconds: Positive = 10.0
    jwt_jwks_timeout_seconds: Positive = 3.0
    jwt_issuer: str = ""
    jwt_audience: str = ""
    jwt_leeway_seconds: Annotated[int, Field(ge=0)] = 30
    jwt_max_lifetime_seconds: Count = 90 * 86_400
    api_key_trusted_seconds: Positive = 5.0
    api_key_last_use_seconds: Positive = 60.0
    schedule_max_days: Count = 60
    devices_per_user: Count = 20
    trusted_proxies: str = ""

    # Limits of requests; 0: none
    limit_user_reads: Limit = 100
    limit_user_writes: Limit = 50
    limit_user_read_marks: Limit = 1000
    limit_user_deletes: Limit = 50
    limit_service: Limit = 1000
    limit_tenants: str = ""
    limit_sign_in_failures: Limit = 60
    limit_timeout_seconds: Positive = 0.05

    # Batches
    batch_tick_seconds: Positive = 1.0
    batch_budget_seconds: Positive = 5.0
    batch_running_limit: Count = 4
    batch_open_limit: Count = 100
    batch_max_body_bytes: Count = 8_388_608
    batch_piece_max_bytes: Count = 4_194_304
    batch_upload_max_bytes: Count = 268_435_456
    batch_abandoned_seconds: Positive = 604_800.0

    # What is personal, at rest
    encryption_keys: SecretStr = SecretStr(f"1:{DEVELOPMENT_ENCRYPTION_KEY}")
    blind_index_key: SecretStr = SecretStr(DEVELOPMENT_ENCRYPTION_KEY)

    # Preferences
    public_url: str = ""
    unsubscribe_secrets: SecretStr = SecretStr("")
    quiet_hours_spread_seconds: Annotated[float, Field(ge=0, le=3600)] = 600.0
    policy_trusted_seconds: Positive = 3.0

    # Relay
    relay_tick_seconds: Positive = 0.2
    relay_batch: Count = 2000
    relay_budget_seconds: Positive = 5.0
    relay_acknowledge_seconds: Positive = 10.0
    relay_pipe_seconds: Positive = 60.0
    marker_interval_seconds: Positive = 5.0
    marker_every_rows: Count = 5000
    rescue_hold_seconds: Positive = 120.0
    rescue_limit: Count = 5
    rescue_interval_seconds: Positive = 2.0

    # Bridge
    bridge_chunk_high: Count = 20
    bridge_chunk_normal: Count = 50
    bridge_chunk_low: Count = 100
    bridge_high_water: Count = 1000
    bridge_batch: Count = 2000
    bridge_poison_stop: Count = 100

    # Workers
    worker_window: Count = 200
    worker_batch: Count = 200
    worker_parked: Count = 50_000
    rate_wait_seconds: Positive = 90.0
    lease_margin_seconds: Positive = 30.0
    lease_minimum_seconds: Positive = 120.0
    guard_seconds: Positive = 600.0
    ordering_wait_seconds: Positive = 60.0
    countdown_horizon_seconds: Positive = 60.0
    countdown_grace_seconds: Positive = 10.0
    countdown_slots: Annotated[int, Field(ge=0)] = 1000
    visibility_timeout_seconds: Positive = 3600.0
    misconfigured_hold_seconds: Positive = 300.0
    worker_stop_seconds: Positive = 25.0

    # When to call again, and when to stop calling
    retry_base_seconds: Positive = 2.0
    retry_cap_seconds: Positive = 300.0
    retry_jitter: Annotated[float, Field(ge=0, lt=1)] = 0.25
    retry_attempts: Annotated[int, Field(ge=1, le=1000)] = 6
    unknown_window_high_seconds: Positive = 60.0
    unknown_window_seconds: Positive = 900.0
    unknown_policy: str = ""
    breaker_window_seconds: Positive = 10.0
    breaker_minimum_calls: Count = 20
    breaker_failure_ratio: Annotated[float, Field(gt=0, le=1)] = 0.5
    breaker_refused_in_a_row: Count = 5
    breaker_open_seconds: Positive = 30.0
    breaker_open_cap_seconds: Positive = 300.0

    # Streams
    stream_host: str = "127.0.0.1"
    stream_port: int = 8010
    stream_limit: Count = 5000
    stream_user_limit: Count = 10
    stream_buffer: Count = 100
    stream_heartbeat_seconds: Positive = 15.0
    stream_check_seconds: Annotated[float, Field(gt=0, le=60)] = 30.0
    stream_lifetime_seconds: Positive = 3600.0
    stream_stalled_seconds: Positive = 60.0
    stream_allowed_origins: str = ""

    # Upkeep
    retention_days: Count = 90
    partitions_ahead_days: Count = 7
    idempotency_retention_days: Count = 7
    audit_retention_days: Count = 400
    partitions_interval_seconds: Positive = 600.0
    prune_interval_seconds: Positive = 60.0
    erasure_interval_seconds: Positive = 2.0

    # Operators
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    log_format: Literal["json", "console"] = "json"
    metrics_port: Annotated[int, Field(ge=0)] = 0
    metrics_host: str = "127.0.0.1"
    prometheus_multiproc_dir: str = ""
    flower_port: int = 5555

    # `arauto up`
    maven_repository_url: str = ""

    @field_validator("unknown_policy")
    @classmethod
    def _policy_is_readable(cls, value: str) -> str:
        parse_policies(value)
        return value

    @field_validator("limit_tenants")
    @classmethod
    def _limits_are_readable(cls, value: str) -> str:
        parse_limits(value)
        return value

    @field_validator("trusted_proxies")
    @classmethod
    def _proxies_are_readable(cls, value: str) -> str:
        for part in filter(None, (piece.strip() for piece in value.split(","))):
            ip_network(part, strict=False)
        return value

    @field_validator("jwt_secret")
    @classmethod
    def _secret_is_secret(cls, value: SecretStr) -> SecretStr:
        if value.get_secret_value().lstrip().startswith(("-----BEGIN", "ssh-", "ecdsa-")):
            raise ValueError("JWT_SECRET is a key that others know: RS256 and ES256 take keys from JWT_JWKS_URL")
        return value

    @model_validator(mode="after")
    def _proves_callers(self) -> Self:
        secret = self.jwt_secret.get_secret_value()
        if self.environment == "production":
            if secret == DEVELOPMENT_SECRET:
                raise ValueError(
                    "JWT_SECRET is the development secret: set your own before ENVIRONMENT=production"
                )
            if len(secret.encode()) < _SECRET_LEAST_BYTES:
                raise ValueError(f"JWT_SECRET must be at least {_SECRET_LEAST_BYTES} bytes in production")
        if not self.signs_tokens and not _is_safe_url(self.jwt_jwks_url):
            raise ValueError(
                f"JWT_ALGORITHM={self.jwt_algorithm} needs JWT_JWKS_URL, https:// unless on this machine"
            )
        if self.signs_tokens and self.jwt_jwks_url:
            raise ValueError("JWT_JWKS_URL is set but unused: set JWT_ALGORITHM to RS256 or ES256")
        return self

    @field_validator("encryption_keys", "blind_index_key")
    @classmethod
    def _keys_are_readable(cls, value: SecretStr, info: ValidationInfo) -> SecretStr:
        read: Callable[[str], object] = parse_keys if info.field_name == "encryption_keys" else parse_key
        try:
            read(value.get_secret_value())
        except ValueError as error:
            raise ValueError(f"{str(info.field_name).upper()}: {error}") from error
        return value

    @model_validator(mode="after")
    def _seals_with_own_keys(self) -> Self:
        if self.environment == "production":
            for name in ("encryption_keys", "blind_index_key"):
                if DEVELOPMENT_ENCRYPTION_KEY in getattr(self, name).get_secret_value():
                    raise ValueError(
                        f"{name.upper()} holds the development key: set your own before ENVIRONMENT=production"
                    )
        return self

    @field_validator("public_url")
    @classmethod
    def _is_an_address(cls, value: str) -> str:
        if value and not _is_safe_url(value):
            raise ValueError("PUBLIC_URL must be https://, or http:// on this machine: links of mails go there")
        return value

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.rate_wait_seconds >= self.rescue_hold_seconds:
            raise ValueError(
                "RATE_WAIT_SECONDS must be less than RESCUE_HOLD_SECONDS, else a waiting id looks lost"
            )
        longest = self.countdown_horizon_seconds + self.rate_wait_seconds + self.lease_seconds
        if self.visibility_timeout_seconds <= longest:
            raise ValueError(
                f"VISIBILITY_TIMEOUT_SECONDS must be greater than {longest:.0f}: longest countdown + task"
            )
        return self

    @property
    def signs_tokens(self) -> bool:
        """Whether tokens are signed with our own secret, and not by an issuer."""
        return self.jwt_algorithm == "HS256"

    @property
    def link_base_url(self) -> str:
        """Where links in mails lead; empty in production until PUBLIC_URL says."""
        if self.public_url or self.environment == "production":
            return self.public_url
        return f"http://{self.api_host}:{self.api_port}"

    @property
    def link_secrets(self) -> tuple[str, ...]:
        """What unsubscribe links are made of: the first makes them, all read them."""
        own = tuple(
            filter(None, (each.strip() for each in self.unsubscribe_secrets.get_secret_value().split(",")))
        )
        return own or (self.jwt_secret.get_secret_value(),)

    @property
    def celery_broker_url(self) -> str:
        """The Redis that carries the Celery lists; it must not evict."""
        return self.broker_url or self.redis_url

    @property
    def cache_redis_url(self) -> str:
        """The Redis that caches; it may evict."""
        return self.cache_url or self.redis_url

    @property
    def sqlalchemy_url(self) -> str:
        """`database_url` with the driver named, as SQLAlchemy wants it."""
        head, _, tail = self.database_url.partition("://")
        return f"{'postgresql+psycopg2' if head in {'postgres', 'postgresql'} else head}://{tail}"

    @property
    def lease_seconds(self) -> float:
        """How long one worker may hold a delivery: longer than any adapter's deadline."""
        return max(self.provider_timeout_seconds + self.lease_margin_seconds, self.lease_minimum_seconds)

    def rate_per_second(self, channel: Channel) -> int:
        """Return the calls a second that the channel's provider allows; 0 means no limit (in-app)."""
        own = {
            Channel.EMAIL: self.email_rate_per_second,
            Channel.SMS: self.sms_rate_per_second,
            Channel.PUSH: self.push_rate_per_second,
        }
        if channel is Channel.IN_APP:
            return 0
        return own[channel] or self.provider_rate_per_second

    def provider_name(self, channel: Channel) -> str:
        """Return the name of the channel's provider, for who does not load its adapter."""
        urls = {
            Channel.EMAIL: self.email_provider_url,
            Channel.SMS: self.sms_provider_url,
            Channel.PUSH: self.push_provider_url,
        }
        if channel is Channel.IN_APP:
            return "in-app"
        if urls[channel].startswith("null:"):
            return f"null-{channel.lower()}"
        return "smtp" if channel is Channel.EMAIL else f"http-{channel.lower()}"

    def policy(self, channel: Channel, priority: Priority) -> Policy:
        """Return what happens to an UNKNOWN delivery of this channel and priority when its window is over."""
        chosen = parse_policies(self.unknown_policy)
        return chosen.get((channel, priority), default_policy(channel, priority))


def parse_policies(text: str) -> dict[tuple[Channel, Priority], Policy]:
    """Read `SMS:HIGH=hold,EMAIL:LOW=resend`; raise ValueError naming the part that cannot be read."""
    chosen: dict[tuple[Channel, Priority], Policy] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        try:
            where, policy = part.split("=")
            channel, priority = where.split(":")
            chosen[Channel(channel.strip()), Priority[priority.strip()]] = Policy(policy.strip())
        except (ValueError, KeyError) as error:
            raise ValueError(f"UNKNOWN_POLICY: {part!r} is not CHANNEL:PRIORITY=resend|hold") from error
    return chosen


def parse_limits(text: str) -> dict[str, int]:
    """Read `acme=5000,demo=200`; raise ValueError naming the part that cannot be read."""
    limits: dict[str, int] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        tenant, is_there, number = part.rpartition("=")
        if not (is_there and tenant.strip() and number.strip().isdecimal()):
            raise ValueError(f"LIMIT_TENANTS: {part!r} is not TENANT=REQUESTS_A_SECOND")
        limits[tenant.strip()] = int(number)
    return limits


def _is_safe_url(url: str) -> bool:
    """Tell whether nobody on the way can change what is fetched from `url`."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        return False
    return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(host or "")))


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


@lru_cache(maxsize=1)
def get_settings() -> Settings:
    """Return the process's settings, read once."""
    return Settings()
