--- Optimizers: functions over (param, gradient, state) values, traced once as the update phase of the program.
-- Gradients are sums over the batch, so everything here divides by `count`, the divisor of the sum of losses.
local native = require "orrery.native"
local lr = require "orrery.lr"
local groups = require "orrery.groups"
local numbers = require "orrery.numbers"
local must = numbers.must
local group_of = groups.of

local optim = {}

local function check(name, options, known)
  for key in pairs(options) do
    if known[key] == nil then
      local names = {}
      for k in pairs(known) do names[#names + 1] = k end
      error(("optim.%s: unknown option \"%s\"\n  known: %s"):format(name, key, table.concat(names, ", ")), 3)
    end
  end
  local merged = {}
  for key, default in pairs(known) do
    merged[key] = options[key]
    if merged[key] == nil then merged[key] = default end
  end
  groups.check(merged.groups)
  for _, key in ipairs { "beta1", "beta2", "momentum" } do
    if merged[key] then must(numbers.number(("optim.%s: %s"):format(name, key), merged[key], 0, 1)) end
  end
  must(numbers.number(("optim.%s: decay"):format(name), merged.decay, 0))
  for _, key in ipairs { "eps", "clip" } do
    if merged[key] then must(numbers.positive(("optim.%s: %s"):format(name, key), merged[key])) end
  end
  return merged
end

--- A state of an optimizer, "m" or "outer.m" with the option name = "outer": two optimizers of a round need two names.
local function state(update, p, name, opt)
  return update:state(p, opt.name == "" and name or opt.name .. "." .. name, "zeros", opt)
end

--- The sum of the squares of all gradients; nil when there are none.
local function sum_of_squares(update)
  local total
  for p in update:params() do
    local square = p:grad():sumsq()
    total = total and total + square or square
  end
  return total
end

--- Whether the update is made, u8 []: the squares of all gradients are finite, the step does not overflow its capacity
-- (it then runs again), and its island counts something. Without a loss scale the run ends if they are not finite. With
-- one, sets the next scale: times `growth` after `interval` consecutive finite steps, times `backoff` after one that is
-- not finite. Records the results loss_scale and skipped, the number of steps without an update. The states of o.state
-- change with the params.
local function applies(update, scaling, total)
  local finite, overflow, count = total:all_finite(), update:overflow(), update:island_count()
  local made = overflow and finite:select(overflow, native.constant(1)):less_equal(0) or finite
  if count then made = native.constant(0):less(made:select(count, native.constant(0))) end
  update:states(made)
  if not scaling then
    update:result("update.sumsq", total)
    return made
  end
  local holds = overflow and overflow:less_equal(0) or count and native.constant(0):less(count)  -- never both
  local function set(state, value) update:set(state, holds and holds:select(value, state) or value) end
  local good = scaling.good + 1
  local grows = native.constant(scaling.interval):less_equal(good)
  local up = (scaling.scale * scaling.growth):minimum(scaling.most)
  local down = (scaling.scale * scaling.backoff):maximum(scaling.least)
  local zero = native.constant(0)
  local steps = made:select(scaling.steps + 1, scaling.steps)
  set(scaling.scale, finite:select(grows:select(up, scaling.scale), down))
  set(scaling.good, finite:select(grows:select(zero, good), zero))
  update:set(scaling.steps, steps)
  update:result("loss_scale", scaling.scale * 1)
  update:result("skipped", native.step() - steps)
  return made
end

--- For functions that leave scale and guard to the library: returns unscaled(gradient), and take(new, old), which
-- returns the old value when gradients are not finite or the step overflows. Called before the function's own ops.
function optim.guard(update)
  local scaling = update:loss_scale()
  local total = sum_of_squares(update)
  if not total then return nil, nil end
  local apply = applies(update, scaling, total)
  local unscale = scaling and 1 / scaling.scale
  return unscale and function(gradient) return gradient * unscale end,
         function(new, old) return apply:select(new, old) end
end

--- The factor of every gradient: 1/count, and less when the global norm is above `clip`. Also records the results
-- grad_norm and lr. `apply` (u8 []) says whether the update is made (`applies`). With a loss scale the
-- step counts updates, for the learning rate, too: a step without an update does not move its schedule. AdamW's op
-- itself applies scale and guard, so they are handled here.
local function scale_and_rate(update, options)
  groups.require_params(options.groups, update)
  local scaling = update:loss_scale()
  local total = sum_of_squares(update)
  local apply, count = applies(update, scaling, total), update:count()
  if scaling then count = count * scaling.scale end
  local norm = total:sqrt() / count
  local scale = 1 / count
  if options.clip then scale = scale * (options.clip / norm:maximum(options.clip)) end  -- min(1, clip / norm)
  local step = scaling and scaling.steps + 1 or native.step()
  local rate = lr.of(options.lr)(step)
  update:result("grad_norm", norm)
  update:result("lr", rate)
  return scale, rate, step, apply
end

--- AdamW (Loshchilov and Hutter 2019), one fused op per param.
-- options: lr (number or o.lr.*), beta1 (0.9), beta2 (0.95), eps (1e-8), decay (0.1, only params of two or more dims),
-- clip (1.0; false: none), groups (see groups.lua), name ("", before the names of its states).
function optim.adamw(options)
  local opt = check("adamw", options,
    { lr = 3e-4, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, decay = 0.1, clip = 1.0, groups = {}, name = "" })
  return function(update)
    local scale, rate, step, apply = scale_and_rate(update, opt)
    for p in update:params() do
      local group = group_of(p, opt)
      local m, v = state(update, p, "m", opt), state(update, p, "v", opt)
      local rate_p = group.lr_scale == 1 and rate or rate * group.lr_scale
      local fused = { beta1 = opt.beta1, beta2 = opt.beta2, eps = opt.eps, decay = group.decay }
      local p2, m2, v2 = p:adamw(p:grad(), m, v, rate_p, scale, step, apply, fused)
      update:set(p, p2)
      update:set(m, m2)
      update:set(v, v2)
    end
  end
end

--- Stochastic gradient descent with momentum (Polyak 1964): m = momentum m + g; p = p - lr m. With nesterov (Nesterov
-- 1983, as Sutskever et al. 2013 write it): p = p - lr (g + momentum m).
-- options: lr (number or o.lr.*), momentum (0.9; 0 stores no state), nesterov (false), decay (0, added to the
-- gradient), clip (false), groups, name ("").
function optim.sgd(options)
  local opt = check("sgd", options,
    { lr = 0.1, momentum = 0.9, nesterov = false, decay = 0, clip = false, groups = {}, name = "" })
  if opt.nesterov and opt.momentum == 0 then
    native.fail("optim.sgd: nesterov needs a momentum above 0; leave momentum out for 0.9")
  end
  return function(update)
    local scale, rate, _, apply = scale_and_rate(update, opt)
    local function set(target, value) update:set(target, apply:select(value, target)) end
    for p in update:params() do
      local group = group_of(p, opt)
      local g = p:grad() * scale
      if group.decay ~= 0 then g = g + p * group.decay end
      if opt.momentum ~= 0 then
        local m = state(update, p, "m", opt)
        local moved = m * opt.momentum + g
        set(m, moved)
        g = opt.nesterov and g + moved * opt.momentum or moved
      end
      set(p, p - g * (group.lr_scale == 1 and rate or rate * group.lr_scale))
    end
  end
end

return optim
