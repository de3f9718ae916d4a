"""Batches from the side of upkeep: counts that are kept fresh, and what an ended batch no longer needs.

A chunk is counted in one statement, so its counts add up at any time; how often depends on its age, and one of
which nothing can change any more is not counted again.
"""

import orjson

from app.db import batch_work
from app.db.requests import Cursor

STALE = """
SELECT batch_id::text, number, low::text, high::text, tenant_id FROM batch_chunk
WHERE next_count_at <= now() ORDER BY next_count_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
"""

# Half as long again as the chunk is old, and never again once nothing of it can change: SENT can, by a receipt.
COUNTED = """
UPDATE batch_chunk
SET states = %(states)s::jsonb, counted_at = now(),
    next_count_at = CASE WHEN %(is_final)s OR made_at < now() - interval '7 days' THEN NULL
                         ELSE now() + least(greatest((now() - made_at) / 2, interval '5 seconds'),
                                            interval '1 hour') END
WHERE tenant_id = %(tenant_id)s AND batch_id = %(id)s::uuid AND number = %(number)s
"""

# Whom a list named is kept only for as long as the list is read; what came and was never started, for a while.
FORGET_SEEN = """
DELETE FROM batch_seen WHERE ctid = ANY (ARRAY(
    SELECT s.ctid FROM batch_seen s JOIN batch b ON b.tenant_id = s.tenant_id AND b.id = s.batch_id
    WHERE b.ended_at IS NOT NULL LIMIT %(limit)s))
"""
FORGET_PIECES = """
DELETE FROM batch_piece WHERE ctid = ANY (ARRAY(
    SELECT p.ctid FROM batch_piece p JOIN batch b ON b.tenant_id = p.tenant_id AND b.id = p.batch_id
    WHERE b.ended_at IS NOT NULL LIMIT %(limit)s))
"""
FORGET_PLACE = """
UPDATE batch SET after_user = '', last_user = NULL
WHERE ended_at IS NOT NULL AND (after_user <> '' OR last_user IS NOT NULL)
"""
ABANDON = """
UPDATE batch SET state = 'CANCELLED', reason = 'abandoned', ended_at = now()
WHERE state = 'UPLOADING' AND ended_at IS NULL AND created_at < now() - make_interval(secs => %(seconds)s)
"""


def recount(cursor: Cursor, limit: int) -> int:
    """Count up to `limit` chunks again whose counts are old; return how many."""
    cursor.execute(STALE, {"limit": limit})
    stale = cursor.fetchall()
    for batch_id, number, low, high, tenant_id in stale:
        states = batch_work.count(cursor, batch_id, batch_work.Range(number, low, high))
        cursor.execute(
            COUNTED,
            {
                "tenant_id": tenant_id,
                "id": batch_id,
                "number": number,
                "states": orjson.dumps(states).decode(),
                "is_final": not states.keys() & {"PENDING", "QUEUED", "SENDING", "UNKNOWN", "SENT"},
            },
        )
    return len(stale)


def forget(cursor: Cursor, limit: int, abandoned_seconds: float) -> int:
    """Delete what ended batches no longer need, at most `limit` rows of a kind; return how many."""
    cursor.execute(ABANDON, {"seconds": abandoned_seconds})
    cursor.execute(FORGET_PLACE)
    gone = 0
    for statement in (FORGET_SEEN, FORGET_PIECES):
        cursor.execute(statement, {"limit": limit})
        gone += cursor.rowcount
    return gone
