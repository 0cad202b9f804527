--- The marks of ZeRO (Rajbhandari et al. 2020), for the strategies zero and data.
local strategy = require "orrery.strategy"
local S, R, P = strategy.S, strategy.R, strategy.P

local sharding = {}

--- Splits optimizer states (stage 1), gradients (2) and params (3) over the axis. Where ops read a low-precision copy
-- of a param, the f32 param itself is split from stage 1 on, and the copy is gathered once a step.
function sharding.zero(program, mesh, axis, stage)
  local n = mesh:size(axis)
  if n == 1 then return end
  for p in program:params() do
    local dim = p:first_dim_divisible_by(n)          -- behind the axes that split it already
    if not dim then
      program:note(p, ("whole over %s=%d: no dim divides"):format(axis, n))
    else
      if stage == 3 or p:has_low_copy() then
        p:store { [axis] = S(dim) }
        p:use { [axis] = R, keep = stage == 3 and "fragment" or "step" }
      end
      p:state():store { [axis] = S(dim) }
      if stage == 1 then                             -- a sum until the last micro-batch, then scattered once
        p:grad():store { [axis] = P, optional = true }
        p:grad():use { [axis] = S(dim) }
      else
        p:grad():store { [axis] = S(dim) }
      end
    end
  end
end

--- Splits the dim `batch` of every input over the axis; collectives over it are joined.
function sharding.batch(program, mesh, axis, bucket_mib)
  if mesh:size(axis) == 1 then return end
  for x in program:inputs() do
    for _, dim in ipairs(x.dims) do
      if dim == "batch" then x:store { [axis] = S "batch" } end
    end
  end
  program:bucket(axis, bucket_mib)
end

return sharding
