--- A tensor-parallel MLP: the strategy is ten lines of this script.
-- orrery run scripts/mlp.lua --config configs/laptop.toml --set mesh.tp=2     (or 3: script.mlp is a multiple of both)
local o        = require "orrery"
local mlp      = require "orrery.models.mlp"
local strategy = require "orrery.strategy"
local S        = strategy.S

local opt = o.options {
  layers = { 2, "blocks" },
  embed  = { 64, "width of the residual stream" },
  mlp    = { 768, "width of the hidden layer" },
  lr     = { 1e-2, "learning rate" },
}

local split_mlp = strategy.define("tensor", { axis = "tp" }, function(program, _, options)
  for p in program:params() do
    for _, dim in ipairs(p.dims) do
      if dim == "mlp" then p:store { [options.axis] = S(dim) } end     -- columns of up, rows of down
    end
  end
end)

local data = o.data.file {}
local model = mlp { layers = opt.layers, embed = opt.embed, mlp = opt.mlp, vocab = data.vocab }
local program = o.trace("mlp", data.signature, function(batch)
  return model:loss(batch.tokens, batch.targets)
end)
program:train_with(o.optim.adamw { lr = opt.lr, decay = 0 })
program:parallel { split_mlp { axis = "tp" }, o.strategies.data { axis = "dp" } }

local run = program:compile()
print(run:summary())
run:train(data)
