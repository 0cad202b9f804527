--- Trains a small network on points that the plugin makes.
local o  = require "orrery"
local nn = require "orrery.nn"

local data = o.data.sundial { features = 8 }
local program = o.trace("try", data.signature, function(batch)
  local h = nn.linear(batch.x, "up", { "hidden", 32 }):gelu()
  local error = nn.linear(h, "down", { "outputs", 1 }) - batch.y
  return error:square():sum(), o.constant(batch.x.shape[1])
end)
program:train_with(o.optim.adamw { lr = 1e-2, decay = 0 })
program:parallel { o.strategies.data { axis = "dp" } }
program:compile():train(data)
