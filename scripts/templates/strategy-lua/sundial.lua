--- The strategy sundial: each matrix of the model rests with one dim split over a mesh axis, and is gathered
--- where it is read. Change the function: marks are all that a strategy writes, collectives are derived from them.
local strategy = require "orrery.strategy"
local R, S = strategy.R, strategy.S

return strategy.define("sundial", { axis = "dp" }, function(program, mesh, options)
  local ranks = mesh:size(options.axis)
  if ranks == 1 then return end
  for x in program:inputs() do
    for _, dim in ipairs(x.dims) do
      if dim == "batch" then x:store { [options.axis] = S "batch" } end
    end
  end
  for p in program:params() do
    if #p.shape >= 2 and p.shape[1] % ranks == 0 then
      p:store { [options.axis] = S(1) }
      p:use { [options.axis] = R }
    end
  end
end)
