"""Users, their devices, and content at rest that only the service can read.

What a notification says and to whom becomes one sealed value. Nothing was released with the columns that it takes
the place of, so they are dropped in the same step: there is no older version to run beside this one.

Addresses are sealed as well; the blind indexes beside them let equal ones be found. A device's token belongs to
one user of a tenant: who registers it last has it.
"""

from alembic import op

revision = "0003"
down_revision = "0002"

_TABLES = """
ALTER TABLE notification DROP COLUMN payload, DROP COLUMN title, DROP COLUMN body, DROP COLUMN recipients;
ALTER TABLE notification ADD COLUMN sealed bytea;
COMMENT ON COLUMN notification.sealed IS 'Title, body, payload and recipients as sealed JSON; NULL once erased';
ALTER TABLE delivery ADD COLUMN device_id uuid;

CREATE TABLE app_user (
    tenant_id    text NOT NULL,
    id           text NOT NULL,
    status       text NOT NULL DEFAULT 'ACTIVE',
    email        bytea,
    email_index  bytea,
    phone        bytea,
    phone_index  bytea,
    locale       text,
    time_zone    text,
    attributes   jsonb NOT NULL DEFAULT '{}',
    last_seen_at timestamptz,
    created_at   timestamptz NOT NULL DEFAULT now(),
    updated_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, id),
    CONSTRAINT ck_app_user_status CHECK (status IN ('ACTIVE', 'INACTIVE', 'SUSPENDED')),
    CONSTRAINT ck_app_user_id CHECK (char_length(id) BETWEEN 1 AND 255),
    CONSTRAINT ck_app_user_email CHECK ((email IS NULL) = (email_index IS NULL)),
    CONSTRAINT ck_app_user_phone CHECK ((phone IS NULL) = (phone_index IS NULL)),
    CONSTRAINT ck_app_user_attributes CHECK (jsonb_typeof(attributes) = 'object')
);
CREATE INDEX ix_app_user_email ON app_user (tenant_id, email_index) WHERE email_index IS NOT NULL;
CREATE INDEX ix_app_user_phone ON app_user (tenant_id, phone_index) WHERE phone_index IS NOT NULL;

CREATE TABLE device (
    tenant_id     text NOT NULL,
    user_id       text NOT NULL,
    id            uuid NOT NULL,
    platform      text NOT NULL,
    token         bytea NOT NULL,
    token_index   bytea NOT NULL,
    time_zone     text,
    is_muted      boolean NOT NULL DEFAULT false,
    registered_at timestamptz NOT NULL DEFAULT now(),
    last_seen_at  timestamptz,
    PRIMARY KEY (tenant_id, user_id, id),
    CONSTRAINT uq_device_token UNIQUE (tenant_id, token_index),
    CONSTRAINT fk_device_user FOREIGN KEY (tenant_id, user_id)
        REFERENCES app_user (tenant_id, id) ON DELETE CASCADE,
    CONSTRAINT ck_device_platform CHECK (platform IN ('IOS', 'ANDROID', 'WEB'))
);
"""

_ISOLATION = """
GRANT SELECT, INSERT, UPDATE, DELETE ON app_user, device TO arauto_api;
ALTER TABLE app_user ENABLE ROW LEVEL SECURITY;
ALTER TABLE device ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant_isolation ON app_user TO arauto_api
    USING (tenant_id = current_setting('arauto.tenant', true));
CREATE POLICY tenant_isolation ON device TO arauto_api
    USING (tenant_id = current_setting('arauto.tenant', true));
"""


def upgrade() -> None:
    """Take the open columns away and create the tables with their policies."""
    op.execute(_TABLES)
    op.execute(_ISOLATION)


def downgrade() -> None:
    """Drop the tables and put empty columns back: nothing here can open what was sealed."""
    op.execute("DROP TABLE device, app_user")
    op.execute("ALTER TABLE delivery DROP COLUMN device_id")
    op.execute(
        "ALTER TABLE notification DROP COLUMN sealed, ADD COLUMN payload jsonb NOT NULL DEFAULT '{}',"
        " ADD COLUMN title text NOT NULL DEFAULT '', ADD COLUMN body text NOT NULL DEFAULT '',"
        " ADD COLUMN recipients jsonb NOT NULL DEFAULT '{}'"
    )
