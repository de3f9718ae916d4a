"""API keys of product services: what is stored of them, and who may see it.

The API's role sees its own tenant's keys, and, while somebody who showed a key is not yet known to belong to any
tenant, the one key of that prefix. It may end a key, and change nothing else of it.
"""

from alembic import op

revision = "0002"
down_revision = "0001"

_TABLE = """
CREATE TABLE api_key (
    id           uuid PRIMARY KEY,
    tenant_id    text NOT NULL,
    prefix       text NOT NULL,
    digest       bytea NOT NULL,
    name         text NOT NULL,
    scopes       text[] NOT NULL,
    created_by   text NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    expires_at   timestamptz,
    revoked_at   timestamptz,
    replaced_by  uuid,
    last_used_at timestamptz,
    CONSTRAINT uq_api_key_prefix UNIQUE (prefix),
    CONSTRAINT ck_api_key_prefix CHECK (prefix <> ''),
    CONSTRAINT ck_api_key_digest CHECK (octet_length(digest) = 32),
    CONSTRAINT ck_api_key_name CHECK (char_length(name) BETWEEN 1 AND 64),
    CONSTRAINT ck_api_key_scopes CHECK (cardinality(scopes) > 0),
    CONSTRAINT ck_api_key_replaced CHECK (replaced_by <> id),
    CONSTRAINT ck_api_key_overlap CHECK (replaced_by IS NULL OR expires_at IS NOT NULL)
);
CREATE INDEX ix_api_key_tenant ON api_key (tenant_id, id);
COMMENT ON COLUMN api_key.digest IS 'SHA-256 of the whole key, which is shown once and stored nowhere';
"""

_ISOLATION = """
GRANT SELECT, INSERT, UPDATE (expires_at, revoked_at, replaced_by) ON api_key TO arauto_api;
ALTER TABLE api_key ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant_isolation ON api_key TO arauto_api
    USING (tenant_id = current_setting('arauto.tenant', true));
CREATE POLICY shown_key ON api_key FOR SELECT TO arauto_api
    USING (prefix = current_setting('arauto.key_prefix', true));
"""


def upgrade() -> None:
    """Create the table with its policies."""
    op.execute(_TABLE)
    op.execute(_ISOLATION)


def downgrade() -> None:
    """Drop it; every key ends."""
    op.execute("DROP TABLE api_key")
