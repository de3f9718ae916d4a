"""Limits shared by all workers through Redis: provider rate, guard, breaker, countdown places, crash counts.

What holds for every class here:

- Each call is one round trip: a Lua script that runs whole or not at all. Scripts are registered and sent by
  their hash; a server that forgot them (restart, `SCRIPT FLUSH`) is given the text again.
- Time is the server's own clock, so a worker with a wrong clock changes nothing.
- Every key has a time to live, set by every call. A key without one, or with a content that we never write, is
  repaired by the next call, and blocks nobody for longer than its window.
- The keys of one script share a hash tag, hence a slot. A cluster-mode Redis is refused at start all the same,
  because Celery's broker cannot use one (`client.check_broker`).
- Nothing here is needed for correctness. After FLUSHALL the limiter starts with a full bucket, the breaker starts
  closed, and guards are gone: the claim in PostgreSQL alone decides who sends.
- Errors of Redis go up as `redis.RedisError`; the use case decides what they mean. The limiter's caller waits, the
  guard's gives the claim back, the breaker's takes it as closed.
"""
