--- Data parallelism: every rank holds all params and a part of the batch.
-- Propagation reduces the gradients, in messages of at most `bucket_mib` (0: each alone). `zero` = 1, 2 or 3 also
-- splits optimizer states, gradients and params. The Lua twin of plugins/strategy/data.
local native = require "orrery.native"
local strategy = require "orrery.strategy"
local sharding = require "orrery.sharding"

return strategy.define("data", { axis = "dp", bucket_mib = 25, zero = 0 }, function(program, mesh, options)
  local stage = options.zero
  if stage ~= 0 and stage ~= 1 and stage ~= 2 and stage ~= 3 then
    native.fail(("zero is %s; there are 0 (nothing is split), 1 (optimizer states), 2 (gradients, too) and 3 (params, "
      .. "too)"):format(stage))
  end
  sharding.batch(program, mesh, options.axis, options.bucket_mib)
  if stage > 0 then sharding.zero(program, mesh, options.axis, stage) end
end)
