"""Erasures: what is being removed of a deleted user, durable, so that a killed process loses no part of it.

Notifications are found by their user; where lists have that index already, it serves both.
Users who are not ACTIVE are few, so a list of them has an index of its own.
"""

from alembic import op

revision = "0004"
down_revision = "0003"

_TABLES = """
CREATE TABLE erasure (
    tenant_id     text NOT NULL,
    id            uuid NOT NULL,
    user_id       text NOT NULL,
    status        text NOT NULL DEFAULT 'RUNNING',
    after_id      uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
    pass_at       timestamptz NOT NULL DEFAULT now(),
    next_at       timestamptz NOT NULL DEFAULT now(),
    has_left      boolean NOT NULL DEFAULT false,
    notifications bigint NOT NULL DEFAULT 0,
    cancelled     bigint NOT NULL DEFAULT 0,
    requested_at  timestamptz NOT NULL DEFAULT now(),
    finished_at   timestamptz,
    PRIMARY KEY (tenant_id, id),
    CONSTRAINT ck_erasure_status CHECK (status IN ('RUNNING', 'DONE')),
    CONSTRAINT ck_erasure_finished CHECK ((status = 'DONE') = (finished_at IS NOT NULL))
);
CREATE UNIQUE INDEX uq_erasure_running ON erasure (tenant_id, user_id) WHERE status = 'RUNNING';
CREATE INDEX ix_erasure_next ON erasure (next_at) WHERE status = 'RUNNING';
COMMENT ON COLUMN erasure.user_id IS 'Who is erased; once DONE the pseudonym that took the place of the id';
COMMENT ON COLUMN erasure.has_left IS 'Whether the pass that runs left deliveries behind that are in flight';
CREATE INDEX IF NOT EXISTS ix_notification_user ON notification (tenant_id, user_id, id);
CREATE INDEX ix_app_user_status ON app_user (tenant_id, status, id) WHERE status <> 'ACTIVE';
"""

_ISOLATION = """
GRANT SELECT, INSERT, UPDATE (requested_at, pass_at, next_at, after_id, has_left) ON erasure TO arauto_api;
ALTER TABLE erasure ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant_isolation ON erasure TO arauto_api
    USING (tenant_id = current_setting('arauto.tenant', true));
"""


def upgrade() -> None:
    """Create the table with its policy, and the indexes."""
    op.execute(_TABLES)
    op.execute(_ISOLATION)


def downgrade() -> None:
    """Drop what only this step made; an erasure that runs is forgotten where it stands."""
    op.execute("DROP INDEX ix_app_user_status")
    op.execute("DROP TABLE erasure")
