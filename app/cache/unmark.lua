-- A writer is done. What was kept meanwhile, should its mark have been evicted, goes too. KEYS: entry, marks.
-- ARGV: token.
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[2], ARGV[1])
return 1
