"""Reading: when a notification came into the in-app inbox and was seen, and the indexes that lists walk.

`inbox_at` is written where the in-app delivery becomes DELIVERED, in the same transaction, so that the inbox and
its unread count are answered from one table. Lists walk (tenant, user, id) or (tenant, id) backwards: the id
holds the millisecond of acceptance, so its order is the order of acceptance, with a tie broken.

The condition of the tenant's index is true of every row. It keeps the index to the statements that ask for it:
in a partition that looks empty it would cost the same as the user's, and serve a user with a walk over the whole
tenant.
"""

from alembic import op

revision = "0008"
down_revision = "0007"

_COLUMNS = """
ALTER TABLE notification ADD COLUMN inbox_at timestamptz, ADD COLUMN seen_at timestamptz;
COMMENT ON COLUMN notification.inbox_at IS 'When its in-app delivery was delivered; NULL: it is not in the inbox';
"""

_KNOWN = """
UPDATE notification n SET inbox_at = d.delivered_at
FROM delivery d WHERE d.notification_id = n.id AND d.channel = 'IN_APP' AND d.status = 'DELIVERED'
"""

_INDEXES = """
CREATE INDEX IF NOT EXISTS ix_notification_user ON notification (tenant_id, user_id, id);
CREATE INDEX ix_notification_tenant ON notification (tenant_id, id) WHERE delivery_count >= 0;
CREATE INDEX ix_notification_unread ON notification (tenant_id, user_id, id)
    WHERE inbox_at IS NOT NULL AND read_at IS NULL AND archived_at IS NULL AND deleted_at IS NULL;
"""


def upgrade() -> None:
    """Add the columns, fill in what is known, and make the indexes."""
    op.execute(_COLUMNS)
    op.execute(_KNOWN)
    op.execute(_INDEXES)


def downgrade() -> None:
    """Drop them; what was seen is forgotten."""
    op.execute("DROP INDEX IF EXISTS ix_notification_user, ix_notification_tenant, ix_notification_unread")
    op.execute("ALTER TABLE notification DROP COLUMN inbox_at, DROP COLUMN seen_at")
