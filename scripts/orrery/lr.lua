--- Learning rates as functions of the step: numbers in, an f32 scalar value out. The step counts from 1.
local native = require "orrery.native"
local numbers = require "orrery.numbers"
local must = numbers.must

local lr = {}

--- Converts a rate to a function of the step; it may be a number or such a function.
function lr.of(rate)
  if type(rate) == "function" then return rate end
  if type(rate) ~= "number" then error("lr: a number or a function of the step expected, got " .. type(rate), 3) end
  must(numbers.number("lr", rate, 0))
  return function() return native.constant(rate) end
end

local function check(name, options, known)
  for key in pairs(options) do
    if not known[key] then error(("lr.%s: unknown option \"%s\""):format(name, key), 3) end
  end
  if not options.peak then error(("lr.%s: peak is missing"):format(name), 3) end
  for _, key in ipairs { "peak", "floor", "warmup", "steps" } do
    if options[key] then must(numbers.number(("lr.%s: %s"):format(name, key), options[key], 0)) end
  end
end

local function total(name, options)
  local steps = options.steps or native.config.train.steps
  if not steps then error(("lr.%s: steps is missing; give it here or as train.steps"):format(name), 3) end
  return steps
end

--- `rate(step)` after a linear warm-up over the first `warmup` steps, which reaches the peak at step = warmup.
local function warm(options, rate)
  local warmup = options.warmup or 0
  if warmup == 0 then return rate end
  return function(step)
    return step:less(native.constant(warmup)):select(step * (options.peak / warmup), rate(step))
  end
end

--- Progress of the decay, from 0 at the end of the warm-up to 1 at the last step.
local function progress(options, steps, step)
  local warmup = options.warmup or 0
  local span = math.max(1, steps - warmup)
  return ((step - warmup) * (1 / span)):maximum(0):minimum(1)
end

--- Half a cosine from `peak` to `floor` (Loshchilov and Hutter 2017). options: peak, warmup (0), floor (0), steps
-- (train.steps of the configuration).
function lr.cosine(options)
  check("cosine", options, { peak = true, warmup = true, floor = true, steps = true })
  local steps, floor = total("cosine", options), options.floor or 0
  return warm(options, function(step)
    local turn = (progress(options, steps, step) * math.pi):cos()
    return (turn + 1) * (0.5 * (options.peak - floor)) + floor
  end)
end

--- A straight line from `peak` to `floor`. The options are those of cosine.
function lr.linear(options)
  check("linear", options, { peak = true, warmup = true, floor = true, steps = true })
  local steps, floor = total("linear", options), options.floor or 0
  return warm(options, function(step)
    return progress(options, steps, step) * (floor - options.peak) + options.peak
  end)
end

--- `peak` after the warm-up. options: peak, warmup (0).
function lr.constant(options)
  check("constant", options, { peak = true, warmup = true })
  return warm(options, function() return native.constant(options.peak) end)
end

return lr
