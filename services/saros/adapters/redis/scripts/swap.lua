-- Sets keys of one shard, all of them or none: only if each is what the writer believes it to be.
--
-- Rules of the commit protocol: 45 and 50, a rebase marks a shard and changes a marked one only while it is as it was
-- seen; 54, genesis, fences and vector are set and the mark goes in one write.
--
-- KEYS: those to be set. ARGV: of each, what it is (none: it is not there) and what it becomes.
-- Returns 1 where they were set, else 0.

for k, key in ipairs(KEYS) do
  if (redis.call('GET', key) or '') ~= ARGV[2 * k - 1] then return 0 end
end
for k, key in ipairs(KEYS) do redis.call('SET', key, ARGV[2 * k]) end
return 1
