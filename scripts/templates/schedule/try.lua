--- Trains a small network of four layers in two stages, in the order of the schedule sundial.
local o   = require "orrery"
local mlp = require "orrery.models.mlp"

local data = o.data.file {}
local model = mlp { layers = 4, embed = 32, mlp = 64, vocab = data.vocab }
local program = o.trace("try", data.signature, function(batch)
  return model:loss(batch.tokens, batch.targets)
end)
program:train_with(o.optim.adamw { lr = 1e-2 })
program:parallel { o.strategy.pipeline { axis = "pp", microbatches = 4, schedule = "sundial" } }
program:compile():train(data)
