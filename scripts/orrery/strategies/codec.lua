--- Codecs of what other strategies send over an axis, or a list of axes: `params` that ZeRO-3 gathers, and the
-- `activations` of tensor, expert and pipeline with their gradients. Gradients of params: `codec` of data and zero.
local strategy = require "orrery.strategy"

return strategy.define("codec", { axis = "tp", params = "none", activations = "none" },
function(program, _, options)
  for _, axis in ipairs(strategy.axes("codec", options.axis)) do
    for _, of in ipairs { "params", "activations" } do
      if options[of] ~= "none" then program:codec(axis, options[of], { of = of }) end
    end
  end
end)
