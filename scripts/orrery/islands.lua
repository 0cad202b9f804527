--- Parts of methods in which islands train on their own and meet now and then (o.strategy.islands). An outer
-- program sees whole arrays: the first dim of each has an element for each island.
local native = require "orrery.native"

local islands = {}

local function totals(name, shape) return native.state { name = "islands." .. name, shape = shape } end

--- islands.count(update): at the end of a step's update. Adds what the step has counted (tokens) and its loss to
-- those of the round.
function islands.count(update)
  local count, loss = totals("count", {}), totals("loss", {})
  update:set(count, count + update:count())
  update:set(loss, loss + update:loss())
end

--- Returns along(p) -> x, of one number for each island, with as many dims as p.
local function factor(x)
  local made = {}
  return function(p)
    local shape = { p.dims[1] }
    for d = 2, #p.shape do shape[d] = 1 end
    made[#shape] = made[#shape] or x:reshape(shape)
    return made[#shape]
  end
end

--- islands.meet(update): for an outer program. Returns mean(x) -> x with the mean in each island's place, weighted by
-- what the islands have counted in the round. One that counted nothing adds nothing, whatever its x is. Begins the next
-- round's counts, and reports the mean loss of the round and the largest difference of two islands' losses.
function islands.meet(update)
  local first = update:params()()
  local dims = { { first.dims[1], first.shape[1] } }
  local count, loss = totals("count", dims), totals("loss", dims)
  local total, idle = count:sum(), count:less_equal(0)
  local function highest(sign)
    return idle:select(native.constant(-3e38), loss * sign / count):max(dims[1][1])
  end
  update:result("round_count", total)  -- the run ends where it is 0
  update:result("round_loss", loss:sum() / total)
  update:result("round_spread", highest(1) + highest(-1))
  update:set(count, count * 0)
  update:set(loss, loss * 0)
  local weight, none, zero = factor(count), factor(idle), factor(count * 0)
  return function(x)
    local sum = none(x):select(native.constant(0), x * weight(x)):sum(x.dims[1])
    return sum / total + zero(x)
  end
end

return islands
