--- ZeRO: data parallelism whose optimizer states (stage 1), gradients (2) and params (3) are split over `axis`. With
-- `replicate`, the whole is repeated over that axis: hybrid sharding. The Lua twin of plugins/strategy/zero.
local native = require "orrery.native"
local strategy = require "orrery.strategy"
local sharding = require "orrery.sharding"

local defaults = { axis = "dp", replicate = "", stage = 1, bucket_mib = 25 }

return strategy.define("zero", defaults, function(program, mesh, options)
  local stage = options.stage
  if stage ~= 1 and stage ~= 2 and stage ~= 3 then
    native.fail(("strategy zero: stage is %s; there are 1 (optimizer states), 2 (gradients, too) and 3 (params, too)")
      :format(stage))
  end
  if options.replicate == options.axis then
    native.fail(("strategy zero: replicate is %s, the axis that it splits over; name another axis")
      :format(options.replicate))
  end
  if options.replicate ~= "" then sharding.batch(program, mesh, options.replicate, options.bucket_mib) end
  sharding.batch(program, mesh, options.axis, options.bucket_mib)
  sharding.zero(program, mesh, options.axis, stage)
end)
