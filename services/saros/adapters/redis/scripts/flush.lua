-- Writes what records change of a partition's users, if the partition stands where the writer believes it does.
--
-- Rules of the commit protocol: 14, in the order of the log by compare-and-swap on the fence; 22, users, ledgers and
-- the fence change in one atomic write; 23, ledgers are keyed by block number, so writing twice is the same as once.
--
-- KEYS: fence and state of the partition. The keys of users are made here, as there are thousands and one blob is ten
-- times faster; they are not declared, which is sound because they have the same hash tag, and so the same slot.
-- ARGV: 1 expected fence (32 bytes; none: there is no fence yet)   2 new fence and state   3 seconds until users and
-- ledgers expire (0: never)   4, 5, 6 what keys of users, ledgers, seen lists begin with   7 operations, one after
-- the other, little-endian:
--   1 user u32 value   set the user         3 user number   remove a ledger's entry    5 user   remove the user,
--   2 user number u32 value   put an entry  4 user          remove the ledger                   ledger and seen list
--   6 user u32 value   set the user but for its row: the value's first byte, the row that is there (u16 length and so
--                      many bytes, from the second byte on), the rest of the value
-- Of a value's first byte, bit 2 says that the user has a ledger.
-- Returns nothing where it was written, or the fence found, and then nothing was written.

local FENCE = 32
local HEADER = {13, 17, 13, 9, 9, 13} -- bytes of each operation before its value: code 1, user 8, number 4, length 4
local expected, head, ttl, users, ledgers, seen, blob = unpack(ARGV)
local byte, sub, number, call, size = string.byte, string.sub, struct.unpack, redis.call, #blob

if #expected ~= 0 and #expected ~= FENCE or #head < FENCE then return redis.error_reply('ERR a fence has 32 bytes') end
if not string.match(ttl, '^%d%d?%d?%d?%d?%d?%d?%d?%d?$') then return redis.error_reply('ERR no number of seconds') end

local found = call('GETRANGE', KEYS[1], 0, FENCE - 1)
if found ~= expected then return found end

-- Where the operations end, each of them whole; anything else is refused before the first write.
local at = 1
while at <= size do
  local code = byte(blob, at)
  local header = HEADER[code]
  local after = header and at + header
  if after and after - 1 <= size and (code < 3 or code == 6) then
    local length = number('<I4', blob, after - 4)
    after = (code ~= 6 or length > 0) and after + length
  end
  if not after or after - 1 > size then return redis.error_reply('ERR malformed operation at byte ' .. at - 1) end
  at = after
end

-- Writes nothing, but is refused where writes are (memory full, disk full): then it ends here, not half-way.
call('SETRANGE', KEYS[1], 0, '')

-- A ledger lives as long as its user. Operations of a user mostly stand together, and a call costs more than what it
-- does: entries are put by one, and the time to live is set once.
local CHUNK = 2000 -- arguments of one HSET; Lua cannot unpack more than some 8000
local forever = tonumber(ttl) == 0
local user, ledger, entries, count, renewed = nil, nil, {}, 0, false
local function enter()
  if count > 0 then call('HSET', ledger, unpack(entries, 1, count)) end
  count = 0
end
local function leave()
  enter()
  if renewed and forever then call('PERSIST', ledger) elseif renewed then call('EXPIRE', ledger, ttl) end
  renewed = false
end

local function set(key, value)
  if forever then call('SET', key, value) else call('SET', key, value, 'EX', ttl) end
  renewed = renewed or (byte(value) or 0) % 4 >= 2 -- it has a ledger
end

at = 1
while at <= size do
  local code, whose = byte(blob, at), sub(blob, at + 1, at + 8)
  if whose ~= user then
    leave()
    user, ledger = whose, ledgers .. whose
  end
  if code == 2 then
    local after = at + 17 + number('<I4', blob, at + 13)
    entries[count + 1], entries[count + 2] = sub(blob, at + 9, at + 12), sub(blob, at + 17, after - 1)
    count, renewed, at = count + 2, true, after
    if count == CHUNK then enter() end
  else
    enter()
    if code == 1 then
      local after = at + 13 + number('<I4', blob, at + 9)
      set(users .. user, sub(blob, at + 13, after - 1))
      at = after
    elseif code == 6 then
      local after = at + 13 + number('<I4', blob, at + 9)
      local before, row = call('GET', users .. user), '\0\0'
      if before and #before > 2 then row = sub(before, 2, 3 + number('<I2', before, 2)) end
      set(users .. user, sub(blob, at + 13, at + 13) .. row .. sub(blob, at + 14, after - 1))
      at = after
    else
      if code == 3 then
        call('HDEL', ledger, sub(blob, at + 9, at + 12))
      elseif code == 4 then
        call('UNLINK', ledger)
      else
        call('UNLINK', users .. user, ledger, seen .. user)
      end
      at = at + HEADER[code]
    end
  end
end
leave()

-- Last: what was written before it, and is written again, ends the same.
call('SET', KEYS[1], head)
return false
