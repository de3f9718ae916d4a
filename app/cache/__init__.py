"""Cache-aside in the Redis of CACHE_URL: what is read much more often than it changes.

A read asks the cache, then the database, and leaves what it found there. What a write changes, it takes out. The
race between the two is what this package is about; `app.cache.cache` has the argument that it cannot leave an old
value behind. Nothing here is needed for an answer to be right: a Redis that is away, slow, full or wiped costs a
look into the database.

Values are bytes, made by the namespace that owns them. What is personal is cached in its sealed form, never open.
"""
