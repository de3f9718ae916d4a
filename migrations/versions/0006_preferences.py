"""What tenants and people say about messages: policies, preferences, and addresses that nothing is sent to.

A person's choices are one row, so the worker reads them with one look-up before each send. There is no foreign key
to the users: a person may choose before, or without ever, being one of the tenant's stored users.
"""

from alembic import op

revision = "0006"
down_revision = "0005"

_TABLES = """
CREATE TABLE tenant_policy (
    tenant_id   text PRIMARY KEY,
    time_zone   text NOT NULL DEFAULT 'UTC',
    locale      text NOT NULL DEFAULT 'en',
    quiet_start time NOT NULL DEFAULT '22:00',
    quiet_end   time NOT NULL DEFAULT '08:00',
    channels    jsonb NOT NULL DEFAULT '{}',
    quiet       jsonb NOT NULL DEFAULT '{}',
    updated_at  timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT ck_tenant_policy_window CHECK (quiet_start <> quiet_end)
);
CREATE TABLE category_policy (
    tenant_id    text NOT NULL,
    name         text NOT NULL,
    is_mandatory boolean,
    channels     jsonb NOT NULL DEFAULT '{}',
    quiet        jsonb NOT NULL DEFAULT '{}',
    created_at   timestamptz NOT NULL DEFAULT now(),
    updated_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, name),
    CONSTRAINT ck_category_policy_name CHECK (char_length(name) BETWEEN 1 AND 64 AND name <> '*')
);
CREATE TABLE preference_set (
    tenant_id   text NOT NULL,
    user_id     text NOT NULL,
    choices     jsonb NOT NULL DEFAULT '{}',
    quiet_hours jsonb,
    revision    bigint NOT NULL DEFAULT 1,
    updated_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, user_id),
    CONSTRAINT ck_preference_set_choices CHECK (jsonb_typeof(choices) = 'object')
);
CREATE TABLE suppression (
    tenant_id     text NOT NULL,
    channel       text NOT NULL,
    address_index bytea NOT NULL,
    id            uuid NOT NULL,
    reason        text NOT NULL,
    source        text NOT NULL,
    note          text,
    masked        text NOT NULL,
    address       bytea NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, channel, address_index),
    CONSTRAINT uq_suppression_id UNIQUE (tenant_id, id),
    CONSTRAINT ck_suppression_channel CHECK (channel IN ('PUSH', 'EMAIL', 'SMS')),
    CONSTRAINT ck_suppression_reason CHECK (reason IN ('BOUNCE', 'COMPLAINT', 'OPT_OUT', 'MANUAL'))
);
COMMENT ON COLUMN category_policy.is_mandatory IS 'NULL: what the service says about a category of this name';
COMMENT ON COLUMN suppression.address IS 'Sealed for the context suppression, tenant, channel, id';
ALTER TABLE notification ADD COLUMN scheduled_local jsonb;
"""

_ISOLATION = """
GRANT SELECT, INSERT, UPDATE, DELETE ON tenant_policy, category_policy, preference_set, suppression TO arauto_api;
ALTER TABLE tenant_policy ENABLE ROW LEVEL SECURITY;
ALTER TABLE category_policy ENABLE ROW LEVEL SECURITY;
ALTER TABLE preference_set ENABLE ROW LEVEL SECURITY;
ALTER TABLE suppression ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant_isolation ON tenant_policy TO arauto_api
    USING (tenant_id = current_setting('arauto.tenant', true));
CREATE POLICY tenant_isolation ON category_policy TO arauto_api
    USING (tenant_id = current_setting('arauto.tenant', true));
CREATE POLICY tenant_isolation ON preference_set TO arauto_api
    USING (tenant_id = current_setting('arauto.tenant', true));
CREATE POLICY tenant_isolation ON suppression TO arauto_api
    USING (tenant_id = current_setting('arauto.tenant', true));
"""


def upgrade() -> None:
    """Create the tables with their policies."""
    op.execute(_TABLES)
    op.execute(_ISOLATION)


def downgrade() -> None:
    """Drop them: everybody gets everything again."""
    op.execute("ALTER TABLE notification DROP COLUMN scheduled_local")
    op.execute("DROP TABLE suppression, preference_set, category_policy, tenant_policy")
