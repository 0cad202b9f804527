--- A model of the library under the strategies that a cell of the grid names.
local o = require "orrery"

local opt = o.options {
  model    = { "gpt", "gpt, llama, qwen2, mixtral or qwen3_moe" },
  layers   = { 2, "blocks" },
  zero     = { 0, "1, 2 or 3: what is split over dp" },
  rep      = { false, "plain data parallelism over the axis rep, beside dp" },
  sequence = { false, "split over tp what lies between the blocks" },
  window   = { 0, "llama: keys that a position sees" },
  context  = { "", "how cp shares the sequence: heads, gather or ring; empty: cp shares the batch" },
  outer    = { "gather", "how co, outside of cp, shares it: gather or ring" },
  order    = { "natural", "of the tokens of rows, over the outer of both axes" },
  packed   = { false, "rows of documents, with the position of each token in its own" },
  dropout  = { 0.0, "gpt only" },
  schedule = { "", "of the pipeline over pp" },
  experts_over = { "", "mesh axes that share experts" },
  same_tokens = { false, "ranks of ep have the same tokens" },
  parts    = { 1, "groups of tokens of a row" },
  expert_blocks = { 0, "a token is sent once to each of so many blocks of experts; 0: to each expert" },
}

local data = o.data.text {}
local sizes = { layers = opt.layers, embed = 32, heads = 4, mlp = 48, vocab = 40 }
if opt.model == "gpt" then
  sizes.seq, sizes.dropout = data.seq, opt.dropout
else
  sizes.kv_heads = 2
end
if opt.model == "mixtral" or opt.model == "qwen3_moe" then
  sizes.experts, sizes.top_k, sizes.parts = 8, 2, opt.parts
  if opt.expert_blocks > 0 then sizes.dispatch, sizes.expert_blocks = "rows", opt.expert_blocks end
end
if opt.model == "qwen3_moe" then sizes.head_dim, sizes.expert_mlp, sizes.dense = 8, 16, 1 end
if opt.window > 0 then sizes.window = opt.window end
local model = require("orrery.models." .. opt.model)(sizes)

local places = opt.packed or opt.order ~= "natural"
local program = o.trace(opt.model, places and data.placed or data.signature, function(batch)
  return model:loss(batch.tokens, batch.targets, places and batch or nil)
end)
program:train_with(o.optim.adamw { lr = 1e-3, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, decay = 0.1, clip = 1.0 })

local list = {}
if opt.schedule ~= "" then
  local chunks = (opt.schedule == "interleaved" or opt.schedule == "zbv") and 2 or 1
  list[1] = o.strategy.pipeline { axis = "pp", schedule = opt.schedule, chunks = chunks }
end
program:parallel(require "spread"(opt, list))
program:compile()
