--- Balance of a mixture's experts: losses that nn.moe makes of a route, a bias that moves against the loads, and what a
-- step reports of them.
-- Shapes: as in moe.lua; B batch, N tokens of a group, E experts, k choices of a token. `...` is B, or B, P.
--
-- Each loss is a sum over tokens: (mean over groups) x (tokens of the groups). Each term belongs to one group, so ranks
-- and micro-batches add them, and the model's count divides them. Loads of the whole batch are complete only at the end
-- of a step, so `last_step` uses those of the step before.
local native = require "orrery.native"
local dims = require "orrery.dims"
local numbers = require "orrery.numbers"

local balance = {}

local function fail(problem, ...) native.fail(("nn.moe: balance: " .. problem):format(...)) end

local defaults = { loss = "none", coefficient = 0.01, groups = 0, z = 0.0, rate = 0.0, targets = false }
local losses = { none = true, sequence = true, groups = true, last_step = true }

--- The options with their defaults; throws for those of nn.moe's `balance` that are wrong.
local function checked(given, x)
  local c, batch, seq = {}, x.shape[1], x.shape[2]
  for key, default in pairs(defaults) do c[key] = default end
  for key, value in pairs(given) do
    if defaults[key] == nil then
      fail("no option \"%s\"\n  known: coefficient, groups, loss, rate, targets, z", tostring(key))
    end
    c[key] = value
  end
  if not losses[c.loss] then
    fail("loss = %s: expected \"none\", \"sequence\", \"groups\" or \"last_step\"", tostring(c.loss))
  end
  for _, key in ipairs { "coefficient", "z", "rate" } do
    local _, problem = numbers.number(key, c[key], 0)
    if problem then fail("%s", problem) end
  end
  if c.loss ~= "groups" and c.groups ~= 0 then
    fail("groups = %s: only loss = \"groups\" has groups of sequences\n  leave it out", tostring(c.groups))
  end
  if c.loss == "none" and c.coefficient ~= defaults.coefficient then
    fail("coefficient = %g: it multiplies the loss, and there is none\n  leave it out, or choose a loss", c.coefficient)
  end
  local shape = type(c.targets) == "userdata" and c.targets.shape or {}
  if c.targets and not (#shape == 2 and shape[1] == batch and shape[2] == seq) then
    fail("targets: %s has another shape than the tokens, [%d, %d]", tostring(c.targets), batch, seq)
  end
  if c.loss == "groups" and native.training() then
    if math.type(c.groups) ~= "integer" or c.groups < 1 or batch % c.groups ~= 0 then
      fail("loss = \"groups\" needs groups, a divisor of the batch of %d sequences; it is %s", batch,
        tostring(c.groups))
    end
    local micro = native.config and native.config.train and native.config.train.microbatches or 1
    if c.groups % micro ~= 0 then
      fail("groups = %d: %d micro-batches would tear a group apart\n  set groups to a multiple of train.microbatches",
        c.groups, micro)
    end
  end
  return c
end

--- Sums all dims but the last; with keep, all but the first and the last.
local function sum_of_tokens(x, keep)
  local summed = {}
  for d = keep and 2 or 1, #x.shape - 1 do summed[#summed + 1] = d end
  return #summed == 0 and x or x:sum { dims = summed }
end

--- The loads of a step, f32 [E]: choices of each expert in the whole batch. Complete only at the end of the step.
local function total(route)
  route.total = route.total or sum_of_tokens(route.load:cast "f32")
  return route.total
end

--- x [B, ...] -> [G, ...], the sum over each group of sequences.
local function by_group(x, groups)
  local batch = x.shape[1]
  if groups == batch then return x end
  return x:reshape({ dims.of(x, 1, groups), batch // groups, table.unpack(dims.list(x, 2)) }):sum { dims = { 2 } }
end

--- 1 for each token with a target that counts, else 0, f32 [B, T], or in the shape of `like`; nil: all count.
local function counted(c, like)
  if not c.targets then return nil end
  local m = c.targets:less(0):select(native.constant(0), native.constant(1))
  if not like or #like.shape == 2 then return m end
  return m:reshape(dims.list(like))
end

--- each [..., N] -> f32 [], the sum over the tokens with targets that count.
local function sum_of_counted(each, c)
  local m = counted(c, each)
  return (m and each * m or each):sum()
end

--- The scores of the experts as shares that sum to 1 for each token, f32 [..., N, E].
local function shares(route)
  local s = route.scores:cast "f32"
  if route.scored == "softmax" then return s end
  return s / (s:sum { dims = { #s.shape }, keep = true } + 1e-20)
end

--- The auxiliary loss of Switch (Fedus et al. 2022) and DeepSeek (Dai et al. 2024), f32 []: for each group the sum over
-- experts of f_e p_e, 1 where balanced, with f_e = load_e E / (k tokens) and p_e the mean share of expert e's score;
-- times the tokens of the group with targets that count. Groups are sequences, or as many equal parts of the batch as
-- `groups` says; micro-batches that tear a group apart are refused.
local function of_groups(route, c)
  local s, load = shares(route), route.load:cast "f32"
  local batch, e = s.shape[1], route.experts
  local groups = c.loss == "groups" and c.groups or batch
  local choices = route.tokens * route.top_k * (batch // groups)           -- of a group
  local p = by_group(sum_of_tokens(s, true), groups)                       -- [G, E], tokens times the mean
  local f = by_group(sum_of_tokens(load, true), groups)
  local each = (f * p):sum { dims = { 2 } }                                -- [G]
  local m = counted(c)
  if m then each = each * (by_group(m:sum { dims = { 2 } }, groups) / (route.tokens * (batch // groups))) end
  return each:sum() * (c.coefficient * e / choices)
end

--- The same loss with f of the step before, with its loads in a state: linear in the scores of each token, so that it
-- balances the whole batch.
local function of_last_step(route, c)
  local before = native.state { name = "gate.loads", shape = { { "router", route.experts } }, initial = 1 }
  before:next(total(route))
  local each = (shares(route) * (before * (route.experts / before:sum()))):sum { dims = { #route.scores.shape } }
  return sum_of_counted(each, c) * c.coefficient
end

--- The z-loss of ST-MoE (Zoph et al. 2022), f32 []: the sum over tokens of the square of log(sum(exp(logits))).
local function z_loss(route, c)
  local logits, last = route.logits, #route.logits.shape
  local top = logits:max { dims = { last }, keep = true }
  local lse = (logits - top):exp():sum { dims = { last }, keep = true }:log() + top
  return sum_of_counted((lse * lse):sum { dims = { last } }, c) * c.z
end

--- Begins the balance of a mixture of E experts of x [B, T, C] with the options of nn.moe's `balance`: returns
-- end_of(route), which adds the losses to the route, and the bias of DeepSeek-V3 (Liu et al. 2024), [E], or nil: an
-- expert with a load above the mean becomes `rate` less likely to be chosen in the next step, one with a load below it
-- `rate` more likely.
function balance.begin(given, experts, x)
  local c = checked(given, x)
  local bias = c.rate > 0 and native.state { name = "gate.correction", shape = { { "router", experts } } } or nil
  return function(route)
    if not native.training() then return end
    if bias then
      local load = total(route)
      local mean, none = load:sum() / experts, native.constant(0)
      local down = mean:less(load):select(native.constant(-c.rate), none)
      bias:next(bias + load:less(mean):select(native.constant(c.rate), down))
    end
    local function add(name, value)
      native.loss_term(value, name,
        "give its route to nn.balanced and return the loss that it returns, or leave balance out")
      route[name] = value
    end
    if c.loss ~= "none" then add("balance_loss", (c.loss == "last_step" and of_last_step or of_groups)(route, c)) end
    if c.z > 0 then add("z_loss", z_loss(route, c)) end
  end, bias
end

local closed = setmetatable({}, { __mode = "k" })                       -- routes that were given to balance.close

--- Throws unless `routes` is a list of routes, none of which was given before.
local function check_routes(routes)
  if type(routes) ~= "table" or (next(routes) ~= nil and #routes == 0) then
    native.fail("nn.balanced: a list of routes expected, as in nn.balanced({ route }, loss, count)")
  end
  for i, route in ipairs(routes) do
    if type(route) ~= "table" or not route.load then
      native.fail(("nn.balanced: entry %d of routes is not a route, the second result of nn.moe"):format(i))
    end
    if closed[route] then
      native.fail(("nn.balanced: entry %d of routes was given before, and its losses would count twice\n  call "
        .. "nn.balanced once, with each route once"):format(i))
    end
    closed[route] = true
  end
end

--- The sum of the losses with those of its routes, a list in the order of layers. Reports balance_loss and z_loss per
-- target; expert_load, the largest load of each layer divided by its mean; expert_drop, the share of its choices that
-- found no slot. Evaluations have none of these losses and reports.
function balance.close(nn, routes, loss, count)
  check_routes(routes)
  if not native.training() then return loss end
  for _, name in ipairs { "balance_loss", "z_loss" } do
    local sum
    for _, route in ipairs(routes) do
      if route[name] then sum = sum and sum + route[name] or route[name] end
    end
    if sum then
      native.result(name, sum, count)
      loss = loss + sum
    end
  end
  local loads, drops = {}, {}
  for i, route in ipairs(routes) do
    local load, choices = total(route), route.load.shape[1] * route.tokens * route.top_k
    loads[i] = (load:max() * (route.experts / choices)):reshape { 1 }
    drops[i] = ((route.load:cast "f32" - route.slots):maximum(0):sum() / choices):reshape { 1 }
  end
  if #routes > 0 then
    local function list(values) return #values == 1 and values[1] or nn.concat(values, { dim = 1 }) end
    native.result("expert_load", list(loads))
    native.result("expert_drop", list(drops))
  end
  return loss
end

return balance
