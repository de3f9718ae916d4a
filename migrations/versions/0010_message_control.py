"""Message control: what a newer notification takes the place of.

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


def upgrade() -> None:
    """Add the columns and indexes."""
    op.execute(_SUPERSEDE)


def downgrade() -> None:
    """Take them away again."""
    op.execute("DROP INDEX ix_notification_supersede, ix_notification_superseded, ix_delivery_supersede")
    op.execute("ALTER TABLE delivery DROP COLUMN supersede_key")
