"""Templates: their names, and their versions, which never change.

A notification names the version that it was accepted with, so no version is ever removed: a template that is not
wanted any more is archived. The API's role can add versions and choose among them, and cannot change one.
"""

from alembic import op

revision = "0007"
down_revision = "0006"

_TABLES = """
CREATE TABLE template (
    tenant_id       text NOT NULL,
    name            text NOT NULL,
    category        text,
    current_version integer NOT NULL,
    latest_version  integer NOT NULL,
    digest          bytea NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    archived_at     timestamptz,
    CONSTRAINT pk_template PRIMARY KEY (tenant_id, name),
    CONSTRAINT ck_template_name CHECK (char_length(name) BETWEEN 1 AND 128),
    CONSTRAINT ck_template_current CHECK (current_version BETWEEN 1 AND latest_version)
);

CREATE TABLE template_version (
    tenant_id      text NOT NULL,
    name           text NOT NULL,
    number         integer NOT NULL,
    digest         bytea NOT NULL,
    default_locale text NOT NULL,
    variables      jsonb NOT NULL,
    bodies         jsonb NOT NULL,
    created_by     text NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pk_template_version PRIMARY KEY (tenant_id, name, number),
    CONSTRAINT ck_template_version_number CHECK (number >= 1),
    CONSTRAINT ck_template_version_digest CHECK (octet_length(digest) = 32)
);
COMMENT ON COLUMN template_version.digest IS 'SHA-256 of what the version says';
COMMENT ON COLUMN template.digest IS 'That of the current version: the same content again makes no new one';
"""

_ISOLATION = """
GRANT SELECT, INSERT, UPDATE (category, current_version, latest_version, digest, updated_at, archived_at)
    ON template TO arauto_api;
GRANT SELECT, INSERT ON template_version TO arauto_api;
ALTER TABLE template ENABLE ROW LEVEL SECURITY;
ALTER TABLE template_version ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant_isolation ON template TO arauto_api
    USING (tenant_id = current_setting('arauto.tenant', true));
CREATE POLICY tenant_isolation ON template_version TO arauto_api
    USING (tenant_id = current_setting('arauto.tenant', true));
"""


def upgrade() -> None:
    """Create the tables with their policies."""
    op.execute(_TABLES)
    op.execute(_ISOLATION)


def downgrade() -> None:
    """Drop them; notifications that wait for one of them cannot be rendered any more."""
    op.execute("DROP TABLE template_version")
    op.execute("DROP TABLE template")
