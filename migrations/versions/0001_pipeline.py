"""The pipeline: notification, delivery and attempt by day, idempotency keys, flow marks, the ledger.

Range partitions on the id itself: the day is inside a UUIDv7, so a look-up by id reads one partition and the
primary key needs no second column. There are no foreign keys between partitioned tables, because retention drops
whole days.
"""

from datetime import UTC, datetime, timedelta

from alembic import op

from app.domain.ids import day_floor

revision = "0001"
down_revision = None

_FIRST_DAYS = 3

_TABLES = """
CREATE TABLE notification (
    id               uuid PRIMARY KEY,
    tenant_id        text NOT NULL,
    user_id          text NOT NULL,
    category         text NOT NULL,
    priority         smallint NOT NULL,
    template         text,
    template_version integer,
    locale           text,
    payload          jsonb NOT NULL DEFAULT '{}',
    title            text NOT NULL DEFAULT '',
    body             text NOT NULL DEFAULT '',
    recipients       jsonb NOT NULL DEFAULT '{}',
    metadata         jsonb NOT NULL DEFAULT '{}',
    suppressed       jsonb NOT NULL DEFAULT '[]',
    decision         jsonb NOT NULL DEFAULT '{}',
    supersede_key    text,
    delivery_count   smallint NOT NULL,
    scheduled_at     timestamptz,
    expires_at       timestamptz,
    created_at       timestamptz NOT NULL DEFAULT now(),
    read_at          timestamptz,
    archived_at      timestamptz,
    deleted_at       timestamptz,
    CONSTRAINT ck_notification_priority CHECK (priority BETWEEN 0 AND 2),
    CONSTRAINT ck_notification_delivery_count CHECK (delivery_count >= 0)
) PARTITION BY RANGE (id);

CREATE TABLE delivery (
    id                  uuid PRIMARY KEY,
    notification_id     uuid NOT NULL,
    tenant_id           text NOT NULL,
    user_id             text NOT NULL,
    channel             text NOT NULL,
    priority            smallint NOT NULL,
    status              text NOT NULL DEFAULT 'PENDING',
    attempts            smallint NOT NULL DEFAULT 0,
    attempts_allowed    smallint NOT NULL DEFAULT 6,
    next_attempt_at     timestamptz NOT NULL DEFAULT now(),
    relay_at            timestamptz NOT NULL DEFAULT now(),
    published_seq       bigint,
    lease_token         bigint NOT NULL DEFAULT 0,
    lease_until         timestamptz,
    uncertain           boolean NOT NULL DEFAULT false,
    rescues             smallint NOT NULL DEFAULT 0,
    cancel_requested_at timestamptz,
    early_receipt       jsonb,
    provider            text,
    provider_message_id text,
    error_code          text,
    last_error          text,
    sent_at             timestamptz,
    delivered_at        timestamptz,
    expires_at          timestamptz,
    created_at          timestamptz NOT NULL DEFAULT now(),
    updated_at          timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT ck_delivery_status CHECK (status IN ('PENDING', 'QUEUED', 'SENDING', 'SENT', 'DELIVERED',
                                                    'FAILED', 'UNKNOWN', 'CANCELLED', 'EXPIRED')),
    CONSTRAINT ck_delivery_channel CHECK (channel IN ('PUSH', 'EMAIL', 'SMS', 'IN_APP')),
    CONSTRAINT ck_delivery_priority CHECK (priority BETWEEN 0 AND 2),
    CONSTRAINT ck_delivery_attempts CHECK (attempts >= 0 AND rescues >= 0 AND lease_token >= 0),
    CONSTRAINT ck_delivery_lease CHECK ((status = 'SENDING') = (lease_until IS NOT NULL)),
    CONSTRAINT ck_delivery_claimed CHECK (status <> 'SENDING' OR lease_token > 0),
    CONSTRAINT ck_delivery_queued CHECK (status <> 'QUEUED' OR published_seq IS NOT NULL),
    CONSTRAINT ck_delivery_sent CHECK (status <> 'SENT' OR sent_at IS NOT NULL),
    CONSTRAINT ck_delivery_delivered CHECK (status <> 'DELIVERED' OR delivered_at IS NOT NULL),
    CONSTRAINT ck_delivery_unknown CHECK (status <> 'UNKNOWN' OR uncertain),
    CONSTRAINT ck_delivery_failed CHECK (status <> 'FAILED' OR error_code IS NOT NULL)
) PARTITION BY RANGE (id);

CREATE INDEX ix_delivery_notification ON delivery (notification_id);
CREATE INDEX ix_delivery_due ON delivery (priority, channel, relay_at) WHERE status = 'PENDING';
CREATE INDEX ix_delivery_queued ON delivery (priority, published_seq) INCLUDE (channel)
    WHERE status = 'QUEUED';
CREATE INDEX ix_delivery_lease ON delivery (lease_until) WHERE status = 'SENDING';
CREATE INDEX ix_delivery_unknown ON delivery (next_attempt_at) WHERE status = 'UNKNOWN';
CREATE INDEX ix_delivery_expiry ON delivery (expires_at)
    WHERE expires_at IS NOT NULL AND status IN ('PENDING', 'QUEUED');

CREATE TABLE attempt (
    delivery_id uuid NOT NULL,
    number      smallint NOT NULL,
    tenant_id   text NOT NULL,
    provider    text NOT NULL,
    outcome     text NOT NULL,
    code        text,
    detail      text,
    started_at  timestamptz NOT NULL,
    duration_ms integer NOT NULL,
    PRIMARY KEY (delivery_id, number),
    CONSTRAINT ck_attempt_number CHECK (number > 0),
    CONSTRAINT ck_attempt_outcome CHECK (outcome IN ('accepted', 'retry', 'throttled', 'rejected',
                                                     'misconfigured', 'unknown', 'worker_lost'))
) PARTITION BY RANGE (delivery_id);

CREATE TABLE idempotency_key (
    tenant_id       text NOT NULL,
    route           text NOT NULL,
    key             text NOT NULL,
    fingerprint     bytea NOT NULL,
    notification_id uuid NOT NULL,
    answer          text NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, route, key)
);
CREATE INDEX ix_idempotency_key_created ON idempotency_key (created_at);

CREATE SEQUENCE flow_seq;
CREATE TABLE flow_mark (
    topic     text NOT NULL,
    partition integer NOT NULL,
    seq       bigint NOT NULL,
    passed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (topic, partition, seq)
);
CREATE INDEX ix_flow_mark_passed ON flow_mark (passed_at);

CREATE TABLE ledger (
    tenant_id text NOT NULL,
    hour      timestamptz NOT NULL,
    status    text NOT NULL,
    count     bigint NOT NULL,
    PRIMARY KEY (tenant_id, hour, status)
);
COMMENT ON TABLE ledger IS 'Sums of dropped partitions; status ACCEPTED is what was promised, the rest are states';
"""

_ISOLATION = """
DO $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'arauto_api') THEN
        CREATE ROLE arauto_api NOLOGIN;
    END IF;
EXCEPTION WHEN duplicate_object OR unique_violation THEN
    NULL;  -- another database of this server was migrated in the same moment
END $$;
GRANT arauto_api TO CURRENT_USER;
GRANT SELECT, INSERT, UPDATE ON notification, delivery TO arauto_api;
GRANT SELECT ON attempt TO arauto_api;
GRANT SELECT, INSERT ON idempotency_key TO arauto_api;
ALTER TABLE notification ENABLE ROW LEVEL SECURITY;
ALTER TABLE delivery ENABLE ROW LEVEL SECURITY;
ALTER TABLE attempt ENABLE ROW LEVEL SECURITY;
ALTER TABLE idempotency_key ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant_isolation ON notification TO arauto_api
    USING (tenant_id = current_setting('arauto.tenant', true));
CREATE POLICY tenant_isolation ON delivery TO arauto_api
    USING (tenant_id = current_setting('arauto.tenant', true));
CREATE POLICY tenant_isolation ON attempt TO arauto_api
    USING (tenant_id = current_setting('arauto.tenant', true));
CREATE POLICY tenant_isolation ON idempotency_key TO arauto_api
    USING (tenant_id = current_setting('arauto.tenant', true));
"""


def upgrade() -> None:
    """Create the tables, the API's role with its policies, and the partitions of the first days."""
    op.execute(_TABLES)
    op.execute(_ISOLATION)
    today = datetime.now(UTC).date()
    for offset in range(-1, _FIRST_DAYS):
        day = today + timedelta(days=offset)
        low, high = day_floor(day), day_floor(day + timedelta(days=1))
        for table in ("notification", "delivery", "attempt"):
            op.execute(
                f"CREATE TABLE {table}_{day:%Y%m%d} PARTITION OF {table} FOR VALUES FROM ('{low}') TO ('{high}')"
            )


def downgrade() -> None:
    """Drop all of it; the role stays, since other databases of the server may use it."""
    op.execute("DROP TABLE notification, delivery, attempt, idempotency_key, flow_mark, ledger")
    op.execute("DROP SEQUENCE flow_seq")
