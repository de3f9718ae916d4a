"""Batches: one message to many people, expanded in the background chunk by chunk.

What a batch says is sealed once, on the batch. A notification that it made holds an empty `sealed` where it adds
nothing of its own; NULL still means erased. A chunk names the range of the ids that it minted, all in one
millisecond, so whatever is asked about a batch later reads ranges of primary keys, and `notification.batch_id`
needs no index.
"""

from alembic import op

revision = "0009"
down_revision = "0008"

_TABLES = """
ALTER TABLE notification ADD COLUMN batch_id uuid;
COMMENT ON COLUMN notification.sealed IS
    'Title, body, payload and recipients as sealed JSON; empty: all of it is on the batch; NULL once erased';

CREATE TABLE batch (
    tenant_id        text NOT NULL,
    id               uuid NOT NULL,
    state            text NOT NULL,
    reason           text,
    source           text NOT NULL,
    category         text NOT NULL,
    priority         smallint NOT NULL,
    channels         text[] NOT NULL,
    template         text,
    template_version integer,
    sealed           bytea NOT NULL,
    metadata         jsonb NOT NULL DEFAULT '{}',
    segment          jsonb,
    scheduled_at     timestamptz,
    expires_in       integer,
    expires_at       timestamptz,
    canary           jsonb,
    canary_state     text NOT NULL DEFAULT 'NONE',
    canary_until     timestamptz,
    total            bigint,
    read_count       bigint NOT NULL DEFAULT 0,
    made_count       bigint NOT NULL DEFAULT 0,
    delivery_count   bigint NOT NULL DEFAULT 0,
    rejected_count   bigint NOT NULL DEFAULT 0,
    suppressed       jsonb NOT NULL DEFAULT '{}',
    chunk_count      integer NOT NULL DEFAULT 0,
    last_millisecond bigint NOT NULL DEFAULT 0,
    after_user       text NOT NULL DEFAULT '',
    last_user        text,
    upload_format    text,
    upload_columns   text[],
    upload_length    bigint NOT NULL DEFAULT 0,
    read_offset      bigint NOT NULL DEFAULT 0,
    created_by       text NOT NULL,
    created_at       timestamptz NOT NULL DEFAULT now(),
    started_at       timestamptz,
    served_at        timestamptz,
    expanded_at      timestamptz,
    ended_at         timestamptz,
    PRIMARY KEY (tenant_id, id),
    CONSTRAINT ck_batch_state CHECK (state IN ('UPLOADING', 'ACCEPTED', 'RUNNING', 'PAUSED', 'CANARY_WAIT',
                                               'CANCELLING', 'CANCELLED', 'COMPLETED', 'FAILED')),
    CONSTRAINT ck_batch_source CHECK (source IN ('RECIPIENTS', 'SEGMENT', 'UPLOAD')),
    CONSTRAINT ck_batch_segment CHECK ((source = 'SEGMENT') = (segment IS NOT NULL)),
    CONSTRAINT ck_batch_upload CHECK ((source = 'SEGMENT') = (upload_format IS NULL)),
    CONSTRAINT ck_batch_format CHECK (upload_format IN ('csv', 'ndjson')),
    CONSTRAINT ck_batch_priority CHECK (priority BETWEEN 0 AND 2),
    CONSTRAINT ck_batch_canary CHECK (canary_state IN ('NONE', 'AHEAD', 'WAITING', 'PASSED', 'STOPPED', 'WAIVED')),
    CONSTRAINT ck_batch_counts CHECK (made_count + rejected_count = read_count),
    CONSTRAINT ck_batch_ended CHECK ((state IN ('CANCELLED', 'COMPLETED', 'FAILED')) = (ended_at IS NOT NULL)),
    CONSTRAINT ck_batch_paused CHECK (state <> 'PAUSED' OR reason IS NOT NULL)
);
CREATE INDEX ix_batch_open ON batch (tenant_id) WHERE ended_at IS NULL;
CREATE INDEX ix_batch_ended ON batch (ended_at) WHERE ended_at IS NOT NULL;
COMMENT ON TABLE batch IS 'The row lock is the lease of whoever expands it: counts and cursor move with the rows';

CREATE TABLE batch_chunk (
    tenant_id      text NOT NULL,
    batch_id       uuid NOT NULL,
    number         integer NOT NULL,
    low            uuid NOT NULL,
    high           uuid NOT NULL,
    made_count     integer NOT NULL,
    delivery_count integer NOT NULL,
    states         jsonb NOT NULL,
    made_at        timestamptz NOT NULL DEFAULT now(),
    counted_at     timestamptz NOT NULL DEFAULT now(),
    next_count_at  timestamptz,
    cancelled_at   timestamptz,
    PRIMARY KEY (tenant_id, batch_id, number),
    CONSTRAINT ck_batch_chunk_range CHECK (low < high)
);
CREATE INDEX ix_batch_chunk_count ON batch_chunk (next_count_at) WHERE next_count_at IS NOT NULL;

CREATE TABLE batch_piece (
    tenant_id text NOT NULL,
    batch_id  uuid NOT NULL,
    start     bigint NOT NULL,
    length    integer NOT NULL,
    whole     integer,
    digest    bytea,
    sealed    bytea NOT NULL,
    PRIMARY KEY (tenant_id, batch_id, start),
    CONSTRAINT ck_batch_piece_length CHECK (length > 0),
    CONSTRAINT ck_batch_piece_digest CHECK ((whole IS NULL) = (digest IS NULL))
);
COMMENT ON TABLE batch_piece IS 'What was uploaded and is not read yet; the first part of a piece has a digest';

CREATE TABLE batch_seen (
    tenant_id text NOT NULL,
    batch_id  uuid NOT NULL,
    recipient bytea NOT NULL,
    PRIMARY KEY (tenant_id, batch_id, recipient)
);
COMMENT ON TABLE batch_seen IS 'Blind indexes of whom a list has named already; emptied when the batch has ended';

CREATE TABLE batch_error (
    tenant_id text NOT NULL,
    batch_id  uuid NOT NULL,
    row       bigint NOT NULL,
    user_id   text,
    code      text NOT NULL,
    message   text NOT NULL,
    PRIMARY KEY (tenant_id, batch_id, row)
);
"""

_MINE = ("batch", "batch_chunk", "batch_piece", "batch_seen", "batch_error")


def upgrade() -> None:
    """Create the tables with their policies."""
    op.execute(_TABLES)
    for table in _MINE:
        op.execute(
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO arauto_api;"
            f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;"
            f"CREATE POLICY tenant_isolation ON {table} TO arauto_api"
            " USING (tenant_id = current_setting('arauto.tenant', true));"
        )


def downgrade() -> None:
    """Drop them; what was expanded is sent as far as it says something of its own."""
    op.execute(f"DROP TABLE {', '.join(_MINE)}")
    op.execute("ALTER TABLE notification DROP COLUMN batch_id")
