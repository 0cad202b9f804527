--- Strategies: `define` makes one from a Lua function; `plugins` and `twins` find existing ones.
local native = require "orrery.native"

local strategy = {
  define = native.define,   -- define(name [, defaults], function(program, mesh, options))
  S = native.S,             -- S "batch" or S(1): split that dim
  R = native.R,             -- replicated on every rank
  P = native.P,             -- for results of ops: a partial sum on every rank
}

--- strategy.axes(name, axis) -> list of the axes that an option `axis` of the strategy names: "dp", or { "dp", "cp" }.
function strategy.axes(name, axis)
  if type(axis) ~= "table" then return { axis } end
  if #axis == 0 then
    native.fail(("strategy %s: axis is an empty list; name at least one axis of the mesh, or leave the strategy out")
      :format(name))
  end
  local seen = {}
  for _, one in ipairs(axis) do
    if seen[one] then native.fail(("strategy %s: axis names the axis %s twice; name each once"):format(name, one)) end
    seen[one] = true
  end
  return axis
end

--- strategy.find_dim(x, name) -> the number, from 1, of the dim of x with this name; nil without one, and for "".
function strategy.find_dim(x, name)
  for d, other in ipairs(x.dims) do
    if name ~= "" and other == name then return d end
  end
end

--- strategy.split_batch(program, axis): splits the dim `batch` of all inputs over the axis. It marks nothing when an
-- earlier strategy has split another dim of an input over it: each rank then has a part of the batch already.
function strategy.split_batch(program, axis)
  for x in program:inputs() do
    for _, split in ipairs(x:splits()) do
      if split.axis == axis and x.dims[split.dim] ~= "batch" then return end
    end
  end
  for x in program:inputs() do
    for _, dim in ipairs(x.dims) do
      if dim == "batch" then x:store { [axis] = native.S "batch" } end
    end
  end
end

--- strategy.plugins.data { zero = stage, replicate = axis }: uses the plugin strategy/zero, which includes the marks of
-- strategy/data, under the name of data. `replicate`: another axis that splits the batch and repeats what zero splits.
local function data(options)
  if type(options) ~= "table" then return native.strategy("data", options) end   -- which throws
  local own = {}
  for key, value in pairs(options) do own[key] = value end
  local stage, prefetch, prefetch_mib = own.zero, own.prefetch, own.prefetch_mib
  local replicate = own.replicate or ""
  own.zero, own.replicate = nil, nil
  if stage == 3 then own.prefetch, own.prefetch_mib = nil, nil end
  local plain = native.strategy("data", own)         -- throws for options that data does not have
  if stage == nil or stage == 0 then
    if replicate == "" then return plain end
    own.axis = { replicate, table.unpack(strategy.axes("data", own.axis or "dp")) }
    return native.strategy("data", own)
  end
  if math.type(stage) ~= "integer" or stage < 0 or stage > 3 then
    native.fail(("strategy data: zero is %s; there are 0 (nothing is split), 1 (optimizer states), 2 (gradients, too) "
      .. "and 3 (params, too)"):format(tostring(stage)))
  end
  return native.strategy("zero", { axis = own.axis, bucket_mib = own.bucket_mib, codec = own.codec,
    feedback = own.feedback, reduce = own.reduce, stage = stage, prefetch = prefetch, prefetch_mib = prefetch_mib,
    replicate = replicate }, "data")
end

--- strategy.plugins.NAME(options): the C++ plugin strategy/NAME.
strategy.plugins = setmetatable({ data = data }, {
  __index = function(_, name)
    return function(options) return native.strategy(name, options) end
  end,
})

--- strategy.twins.NAME(options): scripts/orrery/strategies/NAME.lua.
strategy.twins = setmetatable({}, {
  __index = function(_, name) return require("orrery.strategies." .. name) end,
})

return strategy
