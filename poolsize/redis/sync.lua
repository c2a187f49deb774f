-- One sync of one processor. Lengths of time are in milliseconds, and instants are this server's own: no argument is one.
--
-- KEYS: the deadlines and the sizes of the fleet, what this processor leaves behind.
-- ARGV: the processor, the size it reports, its expiry, the longest expiry of any processor, the most processors, how long
--       silent sets are kept, what the processor leaves behind ('' for nothing), how long that is kept.
-- Answer: was the processor known, do all agree, the largest size reported, the number of the living, the
--       processor's rank from 0 if all agree (else -1).
local deadlines, sizes, left = KEYS[1], KEYS[2], KEYS[3]
local me, size, expiry = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local longest, most, kept = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

-- drop removes processors whose deadlines lie in a range, at most a thousand: the others still count until the next sync.
local function drop(from, to)
  local stale = redis.call('ZRANGEBYSCORE', deadlines, from, to, 'LIMIT', 0, 1000)
  if #stale > 0 then
    redis.call('ZREM', deadlines, unpack(stale))
    redis.call('ZREM', sizes, unpack(stale))
  end
end
drop('-inf', string.format('(%.0f', now))
drop(string.format('(%.0f', now + longest), '+inf') -- nobody can have set that: this server's clock has gone back

local known = redis.call('ZSCORE', deadlines, me)
if not known and redis.call('ZCARD', deadlines) >= most then
  return redis.error_reply(string.format('FULL %d processors are in the fleet already', most))
end
redis.call('ZADD', deadlines, string.format('%.0f', now + expiry), me)
redis.call('ZADD', sizes, size, me)
local living = redis.call('ZCARD', deadlines)
if redis.call('ZCARD', sizes) > living then -- deadlines were lost, or sizes are of nobody: all report again
  redis.call('DEL', sizes)
  redis.call('ZADD', sizes, size, me)
end
redis.call('PEXPIRE', deadlines, kept)
redis.call('PEXPIRE', sizes, kept)
if ARGV[7] ~= '' then
  redis.call('SET', left, ARGV[7], 'PX', ARGV[8])
end

local least = tonumber(redis.call('ZRANGE', sizes, 0, 0, 'WITHSCORES')[2])
local largest = tonumber(redis.call('ZRANGE', sizes, -1, -1, 'WITHSCORES')[2])
local agreed = least == living and largest == living and redis.call('ZCARD', sizes) == living
local rank = agreed and redis.call('ZRANK', sizes, me) or -1
return { known and 1 or 0, agreed and 1 or 0, math.min(largest, most), living, rank }
