--- Trains a Llama (RMSNorm, rotary positions, SwiGLU, grouped key/value heads).
-- orrery run scripts/llama.lua --config configs/laptop.toml
local o     = require "orrery"
local llama = require "orrery.models.llama"
local script_options = require "orrery.script_options"

local declared = script_options.with_codecs(script_options.with_methods {
  layers   = { 4, "blocks" },
  embed    = { 256, "width of the residual stream" },
  heads    = { 8, "query heads" },
  kv_heads = { 4, "key and value heads" },
  mlp      = { 688, "width of the feed-forward layer" },
  fused    = { true, "attention as one op; false: scores, mask, softmax and products as ops of their own" },
  context  = { "auto", "mesh axis cp: how attention reads a split row; auto: heads, or gather where an order is given",
               one_of = { "auto", "heads", "gather", "ring" } },
  order    = { "natural", "mesh axis cp: order of a row's tokens, so that ranks have equal work",
               one_of = { "natural", "zigzag", "balanced" } },
  loss_tile = { -1, "rows of a tile of the loss; 0: all logits at once; -1: at once up to 2^26, else tiles of 64 MiB" },
  documents = { false, "rows of packed documents; they end by .idx, data.separator or as lines of JSON" },
  lr       = { 1e-3, "peak learning rate" },
  warmup   = { 50, "steps until the peak" },
  sequence = { false, "mesh axis tp: split the activations between the blocks over the sequence" },
  zero     = { 0, "mesh axes dp, cp: 1, 2 or 3 also splits optimizer states, gradients, params" },
  replicate = { "rep", "mesh axis that splits the batch and holds copies of what zero splits over dp, cp (HSDP)" },
})
local opt = o.options(declared)

local data = o.data.file { documents = opt.documents }
local packed = opt.documents or opt.order ~= "natural"        -- attention by documents and positions
local model = llama {
  layers = opt.layers, embed = opt.embed, heads = opt.heads, kv_heads = opt.kv_heads, mlp = opt.mlp, vocab = data.vocab,
  fused = opt.fused, loss_tile = opt.loss_tile,
}
local program = o.trace("llama", packed and data.placed or data.signature, function(batch)
  return model:loss(batch.tokens, batch.targets, packed and batch or nil)
end)
local adamw = o.optim.adamw { lr = o.lr.cosine { peak = opt.lr, warmup = opt.warmup, floor = opt.lr / 10 } }
program:weights(model:tensors())
local replicate = script_options.replicate(declared, opt, o.config.mesh)
local axes = script_options.data_axes(opt, { "dp", "cp" })
local strategies = {                                          -- an axis that the mesh lacks is skipped
  o.strategy.pipeline { axis = "pp" },
  o.strategy.context { axis = "cp", method = opt.context, order = opt.order },
  o.strategy.tensor { axis = "tp", sequence = opt.sequence },
  o.strategy.data { axis = axes, replicate = replicate, codec = opt.codec, feedback = opt.feedback, zero = opt.zero },
  script_options.codecs(opt, axes),
}
script_options.train(program, adamw, strategies, declared, opt)
program:parallel(strategies)

local run = program:compile()
print(run:summary())
run:train(data)
