--- Data parallelism over an axis, or a list of axes. Propagation reduces the gradients, in messages of at most
-- `bucket_mib` (0: each alone), as `codec` encodes them ("none"; `reduce = "bf16"` is the codec of that name).
-- plugins/strategy/data gives the same program.
local strategy = require "orrery.strategy"

return strategy.define("data", { axis = "dp", bucket_mib = 25, codec = "none", feedback = false, reduce = "f32" },
function(program, mesh, options)
  for _, axis in ipairs(strategy.axes("data", options.axis)) do
    if mesh:size(axis) > 1 then
      strategy.split_batch(program, axis)
      program:bucket(axis, options.bucket_mib)
      if options.codec ~= "none" then program:codec(axis, options.codec, { feedback = options.feedback }) end
      if options.reduce ~= "f32" then program:reduce(axis, options.reduce) end
    end
  end
end)
