--- Mixtures of experts (Shazeer et al. 2017, Fedus et al. 2022): a router sends each token to the few experts that it
-- scores highest, and their results are summed by weight.
-- Shapes: B batch, T seq, C embed, P parts of a sequence, N = T / P tokens of a group, E experts, k choices of a token,
-- S slots of an expert in a group, M mlp. `...` is B, or B, P where a sequence has several parts.
local native = require "orrery.native"
local balance, capacities, rows = require "orrery.balance", require "orrery.capacities", require "orrery.expert_rows"
local dims, numbers = require "orrery.dims", require "orrery.numbers"

local moe = {}

local function fail(problem, ...) native.fail(("nn.moe: " .. problem):format(...)) end

--- Throws unless the list has the value.
local function one_of(key, value, list)
  for _, known in ipairs(list) do
    if value == known then return end
  end
  fail("%s = %s: expected \"%s\"", key, tostring(value), table.concat(list, "\" or \""))
end

local function whole(key, value, lowest)
  if math.type(value) ~= "integer" or value < lowest then
    fail("%s = %s: expected an integer of at least %d", key, tostring(value), lowest)
  end
end

--- Throws for options that exclude each other or the shape of x. Returns them with their defaults.
local function checked(x, given)
  local c = { capacity = given.overflow == "again" and 1 or 1.25, parts = 1, overflow = "drop", drop = "position",
              dispatch = "slab", scores = "softmax", first = "scores", scale = 1.0, groups = 1 }
  for name, value in pairs(given) do c[name] = value end
  for _, key in ipairs { "experts", "top_k", "mlp", "parts", "groups" } do whole(key, c[key], 1) end
  if c.shared then whole("shared", c.shared, 1) end
  for _, key in ipairs { "renormalise", "router_bias", "shared_gate", "bias" } do  -- 0 and "false" are true in Lua
    if type(c[key] or false) ~= "boolean" then fail("%s = %s: expected true or false", key, tostring(c[key])) end
  end
  for _, key in ipairs { "scale", "limit", "capacity", "max_capacity" } do
    local value = c[key]
    if value and not numbers.positive(key, value) then
      fail("%s = %s: expected a number above 0", key, tostring(value))
    end
  end
  if type(c.balance or {}) ~= "table" then fail("balance = %s: expected a table of options", tostring(c.balance)) end
  one_of("overflow", c.overflow, { "drop", "again" })
  one_of("drop", c.drop, { "position", "weight" })
  one_of("dispatch", c.dispatch, { "slab", "rows" })
  one_of("scores", c.scores, { "softmax", "sigmoid" })
  one_of("first", c.first, { "scores", "top_k" })
  if #x.shape ~= 3 then fail("x has %d dims, expected [batch, seq, embed]", #x.shape) end
  if c.top_k > c.experts then
    fail("top_k = %d is more than the %d experts: at most %d", c.top_k, c.experts, c.experts)
  end
  local tokens = x.shape[2]
  if tokens % c.parts ~= 0 then
    fail("%d parts do not divide a sequence of %d tokens: give a number that does, or 1", c.parts, tokens)
  end
  if c.experts % c.groups ~= 0 then
    fail("%d groups do not divide %d experts: give a number that does, or leave groups out", c.groups, c.experts)
  end
  c.top_groups = c.top_groups or c.groups
  whole("top_groups", c.top_groups, 1)
  if c.top_groups > c.groups then fail("top_groups = %d is more than the %d groups", c.top_groups, c.groups) end
  local reached = c.top_groups * (c.experts // c.groups)
  if c.top_k > reached then
    fail("top_k = %d is more than the %d experts of %d groups: raise top_groups", c.top_k, reached, c.top_groups)
  end
  if c.blocks and c.dispatch ~= "rows" then fail("blocks = %s: only dispatch = \"rows\" has blocks", c.blocks) end
  if c.dispatch == "rows" then
    if not c.blocks then
      fail("dispatch = \"rows\" needs blocks, the number of ranks that share the experts (script.expert_blocks)")
    end
    whole("blocks", c.blocks, 1)
    if c.experts % c.blocks ~= 0 then
      fail("%d blocks do not divide %d experts: give the number of ranks that share the experts", c.blocks, c.experts)
    end
  end
  if c.max_capacity and c.overflow ~= "again" then
    fail("max_capacity = %g: only overflow = \"again\" has several capacities", c.max_capacity)
  end
  if c.max_capacity and c.max_capacity < c.capacity then
    fail("max_capacity = %g is below capacity = %g", c.max_capacity, c.capacity)
  end
  if c.drop ~= "position" and c.overflow == "again" then
    fail("drop = \"%s\": nothing is dropped with overflow = \"again\"\n  leave it out", c.drop)
  end
  if c.shared_gate and not c.shared then fail("shared_gate needs shared, the width of the shared expert") end
  return c
end

--- Capacities of overflow = "again".
local function capacities_of(c)
  local full = c.experts / c.top_k                                  -- holds everything
  local first = math.min(c.capacity, full)
  return capacities(first, math.min(c.max_capacity or math.max(2, first), full))
end

--- Slots of an expert in a group of `tokens`: `capacity` times the even share, and at most one for each token.
local function slots_of(c, capacity, tokens)
  if capacity * tokens < 1 then
    fail("a group of %d tokens has %g slots with capacity = %g, fewer than the %d experts of a token\n"
      .. "  set capacity to at least %g, or make groups larger by fewer parts", tokens, capacity * tokens * c.top_k,
      capacity, c.top_k, 1 / tokens)
  end
  local share = capacity * tokens * c.top_k / c.experts
  return math.min(math.ceil(share * (1 - 2 ^ -40)), tokens)           -- 4, not 5, for a share that rounds to 4 + 2^-50
end

--- The capacity of this program. With overflow = "again", a train step has one of c.capacities, and others hold
-- everything.
local function capacity_of(c)
  if c.overflow ~= "again" then return c.capacity end
  c.capacities = capacities_of(c)
  return native.training() and native.capacity(c.capacities) or c.experts / c.top_k
end

--- The dims of the list `leading`, then the others.
local function dims_of(leading, ...)
  local all = { table.unpack(leading) }
  for _, dim in ipairs { ... } do all[#all + 1] = dim end
  return all
end

--- [..., N, E], by which experts are chosen, -> the same with -1e30 for all but the best groups of experts. A group
-- ranks by the sum of its two highest (DeepSeek-V3, Liu et al. 2024).
local function of_best_groups(choice, c)
  if c.top_groups == c.groups then return choice end
  local shape, each = choice.shape, c.experts // c.groups
  local leading = dims.list(choice, 1, #shape - 1)
  local by_group = choice:reshape(dims_of(leading, c.groups, each))
  local rank = by_group:top_k { k = math.min(2, each) }:sum { dims = { #shape + 1 } }
  local _, best = rank:top_k { k = c.top_groups }
  local chosen = best:one_hot(c.groups):sum { dims = { #shape } }:reshape(dims_of(leading, c.groups, 1))
  return chosen:greater(0):select(by_group, native.constant(-1e30)):reshape(dims_of(leading, { "router", c.experts }))
end

--- logits f32 [..., N, E] -> scores [..., N, E], ids i32 [..., N, k] and their weights [..., N, k].
local function choose(logits, c)
  local function score(x) return c.scores == "sigmoid" and x:sigmoid() or x:softmax() end
  local scores, last = score(logits), #logits.shape
  local by = c.first == "scores" and scores or logits
  local choice = of_best_groups(c.correction and by + c.correction or by, c)
  local weights, ids = choice:top_k { k = c.top_k }
  if choice ~= by then weights = by:gather(ids, last) end           -- without what was added for the choice
  if c.first == "top_k" then weights = score(weights) end
  if c.renormalise then weights = weights / (weights:sum { dims = { last }, keep = true } + 1e-20) end
  if c.scale ~= 1 then weights = weights:scale(c.scale) end
  return scores, ids, weights
end

--- The gated unit of gpt-oss: gate * sigmoid(1.702 gate) * (up + 1), with gate <= limit and |up| <= limit.
local function limited(gate, up, limit)
  gate, up = gate:minimum(limit), up:minimum(limit):maximum(-limit)
  return gate * (gate * 1.702):sigmoid() * (up + 1)
end

--- Returns y [B, T, C] and the route; see nn.moe.
function moe.experts(nn, x, given)
  local c = checked(x, given)
  local batch, seq, embed = table.unpack(x.shape)
  local tokens = seq // c.parts
  local capacity = capacity_of(c)
  -- With overflow = "drop", slots do not depend on the capacity of a block's rows.
  local function slots_at(size) return slots_of(c, c.capacities and size or c.capacity, tokens) end
  local slots = slots_at(capacity)
  local function dim(d, size) return dims.of(x, d, size) end
  local group = { dim(1, batch), c.parts > 1 and dim(2, c.parts) or nil }
  local function grouped(value, ...) return value:reshape(dims_of(group, ...)) end
  local h = c.parts > 1 and grouped(x, tokens, dim(3, embed)) or x
  local std, std_out = c.std or embed ^ -0.5, c.std_out or c.std or c.mlp ^ -0.5
  local function param(name, shape, scale)
    return nn.param { name = name, shape = shape, init = { kind = "normal", scale = scale } }
  end
  local logits = nn.scope("gate", function()
    local router = { "router", c.experts }
    local w = param("weight", { dim(3, embed), router }, std)
    local bias = c.router_bias and nn.param { name = "bias", shape = { router } } or nil
    return h:matmul(w, { bias = bias, dtype = "f32" })
  end)
  local balanced
  if c.balance then
    if c.correction and (c.balance.rate or 0) > 0 then
      fail("correction and balance.rate both set the bias of the choice\n  leave one out")
    end
    local bias
    balanced, bias = balance.begin(c.balance, c.experts, x)
    c.correction = bias or c.correction
  end
  local correction = c.correction
  if correction and not (type(correction) == "userdata" and #correction.shape == 1
      and correction.shape[1] == c.experts) then
    fail("correction = %s: expected a value of the shape [%d], the experts", tostring(correction), c.experts)
  end
  local scores, ids, weights = choose(logits, c)
  local size = { experts = c.experts, slots = slots }
  local places, load = ids:assign_slots(table.unpack(c.drop == "weight" and { weights, size } or { size }))
  if c.capacities and native.training() then
    local named = grouped(load, { "expert", c.experts })    -- for the message
    native.overflow(named, slots_at, c.capacities)
  end
  local y = nn.scope("experts", function()
    local count, wide = { "experts", c.experts }, { "mlp", c.mlp }
    local filled = grouped(load, count)                      -- a value of its own: ranks need those of their experts
    local function product(by_expert, name, from, to, scale)
      return nn.scope(name, function()
        local out = by_expert:grouped_matmul(param("weight", { count, from, to }, scale), filled)
        if not c.bias then return out end
        return out + nn.param { name = "bias", shape = { count, to } }:reshape { count, 1, to }
      end)
    end
    local slabs, back
    if c.dispatch == "rows" then
      slabs, back = rows.send(c, { x = h, width = dim(3, embed), ids = ids, places = places, weights = weights,
                                   capacity = capacity, slots = slots, slots_at = slots_at, grouped = grouped })
    else
      slabs = h:dispatch(places, size)
      function back(made) return made:combine(places, weights) end
    end
    slabs = grouped(slabs, count, { "slots", slots }, dim(3, embed))
    local gate, up = product(slabs, "gate", dim(3, embed), wide, std), product(slabs, "up", dim(3, embed), wide, std)
    local made = c.limit and limited(gate, up, c.limit) or gate:swiglu(up)
    return back(product(made, "down", wide, dim(3, embed), std_out))
  end)
  if c.parts > 1 then y = y:reshape { dim(1, batch), dim(2, seq), dim(3, embed) } end
  if c.shared then
    local shared = nn.scope("shared_experts", nn.swiglu, x, { mlp = c.shared, std = c.std, std_out = c.std_out })
    if c.shared_gate then
      local open = nn.linear(x, "shared_expert_gate", { "gates", 1 }, { bias = false, std = c.std })
      shared = shared * open:sigmoid()
    end
    y = y + shared
  end
  local route = { logits = logits, scores = scores, ids = ids, weights = weights, load = load, slots = slots,
                  experts = c.experts, top_k = c.top_k, tokens = seq, scored = c.scores }
  if balanced then balanced(route) end
  return y, route
end

return moe
