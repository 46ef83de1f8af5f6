-- Charges counters, one after the other, in one atomic step. It only moves state, by the definitions in `limit`; what a
-- counter says is computed by the caller from the state that was found here.
--
-- KEYS   one for each charge, in their order; on a cluster all of one slot. A key may occur twice.
-- ARGV   one string of packed numbers, little-endian, D standing for a double and B for a byte:
--        D  the moment, in microseconds since the epoch; 0: by this server's clock
--        B  what a refusal means for the others
--           0 nothing
--           1 if a charge is refused that may be (`enforced`), nothing is counted, the refused one neither
--           2 the same, but the refused one is counted (a fixed window of the reference)
--        then for each charge
--        B  the algorithm: 1 fixed_window, 2 sliding_window, 3 sliding_log, 4 a bucket, 5 a bucket's refund
--        B  1 if its refusal is enforced, else 0. 2: what is lent to a node (1 only): the cost is the most that is wanted,
--           and at most a sixteenth of what is left is counted
--        8 D, of which the first ones count:
--           1        limit, cost, seconds to live
--           2        limit, cost, window in seconds, jitter, the window that a refund is for or 0 for both
--           3        limit, cost, window in seconds, jitter
--           4, 5     limit, full and rest, allowed and rest, change and rest, jitter
--        A cost below zero is a refund, which a refusal does not undo; zero is a look. `full`, `allowed` and `change` are
--        in microseconds, their rests in shares of 1 / limit; `allowed` is -1 for never. The jitter is in milliseconds, and
--        the expiry is later by it.
-- Reply  one string of packed doubles: the moment; 1 if nothing was counted because of a refusal, else 0; then three for each
--        charge, of the state that it found:
--           1        count, 0, 0
--           2        number of the window, count in it, count in the one before
--           3        hits that count; time of the newest *after* the charge, or 0; of a refused cost the time of the hit
--                    that must leave for it, or 0; of one that fits the time of the newest before it, or 0
--           4, 5     moment when empty, rest, 0
-- State  1        the count, as text
--        2        DDD number of the window, count, count in the one before
--        3        a list, oldest first, of DDD time, hits, sum of all hits so far with these
--        4, 5     DD moment when empty, rest
--
-- Packed, because text costs: this way a bucket takes half of the instructions. All numbers are whole and below 2^53, so
-- doubles are exact; `..` would round them, %.0f and redis.call do not.

local call, floor, pack, unpack = redis.call, math.floor, struct.pack, struct.unpack
local most = 9007199254740991

local packed = ARGV[1]
local now, mode, at = unpack('<dB', packed)
if now == 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

local refused = false
local states = ''
-- What to put back where a refusal undoes the rest: pairs of a key, and what was there.
local undo = mode > 0 and {}

for i = 1, #KEYS do
  local key = KEYS[i]
  local a, b, c = 0, 0, 0
  local op, enforced, limit, p, q, r, s, t, u, v
  op, enforced, limit, p, q, r, s, t, u, v, at = unpack('<BBdddddddd', packed, at)
  local lends = enforced == 2
  enforced = enforced == 1

  if op >= 4 then
    local full, full_rest, allowed, allowed_rest, change, change_rest, jitter = p, q, r, s, t, u, v
    local found = call('GET', key)
    if found then a, b = unpack('<dd', found) end
    local debt, rest = a - now, b
    if rest >= limit and rest > 0 then debt, rest = debt + 1, 0 end
    if debt < 0 then debt, rest = 0, 0 end
    if debt > full or debt == full and rest > full_rest then debt, rest = full, full_rest end
    if op == 5 then
      if debt < change or debt == change and rest <= change_rest then
        debt, rest = 0, 0
      else
        debt, rest = debt - change, rest - change_rest
        if rest < 0 then debt, rest = debt - 1, rest + limit end
      end
    elseif debt < allowed or debt == allowed and rest <= allowed_rest then
      debt, rest = debt + change, rest + change_rest
      if rest >= limit and rest > 0 then debt, rest = debt + 1, rest - limit end
    elseif enforced then
      refused = true
    end
    if debt == 0 and rest == 0 then
      if found then call('DEL', key) end
    elseif now + debt ~= a or rest ~= b then
      call('PSETEX', key, string.format('%.0f', floor(debt / 1000) + 1 + jitter), pack('<dd', now + debt, rest))
    end
    if undo and op == 4 then undo[#undo + 1] = {key, found} end

  elseif op == 1 then
    local cost, seconds = p, q
    local found = call('GET', key)
    if found then a = math.min(tonumber(found), most) end
    if lends then cost = math.min(cost, math.max(floor((limit - a) / 16), 0)) end
    local fits = a + cost <= limit
    if cost < 0 then
      if a > 0 then call('SET', key, math.max(a + cost, 0), 'KEEPTTL') end
    elseif cost > 0 then
      if enforced and not fits then refused = true end
      if fits or not enforced or mode ~= 1 then
        if a + cost > most then
          call('SET', key, most, 'KEEPTTL')
        else
          call('INCRBY', key, cost)
        end
        -- Plain charges of this key see to an expiry that was lost.
        if a == 0 or not lends and call('TTL', key) == -1 then call('EXPIRE', key, seconds) end
        if undo and (fits or mode == 1) then undo[#undo + 1] = {key, found} end
      end
    end

  elseif op == 2 then
    local cost, seconds, jitter, only = p, q, r, s
    local length = seconds * 1000000
    local window = floor(now / length)
    local current, previous = 0, 0
    local found = call('GET', key)
    if found then
      a, b, c = unpack('<ddd', found)
      if a == window or a == window + 1 then
        window, current, previous = a, b, c
      elseif a + 1 == window then
        previous = b
      end
    end
    if cost < 0 then
      local taken = (only == 0 or only == window) and math.min(-cost, current) or 0
      local rest = (only == 0 or only + 1 == window) and -cost - taken or 0
      current, previous = current - taken, math.max(previous - rest, 0)
    elseif cost > 0 then
      local elapsed = floor(math.max(now - window * length, 0) / seconds)
      local estimate = current + floor((previous * (1000000 - elapsed) + 999999) / 1000000)
      if estimate + cost <= limit then
        current = current + cost
      elseif enforced then
        refused = true
      end
    end
    if current == 0 and previous == 0 then
      if found then call('DEL', key) end
    elseif window ~= a or current ~= b or previous ~= c then
      local last = window + (current > 0 and 2 or 1)
      local live = floor((last * length - now) / 1000) + 1 + jitter
      call('PSETEX', key, string.format('%.0f', live), pack('<ddd', window, current, previous))
    end
    if undo and cost > 0 then undo[#undo + 1] = {key, found} end

  else
    local cost, length, jitter = p, q * 1000000, r
    -- The first place whose number (1: time, 3: sum) is above a bound; there is one.
    local function first_above(nth, bound)
      local low, high = 0, call('LLEN', key) - 1
      while low < high do
        local middle = floor((low + high) / 2)
        local number = unpack('<d', call('LINDEX', key, middle), nth * 8 - 7)
        if number > bound then high = middle else low = middle + 1 end
      end
      return low
    end

    local moment, time, hits, sum, base = now, 0, 0, 0, 0
    local newest = call('LINDEX', key, -1)
    if newest then
      time, hits, sum = unpack('<ddd', newest)
      if time > now + length or time + length <= now then
        call('DEL', key)
        newest, time, sum = false, 0, 0
      else
        moment = math.max(now, time)
        local oldest_time, oldest_hits, oldest_sum = unpack('<ddd', call('LINDEX', key, 0))
        if oldest_time + length <= moment then
          call('LTRIM', key, first_above(1, moment - length), -1)
          oldest_time, oldest_hits, oldest_sum = unpack('<ddd', call('LINDEX', key, 0))
        end
        base = oldest_sum - oldest_hits
      end
    end
    local total = sum - base
    a, b = total, time
    if cost < 0 then
      if total + cost <= 0 then
        if newest then call('DEL', key) end
        b = 0
      else
        local place = first_above(3, sum + cost)
        local last_time, last_hits, last_sum = unpack('<ddd', call('LINDEX', key, place))
        local kept = last_hits - (last_sum - (sum + cost))
        call('LTRIM', key, 0, kept > 0 and place or place - 1)
        if kept > 0 then call('LSET', key, -1, pack('<ddd', last_time, kept, sum + cost)) end
        b = unpack('<d', call('LINDEX', key, -1))
      end
    elseif cost > 0 then
      if total + cost <= limit then
        b, c = moment, time
        if newest and time == moment then
          call('LSET', key, -1, pack('<ddd', moment, hits + cost, sum + cost))
          if undo then undo[#undo + 1] = {key, newest, 'LSET'} end
        else
          call('RPUSH', key, pack('<ddd', moment, cost, sum + cost))
          if undo then undo[#undo + 1] = {key, false, 'RPOP'} end
        end
        call('PEXPIRE', key, floor((moment + length - now) / 1000) + 1 + jitter)
      else
        if enforced then refused = true end
        if cost <= limit then
          c = unpack('<d', call('LINDEX', key, first_above(3, base + total + cost - limit - 1)))
        end
      end
    end
  end

  states = states .. pack('<ddd', a, b, c)
end

local spared = undo and refused
if spared then
  for i = #undo, 1, -1 do
    local key, found, how = undo[i][1], undo[i][2], undo[i][3]
    if how == 'RPOP' then
      call('RPOP', key)
    elseif how == 'LSET' then
      call('LSET', key, -1, found)
    elseif found then
      call('SET', key, found, 'KEEPTTL')
    else
      call('DEL', key)
    end
  end
end
return pack('<dd', now, spared and 1 or 0) .. states
