-- One sync of one processor, or its deregistration. Times are in milliseconds, by the clock of this server.
--
-- KEYS: the deadlines, the sizes and the silence of the fleet, what this processor leaves behind, the weights of the fleet.
-- ARGV:
-- 1. the processor
-- 2. the size that it reports; 0: it leaves
-- 3. its expiry
-- 4. the longest expiry of any processor
-- 5. the most processors
-- 6. how long sets without a sync are kept
-- 7. the part of the ceiling that the processor leaves behind; '': none
-- 8. how long that is kept
-- 9. the longest outage
-- 10. the server's time when this was sent, as far as the processor knows it
-- 11. how long the processor waits for an answer
-- 12. its weight
--
-- The answer is the server's time alone if nothing was done: send it again. Otherwise it has six numbers:
-- 1. 1 if the processor was registered and its time had not passed
-- 2. 1 if all agree
-- 3. the largest size reported
-- 4. the sum of the weights of the living
-- 5. the sum of the weights of those before the processor if all agree, otherwise -1
-- 6. the server's time
local deadlines, sizes, silence, left, weights = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local me, size, expiry = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local longest, most, kept, outage = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[9])
local sent, patience, weight = tonumber(ARGV[10]), tonumber(ARGV[11]), tonumber(ARGV[12])
-- A processor of a weight above 1 has an entry in the weights: its weight in four digits, and its name. So the entries
-- of one weight are neighbours, in the order of the names.
local entry = string.format('%04d', weight) .. me

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

-- The network may have delayed this call for longer than the processor waits. By now the processor may have left. If
-- it is still there, and had the wrong time or none, it learns this server's time and sends the call again.
if math.abs(now - sent) > patience then
  return { now }
end

-- drop removes processors whose deadlines lie in a range, at most a thousand: the others still count until the next sync.
local gone = {}
local function drop(from, to)
  local stale = redis.call('ZRANGEBYSCORE', deadlines, from, to, 'LIMIT', 0, 1000)
  if #stale > 0 then
    redis.call('ZREM', deadlines, unpack(stale))
    redis.call('ZREM', sizes, unpack(stale))
  end
  for _, who in ipairs(stale) do
    gone[#gone + 1] = who
  end
end

-- weighed returns what weights above 1 add to the number of processors: of all, or of those with names before one name.
local classes = {}
local function weighed(before)
  local sum = 0
  for _, w in ipairs(classes) do
    local to = before and w .. before or string.format('%04d', w + 1)
    sum = sum + (w - 1) * redis.call('ZLEXCOUNT', weights, '[' .. w, '(' .. to)
  end
  return sum
end

if ARGV[7] ~= '' then
  redis.call('SET', left, ARGV[7], 'PX', ARGV[8])
end
if size == 0 then
  redis.call('ZREM', deadlines, me)
  redis.call('ZREM', sizes, me)
  redis.call('ZREM', weights, entry)
  if redis.call('ZCARD', deadlines) == 0 then
    redis.call('DEL', sizes, silence, weights)
  end
  return { 0, 0, 0, 0, -1, now }
end

-- If no processor has synced for half an expiry, none could: this server was away, or has just become the master. Each
-- one that lived at the last sync then counts for an expiry from now on, and can come back.
local last, began, till = string.match(redis.call('GET', silence) or '', '^(%d+) (%d+) (%d+)$')
last, began, till = tonumber(last) or now, tonumber(began) or 0, tonumber(till) or 0
if last < now - expiry / 2 and last >= now - expiry - outage then
  began, till = last, now + expiry
end
local alive = now -- processors with an earlier deadline are dropped
if now < till and till <= now + longest then
  alive = math.min(now, began)
end
drop('-inf', string.format('(%.0f', alive))
drop(string.format('(%.0f', now + longest), '+inf') -- no processor can have set that: this server's clock has gone back

-- The entries of dropped processors are removed too. A version of this script without weights drops processors and not
-- their entries: so each sync checks one entry.
local heavy = redis.call('ZCARD', weights)
if heavy > 0 then
  local e = redis.call('ZRANGE', weights, now % heavy, now % heavy)[1]
  if not redis.call('ZSCORE', deadlines, string.sub(e, 5)) then
    redis.call('ZREM', weights, e)
  end
end
local at, first = 0, heavy > 0 and redis.call('ZRANGE', weights, 0, 0)[1]
while first do
  local w = string.sub(first, 1, 4)
  classes[#classes + 1] = w
  local n = redis.call('ZLEXCOUNT', weights, '[' .. w, '(' .. string.format('%04d', w + 1))
  at = at + math.max(n, 1) -- an entry that does not begin with a weight is in no range
  first = redis.call('ZRANGE', weights, at, at)[1]
end
for _, w in ipairs(classes) do
  for _, who in ipairs(gone) do
    redis.call('ZREM', weights, w .. who)
  end
end
local extra = weighed()

local deadline = redis.call('ZSCORE', deadlines, me)
if not deadline and redis.call('ZCARD', deadlines) + extra + weight > most then
  return redis.error_reply(string.format('FULL %d processors are in the fleet already', most))
end
redis.call('SET', silence, string.format('%.0f %.0f %.0f', now, began, till), 'PX', kept)
redis.call('ZADD', deadlines, string.format('%.0f', now + expiry), me)
redis.call('ZADD', sizes, size, me)
if weight > 1 then
  extra = extra + redis.call('ZADD', weights, 0, entry) * (weight - 1)
end
local count = redis.call('ZCARD', deadlines)
local living = count + extra
if redis.call('ZCARD', sizes) > count then -- deadlines were lost, or a size has no processor: all report again
  redis.call('DEL', sizes)
  redis.call('ZADD', sizes, size, me)
end
redis.call('PEXPIRE', deadlines, kept)
redis.call('PEXPIRE', sizes, kept)
if extra > 0 then
  redis.call('PEXPIRE', weights, kept)
end

local least = tonumber(redis.call('ZRANGE', sizes, 0, 0, 'WITHSCORES')[2])
local largest = tonumber(redis.call('ZRANGE', sizes, -1, -1, 'WITHSCORES')[2])
local agreed = least == living and largest == living and redis.call('ZCARD', sizes) == count
local rank = agreed and redis.call('ZRANK', sizes, me) or -1
if agreed and extra > 0 then
  rank = rank + weighed(me)
end
local known = deadline and tonumber(deadline) >= now
return { known and 1 or 0, agreed and 1 or 0, math.min(largest, most), living, rank, now }
