--- Data parallelism: every rank has all params and a part of the batch. Propagation reduces the gradients, in messages
-- of at most `bucket_mib` (0: each alone), in the type `reduce` ("f32", or "bf16" with half the bytes).
-- plugins/strategy/data gives the same program.
local strategy = require "orrery.strategy"

return strategy.define("data", { axis = "dp", bucket_mib = 25, reduce = "f32" }, function(program, mesh, options)
  if mesh:size(options.axis) == 1 then return end
  for x in program:inputs() do
    for _, dim in ipairs(x.dims) do
      if dim == "batch" then x:store { [options.axis] = strategy.S "batch" } end
    end
  end
  program:bucket(options.axis, options.bucket_mib)
  if options.reduce ~= "f32" then program:reduce(options.axis, options.reduce) end
end)
