"""The audit log: who did what, when and from where. It only ever grows; whole months leave it.

Partitioned by ranges of the id, one month each, so that retention drops tables and nobody ever needs to delete
a row: the triggers refuse it to everybody, the owner of the table included. The API's role may add and read
entries of its own tenant.
"""

from datetime import UTC, datetime

from alembic import op

from app.domain.ids import day_floor
from app.domain.months import month_after, month_before

revision = "0005"
down_revision = "0004"

_FIRST_MONTHS = 5

_TABLE = """
CREATE TABLE audit_entry (
    id            uuid PRIMARY KEY,
    tenant_id     text NOT NULL,
    at            timestamptz NOT NULL DEFAULT now(),
    actor         text NOT NULL,
    actor_role    text NOT NULL,
    key_id        uuid,
    action        text NOT NULL,
    resource_type text NOT NULL,
    resource_id   text NOT NULL,
    changes       jsonb NOT NULL DEFAULT '{}',
    address       text,
    trace_id      text,
    count         integer NOT NULL DEFAULT 1,
    CONSTRAINT ck_audit_entry_role CHECK (actor_role IN ('USER', 'SERVICE', 'ADMIN', 'OPERATOR', 'NONE')),
    CONSTRAINT ck_audit_entry_action CHECK (action ~ '^[a-z_]+[.][a-z_]+$'),
    CONSTRAINT ck_audit_entry_count CHECK (count > 0),
    CONSTRAINT ck_audit_entry_changes CHECK (jsonb_typeof(changes) = 'object')
) PARTITION BY RANGE (id);
CREATE INDEX ix_audit_entry_tenant ON audit_entry (tenant_id, id);
COMMENT ON COLUMN audit_entry.address IS 'The network of the client: /24 or /48, never the whole address';
COMMENT ON COLUMN audit_entry.tenant_id IS 'Empty where the tenant is not known, as of a sign-in that failed';
"""

_APPEND_ONLY = """
CREATE FUNCTION refuse_change_of_audit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit log is only added to (% on %)', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'insufficient_privilege';
END $$;
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON audit_entry
    FOR EACH ROW EXECUTE FUNCTION refuse_change_of_audit();
CREATE TRIGGER append_only_whole BEFORE TRUNCATE ON audit_entry
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change_of_audit();
"""

_ISOLATION = """
GRANT SELECT, INSERT ON audit_entry TO arauto_api;
ALTER TABLE audit_entry ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant_isolation ON audit_entry TO arauto_api
    USING (tenant_id = current_setting('arauto.tenant', true));
"""


def upgrade() -> None:
    """Create the table, what keeps it append-only, its policy, and the partitions of the first months."""
    op.execute(_TABLE)
    op.execute(_APPEND_ONLY)
    op.execute(_ISOLATION)
    month = month_before(datetime.now(UTC).date().replace(day=1))
    for _ in range(_FIRST_MONTHS):
        low, high = day_floor(month), day_floor(month_after(month))
        name = f"audit_entry_{month:%Y%m}"
        op.execute(f"CREATE TABLE {name} PARTITION OF audit_entry FOR VALUES FROM ('{low}') TO ('{high}')")
        op.execute(
            f"CREATE TRIGGER append_only_whole BEFORE TRUNCATE ON {name} "
            "FOR EACH STATEMENT EXECUTE FUNCTION refuse_change_of_audit()"
        )
        month = month_after(month)


def downgrade() -> None:
    """Drop all of it."""
    op.execute("DROP TABLE audit_entry")
    op.execute("DROP FUNCTION refuse_change_of_audit()")
