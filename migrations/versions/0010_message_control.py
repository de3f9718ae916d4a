"""Message control: what a newer notification takes the place of, and how many a person gets.

A delivery carries its notification's key, so that the open ones of a key are found without a join. All indexes are
partial: a notification without a key costs none of them a write.
"""

from alembic import op

revision = "0010"
down_revision = "0003"

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


def upgrade() -> None:
    """Add the tables, columns and indexes."""
    op.execute(_SUPERSEDE)
    op.execute(_FREQUENCY)


def downgrade() -> None:
    """Take them away again."""
    op.execute("DROP TABLE frequency_hit, frequency_cap")
    op.execute("DROP INDEX ix_notification_supersede, ix_notification_superseded, ix_delivery_supersede")
    op.execute("ALTER TABLE delivery DROP COLUMN supersede_key")
