--- Trains a language model on the bytes of a text. The .toml files describe machines, this file the experiment.
local o     = require "orrery"
local llama = require "orrery.models.llama"

local opt = o.options {                             -- orrery run train.lua --config laptop.toml --set script.steps=600
  layers = { 4, "blocks" },
  embed  = { 128, "width of the residual stream" },
  heads  = { 4, "attention heads" },
  mlp    = { 384, "width of the feed-forward layer" },
  seq    = { 64, "bytes of a training sequence" },
  batch  = { 8, "sequences of a step, over all ranks" },
  steps  = { 200, "optimizer steps" },
  lr     = { 2e-3, "peak learning rate" },
}

local data  = o.data.text { batch = opt.batch, seq = opt.seq }             -- of data.path, a key of the .toml file
local model = llama {
  layers = opt.layers, embed = opt.embed, heads = opt.heads, mlp = opt.mlp, vocab = data.vocab,
  embed_std = 0.3, std_out = 0,                                            -- learns faster from a small text
}

local program = o.trace("sundial", data.signature, function(batch)         -- runs once, records
  return model:loss(batch.tokens, batch.targets)
end)
program:train_with(o.optim.adamw {
  lr = o.lr.cosine { peak = opt.lr, warmup = 20, floor = opt.lr / 10, steps = opt.steps }, decay = 0.1, clip = 1.0,
})
program:weights(model:tensors())                                           -- names for `orrery export`
program:parallel { o.strategy.data { axis = "dp" } }                       -- each rank has a part of the batch

local run = program:compile()
print(run:summary())
run:train(data, { steps = opt.steps })
