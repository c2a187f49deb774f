-- One sync of one processor, or its deregistration. Lengths of time are in milliseconds, and instants are this server's own.
--
-- KEYS: the deadlines, the sizes and the silence of the fleet, what this processor leaves behind.
-- ARGV: the processor, the size it reports (0: it leaves), its expiry, the longest expiry of any processor, the most processors,
--       how long silent sets are kept, what the processor leaves behind ('' for nothing), how long that is kept, the longest
--       outage, when this was sent as far as the processor knows, how long it waits for an answer.
-- Answer: had the processor's time not passed, do all agree, the largest size reported, the number of the living, the
--       processor's rank from 0 if all agree (else -1), now. Now alone: nothing was done, send it again.
local deadlines, sizes, silence, left = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local me, size, expiry = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local longest, most, kept, outage = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[9])
local sent, patience = tonumber(ARGV[10]), tonumber(ARGV[11])

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

-- What a network has held back until the processor had given it up may come from one that has left since. Whoever is still there,
-- and knew this server's time wrongly or not at all, learns it and sends again.
if math.abs(now - sent) > patience then
  return { now }
end

-- drop removes processors whose deadlines lie in a range, at most a thousand: the others still count until the next sync.
local function drop(from, to)
  local stale = redis.call('ZRANGEBYSCORE', deadlines, from, to, 'LIMIT', 0, 1000)
  if #stale > 0 then
    redis.call('ZREM', deadlines, unpack(stale))
    redis.call('ZREM', sizes, unpack(stale))
  end
end

if ARGV[7] ~= '' then
  redis.call('SET', left, ARGV[7], 'PX', ARGV[8])
end
if size == 0 then
  redis.call('ZREM', deadlines, me)
  redis.call('ZREM', sizes, me)
  if redis.call('ZCARD', deadlines) == 0 then
    redis.call('DEL', sizes, silence)
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

local deadline = redis.call('ZSCORE', deadlines, me)
if not deadline and redis.call('ZCARD', deadlines) >= most then
  return redis.error_reply(string.format('FULL %d processors are in the fleet already', most))
end
redis.call('SET', silence, string.format('%.0f %.0f %.0f', now, began, till), 'PX', kept)
redis.call('ZADD', deadlines, string.format('%.0f', now + expiry), me)
redis.call('ZADD', sizes, size, me)
local living = redis.call('ZCARD', deadlines)
if redis.call('ZCARD', sizes) > living then -- deadlines were lost, or sizes are of nobody: all report again
  redis.call('DEL', sizes)
  redis.call('ZADD', sizes, size, me)
end
redis.call('PEXPIRE', deadlines, kept)
redis.call('PEXPIRE', sizes, kept)

local least = tonumber(redis.call('ZRANGE', sizes, 0, 0, 'WITHSCORES')[2])
local largest = tonumber(redis.call('ZRANGE', sizes, -1, -1, 'WITHSCORES')[2])
local agreed = least == living and largest == living and redis.call('ZCARD', sizes) == living
local rank = agreed and redis.call('ZRANK', sizes, me) or -1
local known = deadline and tonumber(deadline) >= now
return { known and 1 or 0, agreed and 1 or 0, math.min(largest, most), living, rank, now }
