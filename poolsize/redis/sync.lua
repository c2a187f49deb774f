-- One sync of one processor, or its deregistration. Lengths of time are in milliseconds, and instants are this server's own.
--
-- KEYS: the deadlines, the sizes and the silence of the fleet, what this processor leaves behind, the weights of the fleet.
-- ARGV: the processor, the size it reports (0: it leaves), its expiry, the longest expiry of any processor, the most processors,
--       how long silent sets are kept, what the processor leaves behind ('' for nothing), how long that is kept, the longest
--       outage, when this was sent as far as the processor knows, how long it waits for an answer, its weight.
-- Answer: had the processor's time not passed, do all agree, the largest size reported, the number of the living by their
--       weights, that of those before the processor if all agree (else -1), now. Now alone: nothing was done, send it again.
local deadlines, sizes, silence, left, weights = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local me, size, expiry = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local longest, most, kept, outage = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[9])
local sent, patience, weight = tonumber(ARGV[10]), tonumber(ARGV[11]), tonumber(ARGV[12])
-- Whoever counts as more than one has an entry in the weights: its weight in four digits, and its name. So those of one
-- weight stand together, in the order of the names.
local entry = string.format('%04d', weight) .. me

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

-- What a network has held back until the processor had given it up may come from one that has left since. Whoever is still there,
-- and knew this server's time wrongly or not at all, learns it and sends again.
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

-- weighed returns what the weights of processors add to their number: of all, or of those whose names come before one.
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

-- If none has synced for half an expiry, none could: this server was away, or has just become the master. Whoever lived
-- at the last sync then counts for an expiry from now on, in which it can come back.
local last, began, till = string.match(redis.call('GET', silence) or '', '^(%d+) (%d+) (%d+)$')
last, began, till = tonumber(last) or now, tonumber(began) or 0, tonumber(till) or 0
if last < now - expiry / 2 and last >= now - expiry - outage then
  began, till = last, now + expiry
end
local alive = now -- whoever's deadline is before that is dropped
if now < till and till <= now + longest then
  alive = math.min(now, began)
end
drop('-inf', string.format('(%.0f', alive))
drop(string.format('(%.0f', now + longest), '+inf') -- nobody can have set that: this server's clock has gone back

-- Entries of those that are gone go too. A version of this script without weights drops processors and not their entries:
-- each sync looks after one of them.
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
  at = at + math.max(n, 1) -- what is no weight may have none
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
if redis.call('ZCARD', sizes) > count then -- deadlines were lost, or sizes are of nobody: all report again
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
