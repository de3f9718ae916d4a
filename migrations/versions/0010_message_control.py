"""Message control: what a newer notification takes the place of, and how many a person gets.

A delivery carries its notification's key, so that the open ones of a key are found without a join. All indexes are
partial: a notification without a key costs none of them a write.
"""

from alembic import op

revision = "0010"
down_revision = "0009"

_SUPERSEDE = """
ALTER TABLE delivery ADD COLUMN supersede_key text;
CREATE INDEX ix_delivery_supersede ON delivery (tenant_id, user_id, supersede_key)
    WHERE supersede_key IS NOT NULL AND status IN ('PENDING', 'QUEUED', 'SENDING', 'UNKNOWN');
CREATE INDEX ix_notification_supersede ON notification (tenant_id, user_id, supersede_key, id)
    WHERE supersede_key IS NOT NULL;
CREATE INDEX ix_notification_superseded ON notification (tenant_id, user_id, supersede_key)
    WHERE supersede_key IS NOT NULL AND archived_at IS NULL AND read_at IS NULL;
"""

_FREQUENCY = """
CREATE TABLE frequency_cap (
    tenant_id      text NOT NULL,
    category       text NOT NULL,
    most           integer NOT NULL,
    window_seconds integer NOT NULL,
    channels       text[] NOT NULL,
    updated_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, category),
    CONSTRAINT ck_frequency_cap_most CHECK (most BETWEEN 0 AND 1000),
    CONSTRAINT ck_frequency_cap_window CHECK (window_seconds BETWEEN 1 AND 2592000),
    CONSTRAINT ck_frequency_cap_channels CHECK (channels <@ '{PUSH,EMAIL,SMS,IN_APP}' AND channels <> '{}')
);
CREATE TABLE frequency_hit (
    tenant_id       text NOT NULL,
    user_id         text NOT NULL,
    category        text NOT NULL,
    notification_id uuid NOT NULL,
    at              timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, user_id, category, notification_id)
);
CREATE INDEX ix_frequency_hit_at ON frequency_hit (at);
GRANT SELECT, INSERT, UPDATE, DELETE ON frequency_cap, frequency_hit TO arauto_api;
ALTER TABLE frequency_cap ENABLE ROW LEVEL SECURITY;
ALTER TABLE frequency_hit ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant_isolation ON frequency_cap TO arauto_api
    USING (tenant_id = current_setting('arauto.tenant', true));
CREATE POLICY tenant_isolation ON frequency_hit TO arauto_api
    USING (tenant_id = current_setting('arauto.tenant', true));
"""

# The trigger stands where every writer passes: eight statements end a delivery, and one that forgot to tell would
# leave a chain waiting. It only inserts, so it waits for nobody and cannot close a circle of locks.
_FALLBACK = """
ALTER TABLE delivery ADD COLUMN fallback_step smallint;
CREATE TABLE fallback_step (
    tenant_id       text NOT NULL,
    notification_id uuid NOT NULL,
    step            smallint NOT NULL,
    user_id         text NOT NULL,
    channel         text NOT NULL,
    status          text NOT NULL DEFAULT 'WAITING',
    reason          text,
    delivery_ids    uuid[] NOT NULL,
    device_ids      uuid[] NOT NULL,
    after_seconds   double precision,
    check_at        timestamptz,
    decided_at      timestamptz,
    supersede_key   text,
    PRIMARY KEY (tenant_id, notification_id, step),
    CONSTRAINT ck_fallback_step_status CHECK (status IN ('WAITING', 'MADE', 'DROPPED')),
    CONSTRAINT ck_fallback_step_decided CHECK ((status = 'WAITING') = (decided_at IS NULL)),
    CONSTRAINT ck_fallback_step_deliveries CHECK (cardinality(delivery_ids) > 0
                                                  AND cardinality(delivery_ids) = cardinality(device_ids))
);
COMMENT ON COLUMN fallback_step.delivery_ids IS 'Minted with the notification, so that they lie in its partition';
CREATE INDEX ix_fallback_step_check ON fallback_step (check_at) WHERE status = 'WAITING' AND check_at IS NOT NULL;
CREATE INDEX ix_fallback_step_notification ON fallback_step (notification_id);
CREATE INDEX ix_fallback_step_supersede ON fallback_step (tenant_id, user_id, supersede_key)
    WHERE status = 'WAITING' AND supersede_key IS NOT NULL;
CREATE TABLE fallback_wake (
    tenant_id       text NOT NULL,
    id              bigint GENERATED ALWAYS AS IDENTITY,
    notification_id uuid NOT NULL,
    step            smallint NOT NULL,
    PRIMARY KEY (tenant_id, id)
);
CREATE FUNCTION wake_fallback() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO fallback_wake (tenant_id, notification_id, step)
    VALUES (NEW.tenant_id, NEW.notification_id, NEW.fallback_step + 1);
    RETURN NULL;
END $$;
CREATE TRIGGER tr_delivery_fallback AFTER UPDATE OF status ON delivery FOR EACH ROW
    WHEN (NEW.fallback_step IS NOT NULL AND NEW.status <> OLD.status
          AND NEW.status IN ('DELIVERED', 'FAILED', 'CANCELLED', 'EXPIRED'))
    EXECUTE FUNCTION wake_fallback();
GRANT SELECT, INSERT, UPDATE, DELETE ON fallback_step TO arauto_api;
GRANT INSERT ON fallback_wake TO arauto_api;
ALTER TABLE fallback_step ENABLE ROW LEVEL SECURITY;
ALTER TABLE fallback_wake ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant_isolation ON fallback_step TO arauto_api
    USING (tenant_id = current_setting('arauto.tenant', true));
CREATE POLICY tenant_isolation ON fallback_wake TO arauto_api
    USING (tenant_id = current_setting('arauto.tenant', true));
"""

_ORDER = """
ALTER TABLE delivery ADD COLUMN order_at timestamptz;
COMMENT ON COLUMN delivery.order_at IS 'When an ordered delivery was first due; NULL: not ordered';
CREATE INDEX ix_delivery_order ON delivery (tenant_id, user_id, channel, order_at)
    WHERE order_at IS NOT NULL AND status IN ('PENDING', 'QUEUED', 'SENDING', 'UNKNOWN');
"""


def upgrade() -> None:
    """Add the tables, columns and indexes."""
    op.execute(_SUPERSEDE)
    op.execute(_FREQUENCY)
    op.execute(_FALLBACK)
    op.execute(_ORDER)


def downgrade() -> None:
    """Take them away again."""
    op.execute("DROP INDEX ix_delivery_order")
    op.execute("ALTER TABLE delivery DROP COLUMN order_at")
    op.execute("DROP TRIGGER tr_delivery_fallback ON delivery")
    op.execute("DROP FUNCTION wake_fallback")
    op.execute("DROP TABLE fallback_wake, fallback_step, frequency_hit, frequency_cap")
    op.execute("ALTER TABLE delivery DROP COLUMN fallback_step")
    op.execute("DROP INDEX ix_notification_supersede, ix_notification_superseded, ix_delivery_supersede")
    op.execute("ALTER TABLE delivery DROP COLUMN supersede_key")
