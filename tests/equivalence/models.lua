--- A model of the library with AdamW as the parity files have it, on a mesh that the test chooses.
local o = require "orrery"

local opt = o.options {
  model      = { "gpt", "gpt, llama, qwen2, mixtral or mlp" },
  layers     = { 2, "blocks" },
  embed      = { 32, "width of the residual stream" },
  heads      = { 4, "query heads" },
  kv_heads   = { 2, "key and value heads of llama and qwen2" },
  mlp        = { 48, "width of the feed-forward layer" },
  vocab      = { 40, "words" },
  context    = { 8, "positions that gpt learns" },
  eps        = { 1e-5, "of the norms" },
  theta      = { 10000.0, "of the rotary positions" },
  dropout    = { 0.0, "gpt only" },
  strategy   = { "plugin", "plugin or twin: data and context parallelism in C++ or in Lua" },
  parts      = { 1, "mixtral: groups of tokens of a sequence" },
  experts    = { 8, "mixtral" },
  top_k      = { 2, "mixtral: experts of a token" },
  expert_blocks = { 0, "mixtral: a token is sent once to each of so many blocks of experts; 0: to each expert" },
  experts_over = { "", "axes that share experts" },
  bucket_mib = { 25, "largest message of gradients" },
  reduce     = { "f32", "type in which gradients are sent over dp and cp" },
  fused      = { true, "attention as one op" },
  tied       = { true, "gpt: the head is the table" },
  rows       = { 0, "rows of the table, of which `vocab` have a word; 0: vocab" },
  loss_tile  = { -1, "rows whose logits exist at a time" },
  schedule   = { "1f1b", "of the pipeline" },
  chunks     = { 1, "stages that a rank of the pipeline has" },
  stages     = { "", "layers of each stage, \"1 0 1\"; cut by cost when empty" },
  ends       = { false, "the embedding and the head count as layers" },
  cp         = { "", "how the axis cp shares the sequence: heads, gather or ring; empty: it shares the batch" },
  co         = { "", "how the axis co, outside of cp, shares it: gather or ring" },
  keep       = { false, "gather: keys and values are gathered once for both passes" },
  order      = { "natural", "of the tokens of rows, over cp" },
  packed     = { false, "rows of several documents, or in an order: attention by documents and positions" },
  sequence   = { false, "tp also splits what lies between the blocks" },
  keep_gathered = { false, "with sequence: a block's input is gathered once for both passes" },
  optional   = { false, "tp keeps whole what it cannot split" },
  zero       = { 0, "stage over dp and cp" },
  replicate  = { "", "the axis that repeats what zero splits" },
  recompute  = { "", "full or selective" },
  loss_scale = { 0.0, "the first one; 0: none in f32 and bf16, the default in f16" },
  interval   = { 1000, "finite steps until the loss scale grows" },
}

local data = o.data.text {}
local sizes = { layers = opt.layers, embed = opt.embed, mlp = opt.mlp, vocab = opt.vocab }
if opt.model == "gpt" then
  sizes.heads, sizes.seq, sizes.eps, sizes.dropout = opt.heads, opt.context, opt.eps, opt.dropout
elseif opt.model ~= "mlp" then
  sizes.heads, sizes.kv_heads, sizes.eps, sizes.theta = opt.heads, opt.kv_heads, opt.eps, opt.theta
end
if opt.model ~= "mlp" then sizes.fused, sizes.loss_tile = opt.fused, opt.loss_tile end
if opt.model == "gpt" or opt.model == "llama" then sizes.rows = opt.rows end
if opt.model == "mixtral" then
  sizes.experts, sizes.top_k, sizes.parts = opt.experts, opt.top_k, opt.parts
  if opt.expert_blocks > 0 then sizes.dispatch, sizes.expert_blocks = "rows", opt.expert_blocks end
end
if opt.model == "gpt" then sizes.tied = opt.tied end
local model = require("orrery.models." .. opt.model)(sizes)

local program = o.trace(opt.model, opt.packed and data.placed or data.signature, function(batch)
  return model:loss(batch.tokens, batch.targets, opt.packed and batch or nil)
end)
local scaling = opt.loss_scale > 0
  and { initial = opt.loss_scale, most = math.max(opt.loss_scale, 32768), interval = opt.interval } or nil
program:train_with(o.optim.adamw { lr = 1e-3, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, decay = 0.1, clip = 1.0 },
  { loss_scale = scaling })
if model.tensors then program:weights(model:tensors()) end
local layers = {}
for count in opt.stages:gmatch "%d+" do layers[#layers + 1] = math.tointeger(count) end
program:parallel {
  o.strategy.pipeline { axis = "pp", schedule = opt.schedule, chunks = opt.chunks, layers = layers, ends = opt.ends },
}
local strategies = opt.strategy == "twin" and o.strategies or o.strategy
if opt.co ~= "" then program:parallel { strategies.context { axis = "co", method = opt.co, order = opt.order } } end
if opt.cp ~= "" then
  local order = opt.co == "" and opt.order or "natural"
  program:parallel { strategies.context { axis = "cp", method = opt.cp, order = order, keep = opt.keep } }
end
local over = {}
for axis in opt.experts_over:gmatch "%S+" do over[#over + 1] = axis end
if #over > 0 then program:parallel { strategies.expert { axes = over } } end
local asked = { o.strategy.tensor { axis = "tp", sequence = opt.sequence, keep = opt.keep_gathered,
                                    optional = opt.optional } }
if opt.zero > 0 then
  asked[2] = o.strategy.zero { axis = { "dp", "ep", "co", "cp" }, replicate = opt.replicate, stage = opt.zero,
    bucket_mib = opt.bucket_mib, reduce = opt.reduce }
end
if opt.recompute == "full" then asked[#asked + 1] = o.strategy.recompute {} end
if opt.recompute == "selective" then
  local kinds = opt.model == "gpt" and { "gelu", "layernorm" } or { "swiglu", "rmsnorm" }
  if opt.fused then kinds[3] = "attention" end
  asked[#asked + 1] = o.strategy.recompute { kinds = kinds }
end
asked[#asked + 1] = strategies.data {
  axis = { "dp", "ep", "co", "cp" }, bucket_mib = opt.bucket_mib, reduce = opt.reduce,
}
program:parallel(asked)
program:compile()
