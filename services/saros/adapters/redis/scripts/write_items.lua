-- Writes items of a shard, if its vector of fences is the one the writer believes it to be.
--
-- Rules of the commit protocol: 10, absolute rows and the vector by compare-and-swap on the vector; 13, a whole shard
-- replaces all that was there.
--
-- KEYS: vector, rows, names.
-- ARGV: 1 expected vector (none: there is none yet)   2 new vector   3 whole: 1 or 0   4 bytes of a row   5 keys of
-- items, 8 bytes each   6 their rows   7 names, each an item's key (8), u32 length, little-endian, and the name.
-- Returns nothing where it was written, or the vector found, and then nothing was written.

local CHUNK = 2000 -- arguments of one HSET; Lua cannot unpack more than some 8000
local expected, vector, whole, width, keys, rows, names = unpack(ARGV)
local sub = string.sub
width = tonumber(width)

if #vector == 0 then return redis.error_reply('ERR no vector') end
if not width or width < 0 or #keys % 8 ~= 0 or #rows ~= #keys / 8 * width then
  return redis.error_reply('ERR malformed rows')
end

local found = redis.call('GET', KEYS[1]) or ''
if found ~= expected then return found end

-- Where the name at `at` ends; nothing if there is none.
local function last(at)
  if at + 11 > #names then return nil end
  local ends = at + 11 + struct.unpack('<I4', names, at + 8)
  return ends <= #names and ends or nil
end

local at = 1
while at <= #names do
  local ends = last(at)
  if not ends then return redis.error_reply('ERR malformed name at byte ' .. at - 1) end
  at = ends + 1
end

-- Writes nothing, but is refused where writes are (memory full, disk full): then it ends here, not half-way.
redis.call('SETRANGE', KEYS[1], 0, '')

local batch, count = {}, 0
local function write(key)
  if count > 0 then redis.call('HSET', key, unpack(batch, 1, count)) end
  count = 0
end
local function put(key, field, value)
  batch[count + 1], batch[count + 2] = field, value
  count = count + 2
  if count == CHUNK then write(key) end
end

if whole == '1' then redis.call('UNLINK', KEYS[2], KEYS[3]) end
local row = 1
for key = 1, #keys, 8 do
  put(KEYS[2], sub(keys, key, key + 7), sub(rows, row, row + width - 1))
  row = row + width
end
write(KEYS[2])
at = 1
while at <= #names do
  local ends = last(at)
  put(KEYS[3], sub(names, at, at + 7), sub(names, at + 12, ends))
  at = ends + 1
end
write(KEYS[3])
redis.call('SET', KEYS[1], vector)
return false
