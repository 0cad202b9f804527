--- Tensor parallelism: params are split along heads, kv_heads, mlp and vocab; with `sequence`, what lies between the
-- blocks is split over the sequence. Propagation derives every collective. The Lua twin of plugins/strategy/tensor.
local native = require "orrery.native"
local strategy = require "orrery.strategy"
local S = strategy.S

local function has(list, name)
  for _, entry in ipairs(list) do
    if entry == name then return true end
  end
  return false
end

local function shared(dims, names)                   -- the first of the dims that is among the names
  for _, dim in ipairs(dims) do
    if has(names, dim) then return dim end
  end
end

local function refuse(axis, n, dim, x, size)
  if dim == "kv_heads" and size < n then
    native.fail(("strategy tensor: %s=%d is larger than kv_heads = %d of %s: every rank needs a whole key and value "
      .. "head\n  use an axis that divides %d, or a model with more kv_heads"):format(axis, n, size, x.name, size))
  end
  native.fail(("strategy tensor: cannot split %s over %s=%d: %d of them in %s are not a multiple of %d\n  choose a "
    .. "size that divides, leave the dim out of `dims`, or say optional = true to keep it whole")
    :format(dim, axis, n, size, x.name, n))
end

--- Whether every param and activation with this dim can be split; a matrix has heads times head_dim columns.
local function divides(program, axis, n, dim, optional)
  local least, size
  for _, values in ipairs { program.params, program.activations } do
    for x in values(program) do
      if has(x.dims, dim) and (not least or x:dim(dim) < size) then least, size = x, x:dim(dim) end
    end
  end
  if not least or size % n == 0 then return true end
  if not optional then refuse(axis, n, dim, least, size) end
  return false
end

local function split_sequence(program, axis, n, options)
  for x in program:activations() do
    local between = has(x.dims, "batch") and has(x.dims, "seq") and not has(x.dims, "head_dim")
    if between and not shared(x.dims, options.dims) then
      if x:dim "seq" % n == 0 then x:store { [axis] = S "seq" }
      elseif options.optional then program:note(x, ("whole over %s=%d: its seq does not divide"):format(axis, n))
      else refuse(axis, n, "seq", x, x:dim "seq") end
    end
  end
end

local defaults = { axis = "tp", dims = { "heads", "kv_heads", "mlp", "vocab" }, sequence = false, optional = false }

return strategy.define("tensor", defaults, function(program, mesh, options)
  local axis, n = options.axis, mesh:size(options.axis)
  if n == 1 then return end
  local split, whole = {}, {}
  for _, dim in ipairs(options.dims) do
    local good = divides(program, axis, n, dim, options.optional)
    table.insert(good and split or whole, dim)
  end
  if shared({ "heads", "kv_heads" }, whole) then     -- query heads go with the keys and values that they read
    local kept = {}
    for _, dim in ipairs(split) do
      if dim ~= "heads" and dim ~= "kv_heads" then kept[#kept + 1] = dim end
    end
    split = kept
  end
  local found = false
  for p in program:params() do
    local dim = shared(p.dims, split)
    if dim then
      p:store { [axis] = S(dim) }
      for place, name in ipairs(p.dims) do           -- what a gradient is a sum of lies as the gradient does
        if name == dim then p:grad_terms():store { [axis] = S(place) } end
      end
      found = true
    else
      for _, name in ipairs(p.dims) do
        if has(options.dims, name) then
          program:note(p, ("whole over %s=%d: its %s do not divide"):format(axis, n, name))
        end
      end
    end
  end
  if not found and not options.optional then
    native.fail(("strategy tensor: no param has a dim named %s\n  name the dims to split in `dims`, or say optional = "
      .. "true"):format(table.concat(options.dims, ", ")))
  end
  if options.sequence then split_sequence(program, axis, n, options) end
end)
