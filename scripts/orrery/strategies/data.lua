--- Data parallelism over an axis, or a list of axes. Propagation reduces the gradients, in messages of at most
-- `bucket_mib` (0: each alone), as `codec` encodes them ("none", or by axis: "rep=int4,dp=bf16"; `reduce = "bf16"` is
-- the codec of that name).
-- plugins/strategy/data gives the same program. Only it knows which codecs of plugins leave nothing to feed back.
local native, strategy = require "orrery.native", require "orrery.strategy"

--- The codecs of a text "rep=int4,dp=bf16" by axis; nil for a codec of all axes.
local function by_axis(codec, axes)
  if not codec:find "=" then return nil end
  local named = {}
  for part in (codec .. ","):gmatch "([^,]*)," do
    local axis, own = part:match "^([^=]*)=(.*)$"
    local known = false
    for _, other in ipairs(axes) do known = known or other == axis end
    if not known or named[axis] then
      native.fail(('strategy data: codec "%s": name each of its axes (%s) at most once, as in "%s=int8"')
        :format(codec, table.concat(axes, ", "), axes[#axes]))
    end
    named[axis] = own
  end
  return named
end

return strategy.define("data", { axis = "dp", bucket_mib = 25, codec = "none", feedback = false, reduce = "f32" },
function(program, mesh, options)
  if options.feedback and options.codec == "none" then
    native.fail('strategy data: feedback without a codec; give one, as in codec = "int8"')
  end
  if options.reduce == "bf16" and options.codec ~= "none" and options.codec ~= "bf16" then
    native.fail(('strategy data: codec is "%s" and reduce "bf16"; give codec alone'):format(options.codec))
  end
  local axes = strategy.axes("data", options.axis)
  local named = by_axis(options.codec, axes)
  local kept = not options.feedback
  for _, axis in ipairs(axes) do
    if mesh:size(axis) > 1 then
      local codec = named and (named[axis] or "none") or options.codec
      local plain = codec == "none" or codec == "bf16" or codec == "f16"
      local feedback = options.feedback and not (named and plain)
      kept = kept or feedback
      strategy.split_batch(program, axis)
      program:bucket(axis, options.bucket_mib)
      if codec ~= "none" then program:codec(axis, codec, { feedback = feedback }) end
      if options.reduce ~= "f32" then program:reduce(axis, options.reduce) end
    end
  end
  if not kept then
    native.fail(("strategy data: feedback has no effect: each axis (%s) is of one rank, or sends gradients in none, "
      .. "bf16 or f16, which leave nothing to feed back\n  leave feedback out"):format(table.concat(axes, ", ")))
  end
end)
