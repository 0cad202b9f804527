--- Data parallelism over an axis, or a list of axes. Propagation reduces the gradients, in messages of at most
-- `bucket_mib` (0: each alone), as `codec` encodes them ("none"; `reduce = "bf16"` is the codec of that name).
-- plugins/strategy/data gives the same program, and refuses more: feedback over axes of one rank.
local native, strategy = require "orrery.native", require "orrery.strategy"

return strategy.define("data", { axis = "dp", bucket_mib = 25, codec = "none", feedback = false, reduce = "f32" },
function(program, mesh, options)
  if options.feedback and options.codec == "none" then
    native.fail('strategy data: feedback without a codec; give one, as in codec = "int8"')
  end
  if options.reduce == "bf16" and options.codec ~= "none" and options.codec ~= "bf16" then
    native.fail(('strategy data: codec is "%s" and reduce "bf16"; give codec alone'):format(options.codec))
  end
  for _, axis in ipairs(strategy.axes("data", options.axis)) do
    if mesh:size(axis) > 1 then
      strategy.split_batch(program, axis)
      program:bucket(axis, options.bucket_mib)
      if options.codec ~= "none" then program:codec(axis, options.codec, { feedback = options.feedback }) end
      if options.reduce ~= "f32" then program:reduce(axis, options.reduce) end
    end
  end
end)
