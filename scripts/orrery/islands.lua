--- Parts of methods in which islands train on their own and meet now and then (o.strategy.islands). An outer
-- program sees whole arrays: the first dim of each has an element for each island.
local native = require "orrery.native"

local islands = {}

local function totals(name, shape, part)
  return native.state { name = "islands." .. (part and part .. "." or "") .. name, shape = shape }
end

local function island_dims(update)
  local first = update:params()()
  return { { first.dims[1], first.shape[1] } }
end

--- islands.count(update [, part]): at the end of a step's update. Adds what the step has counted (tokens) and its loss
-- to those of the round, or of the part's own round.
function islands.count(update, part)
  local count, loss = totals("count", {}, part), totals("loss", {}, part)
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

--- Returns what each island sends of p: x and what encoding has left out before, if there is feedback.
local function with_owed(update, p, x)
  local owed = p and update:owed(p)
  return owed and x + owed or x
end

--- islands.meet(update): for an outer program. Returns mean(x) -> x with the mean in each island's place, weighted by
-- what the islands have counted in the round. One that counted nothing adds nothing, whatever its x is. Begins the next
-- round's counts, and reports the mean loss of the round and the largest difference of two islands' losses. mean(x, p):
-- x is what the islands moved p by, which any codec may send, also with feedback.
function islands.meet(update)
  local dims = island_dims(update)
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
  local share, none, zero = factor(count / total), factor(idle), factor(count * 0)
  return function(x, p)
    local sum = with_owed(update, p, none(x):select(native.constant(0), x * share(x))):sum(x.dims[1])
    if p then update:moved(p, sum) end
    return sum + zero(x)
  end
end

--- islands.send(update, part): for a program that sends a part of the params. Returns send(state, x), which begins to
-- send x, weighted by what the island has counted for the part; one that counted nothing sends zeros. Begins the part's
-- next counts. send(state, x, p): x is what the island moved p by.
function islands.send(update, part)
  local dims = island_dims(update)
  local count, loss = totals("count", dims, part), totals("loss", dims, part)
  local weight, none = factor(count), factor(count:less_equal(0))
  update:send(totals("sent_count", dims, part), count)
  update:send(totals("sent_loss", dims, part), loss)
  update:set(count, count * 0)
  update:set(loss, loss * 0)
  return function(state, x, p)
    update:send(state, with_owed(update, p, none(x):select(native.constant(0), x * weight(x))))
  end
end

--- islands.arrive(update, part): for the program that waits for the part. Returns mean(state), the weighted mean of
-- what the islands have sent. mean(state, p): it was sent with that p. Reports the mean loss of the part's round.
function islands.arrive(update, part)
  local dims = island_dims(update)
  local total = update:arrived(totals("sent_count", dims, part))
  update:result("round_count", total * 1)  -- the run ends where it is 0
  update:result("round_loss", update:arrived(totals("sent_loss", dims, part)) / total)
  return function(state, p)
    local sum = update:arrived(state)
    if p then update:moved(p, sum) end
    return sum / total
  end
end

--- islands.outer_step(update, p, outer, away, lr, momentum) -> the next outer params: SGD with Nesterov momentum moves
-- `outer`, a state of p, by `away`, the mean of what the islands moved away from it.
function islands.outer_step(update, p, outer, away, lr, momentum)
  local moved = update:state(p, "outer_momentum")
  local next = moved * momentum + away
  local params = outer - (away + next * momentum) * lr
  update:set(moved, next)
  update:set(outer, params)
  return params
end

--- The number of a fragment for each layer: as many whole layers in each, at least one, as have up to `limit` elements
-- together. nil where that takes more than `count` fragments.
local function divided(layers, count, limit)
  local of, size = {}, 0
  for i, layer in ipairs(layers) do
    local now = of[i - 1] or 1
    if i > 1 and (size + layer.size > limit or #layers - i < count - now) then now, size = now + 1, 0 end
    of[i], size = now, size + layer.size
    if now > count or size > limit then return nil end
  end
  return of
end

--- islands.fragments(update, count) -> by name of a param the number of its fragment, from 1: whole layers in their
-- order, such that the largest fragment is as small as can be.
function islands.fragments(update, count)
  local layers, all = {}, 0
  for p in update:params() do
    local name, size = p.name:match "^(.-%d+)%." or p.name, 1
    for _, n in ipairs(p.shape) do size = size * n end
    if not layers[1] or layers[#layers].name ~= name then layers[#layers + 1] = { name = name, size = 0 } end
    local layer = layers[#layers]
    layer.size, layer[#layer + 1], all = layer.size + size, p.name, all + size
  end
  if #layers < count then native.fail(("%d fragments are more than the %d layers"):format(count, #layers)) end
  local least, greatest = 1, all                               -- the size of the largest is between these
  while least < greatest do
    local middle = (least + greatest) // 2
    if divided(layers, count, middle) then greatest = middle else least = middle + 1 end
  end
  local of = {}
  for i, fragment in ipairs(divided(layers, count, greatest)) do
    for _, name in ipairs(layers[i]) do of[name] = fragment end
  end
  return of
end

return islands
