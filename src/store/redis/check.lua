-- Tells which commands of `charge.lua` this user may not use. Changes nothing that lasts.
--
-- KEYS   1: a key that holds a number and expires soon
-- Reply  the names of the commands refused, in capitals

local calls = {
  {'TIME'}, {'GET', KEYS[1]}, {'TTL', KEYS[1]}, {'INCRBY', KEYS[1], 0}, {'EXPIRE', KEYS[1], 60},
  {'PEXPIRE', KEYS[1], 60000}, {'SET', KEYS[1], 0, 'KEEPTTL'}, {'PSETEX', KEYS[1], 60000, 0}, {'LLEN', KEYS[1]}, {'LINDEX', KEYS[1], 0},
  {'LTRIM', KEYS[1], 0, 0}, {'LSET', KEYS[1], 0, 0}, {'RPUSH', KEYS[1], 0}, {'RPOP', KEYS[1]}, {'DEL', KEYS[1]},
}
local refused = {}
for i = 1, #calls do
  local answer = redis.pcall(unpack(calls[i]))
  local said = type(answer) == 'table' and answer.err or ''
  if string.find(said, 'NOPERM', 1, true) or string.find(said, "can't run this command", 1, true) then
    refused[#refused + 1] = calls[i][1]
  end
end
return refused
