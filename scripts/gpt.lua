--- Trains a language model on a text or token file: GPT-2 by default; by script.model Llama, Qwen2, Mixtral, Qwen3-MoE.
-- orrery run scripts/gpt.lua --config configs/quickstart.toml
local o = require "orrery"
local script_options = require "orrery.script_options"
local words = script_options.words

local cfg = o.config                                          -- the TOML file, read-only
local declared = script_options.with_codecs(script_options.with_methods {
  model    = { "gpt", "architecture", one_of = { "gpt", "llama", "qwen2", "mixtral", "qwen3_moe" } },
  layers   = { 6, "blocks" },
  embed    = { 384, "width of the residual stream" },
  heads    = { 6, "query heads" },
  kv_heads = { 0, "key and value heads of all but gpt; 0: as many as heads" },
  mlp      = { 0, "width of the feed-forward layer; 0: 4 * embed" },
  tied     = { "auto", "head shared with the embedding; auto: as in the paper", one_of = { "yes", "no", "auto" } },
  fused    = { true, "attention as one op; false: scores, mask, softmax and products as ops of their own" },
  loss_tile = { -1, "rows of a tile of the loss; 0: all logits at once; -1: at once up to 2^26, else tiles of 64 MiB" },
  dropout  = { 0.0, "share of activations dropped while training; gpt only" },
  experts  = { 8, "mixtral, qwen3_moe: experts of a layer" },
  top_k    = { 2, "mixtral, qwen3_moe: experts of a token" },
  expert_mlp = { 0, "qwen3_moe: width of an expert; 0: mlp" },
  dense    = { 0, "qwen3_moe: first layers without experts" },
  capacity = { 0.0, "mixtral, qwen3_moe: slots of an expert, as a multiple of its even share; 0: 1.25, or with "
               .. "overflow = again 1, which the first step begins with" },
  overflow = { "drop", "mixtral, qwen3_moe: choices without a slot are dropped, or the step runs again with more slots",
               one_of = { "drop", "again" } },
  max_capacity = { 0.0, "mixtral, qwen3_moe with overflow = again: the largest capacity; 0: 2; experts / top_k holds "
                   .. "everything" },
  parts    = { 1, "mixtral, qwen3_moe: groups of tokens that a sequence is cut into; each has its own slots" },
  drop     = { "position", "mixtral, qwen3_moe with overflow = drop: the last, or the lightest choices find no slot",
               one_of = { "position", "weight" } },
  dispatch = { "slab", "mixtral, qwen3_moe: slab: a token is sent to each of its experts; rows: once to each block of "
               .. "experts that has any of them, in fewer bytes", one_of = { "slab", "rows" } },
  expert_blocks = { 0, "mixtral, qwen3_moe with dispatch = rows: equal blocks of experts; 0: one for each rank" },
  balance  = { "sequence", "mixtral, qwen3_moe: loss on uneven loads of experts in a sequence, group or the last step",
               one_of = { "none", "sequence", "groups", "last_step" } },
  balance_coefficient = { 0.01, "mixtral, qwen3_moe with balance: factor of that loss" },
  balance_groups = { 0, "mixtral, qwen3_moe with balance = groups: equal parts of a step's sequences" },
  bias_rate = { 0.0, "mixtral, qwen3_moe: step by which a bias of the choice moves against the loads" },
  z_loss   = { 0.0, "mixtral, qwen3_moe: factor of the squared log-sum-exp of the router's logits" },
  window   = { 0, "llama, mixtral: keys that a position sees, its own among them; 0: all before it" },
  qk_norm  = { false, "llama: normalise each head's q and k" },
  embed_std = { 0.02, "llama, mixtral, qwen3_moe: std of the embedding at the start" },
  zero_out = { false, "llama: projections onto the residual stream start at zero" },
  documents = { false, "rows of packed documents; they end by .idx, data.separator or as lines of JSON" },
  sgd      = { false, "SGD with momentum 0.9 and without clipping instead of AdamW" },
  lr       = { 1e-3, "peak learning rate" },
  schedule = { "cosine", "how the rate falls after the warm-up", one_of = { "cosine", "linear" } },
  floor    = { 0.1, "last learning rate, as a share of the peak" },
  warmup   = { 50, "steps until the peak" },
  decay    = { 0.1, "weight decay of matrices and tables" },
  pipeline = { "1f1b", "mesh axis pp: schedule of its stages, a name in orrery/schedules or a file beside this one" },
  chunks   = { 0, "mesh axis pp: stages of each rank; 0: as many as the schedule needs; interleaved has 2 or more" },
  stages   = { "", "mesh axis pp: layers of each stage, as in 11,13,12; empty: cut by cost" },
  ends     = { false, "mesh axis pp: the embedding and the head count as layers when stages are cut" },
  context  = { "auto", "mesh axis cp: how attention reads a split row; auto: heads, or gather where an order is given",
               one_of = { "auto", "heads", "gather", "ring" } },
  order    = { "natural", "mesh axis cp: order of a row's tokens, so that ranks have equal work",
               one_of = { "natural", "zigzag", "balanced" } },
  expert_axes = { "ep", "mesh axes that share the experts of a mixture: ep, or others as in dp,cp",
                  list_of = { "cp", "dp", "ep", "pp", "rep", "tp" } },
  sequence = { false, "mesh axis tp: split what lies between the blocks over the sequence" },
  recompute = { "none", "made again in the backward pass: none, all of a block, or kinds of op as in layernorm,gelu" },
  recompute_layers = { 0, "with recompute: number of layers to recompute, spread evenly; 0: all" },
  zero     = { 0, "mesh axes dp, ep, cp: 1, 2 or 3 also splits optimizer states, gradients, params" },
  replicate = { "rep", "mesh axis that splits the batch and holds copies of what zero splits over dp, ep, cp (HSDP)" },
})
local opt = o.options(declared)

local takes = {                                               -- options that not every model has
  gpt   = { dropout = true },
  llama = { kv_heads = true, window = true, qk_norm = true, embed_std = true, zero_out = true },
  qwen2 = { kv_heads = true },
  mixtral = { kv_heads = true, window = true, embed_std = true },
  qwen3_moe = { kv_heads = true, embed_std = true, expert_mlp = true, dense = true },
}
local of_experts = "experts top_k capacity max_capacity parts overflow drop dispatch expert_blocks"
local of_balance = " balance balance_coefficient balance_groups bias_rate z_loss"
for key in (of_experts .. of_balance):gmatch "%S+" do takes.mixtral[key], takes.qwen3_moe[key] = true, true end
local mine = takes[opt.model]
for other, keys in pairs(takes) do
  for key in pairs(keys) do
    if not mine[key] and opt[key] ~= declared[key][1] then
      error(("script.%s = %s: %s has no such option, %s has\n  leave it out, or set script.model")
        :format(key, opt[key], opt.model, other))
    end
  end
end
script_options.check_mixture(declared, opt)
script_options.check_recompute(opt)

local data = o.data.file { documents = opt.documents }
local packed = opt.documents or opt.order ~= "natural"        -- attention by documents and positions
local sizes = {
  layers = opt.layers, embed = opt.embed, heads = opt.heads, vocab = data.vocab, fused = opt.fused,
  mlp = opt.mlp ~= 0 and opt.mlp or 4 * opt.embed, loss_tile = opt.loss_tile,
}
if opt.tied ~= "auto" then sizes.tied = opt.tied == "yes" end
if opt.model == "gpt" then
  sizes.seq, sizes.dropout = data.seq, opt.dropout            -- gpt learns one vector per position
else
  sizes.kv_heads = opt.kv_heads ~= 0 and opt.kv_heads or opt.heads
end
if mine.window then sizes.window = opt.window end
if mine.embed_std then sizes.embed_std = opt.embed_std end
if mine.experts then
  for key in of_experts:gmatch "%S+" do sizes[key] = opt[key] end
  for _, key in ipairs { "capacity", "max_capacity" } do sizes[key] = opt[key] ~= 0 and opt[key] or nil end
  sizes.expert_blocks = script_options.expert_blocks(opt, cfg.mesh)
  sizes.balance = { loss = opt.balance, coefficient = opt.balance_coefficient, groups = opt.balance_groups,
                    z = opt.z_loss, rate = opt.bias_rate }
end
if opt.model == "qwen3_moe" then
  sizes.head_dim, sizes.dense = opt.embed // opt.heads, opt.dense
  sizes.expert_mlp = opt.expert_mlp ~= 0 and opt.expert_mlp or sizes.mlp
elseif opt.model == "llama" then
  sizes.qk_norm, sizes.std_out = opt.qk_norm, opt.zero_out and 0
end
local model = require("orrery.models." .. opt.model)(sizes)

local program = o.trace(opt.model, packed and data.placed or data.signature, function(batch)    -- runs once, records
  return model:loss(batch.tokens, batch.targets, packed and batch or nil)
end)
local rate = o.lr[opt.schedule] {
  peak = opt.lr, warmup = opt.warmup, floor = opt.lr * opt.floor, steps = cfg.train.steps,
}
local optimizer = opt.sgd and o.optim.sgd { lr = rate, decay = opt.decay }
  or o.optim.adamw { lr = rate, decay = opt.decay, beta2 = 0.95, clip = 1.0 }
local tensors = model:tensors()                               -- what checkpoint.load finds in published files
program:weights(tensors)
local stages = script_options.stages(opt, cfg.mesh)
local replicate = script_options.replicate(declared, opt, cfg.mesh)
local axes = script_options.data_axes(opt, { "dp", "ep", "cp" })
local strategies = {                                          -- an axis that the mesh lacks is skipped
  o.strategy.pipeline { axis = "pp", schedule = opt.pipeline, chunks = opt.chunks, ends = opt.ends, layers = stages },
  o.strategy.context { axis = "cp", method = opt.context, order = opt.order },
  o.strategy.expert { axes = words(opt.expert_axes) },
  o.strategy.tensor { axis = "tp", sequence = opt.sequence },
  o.strategy.data { axis = axes, replicate = replicate, codec = opt.codec,
    feedback = opt.feedback, zero = opt.zero },
  script_options.codecs(opt, axes),
}
if opt.recompute ~= "none" then
  local kinds = opt.recompute ~= "all" and words(opt.recompute) or nil
  table.insert(strategies, 1, o.strategy.recompute { kinds = kinds, layers = opt.recompute_layers })
end
script_options.train(program, optimizer, strategies, declared, opt)
program:parallel(strategies)

local run = program:compile()                                 -- one instruction stream per rank class
print(run:summary())
if mine.experts then script_options.tell_drops(opt, opt.capacity > 0 and opt.capacity or 1.25, opt) end
if tensors.published.problem then
  print(("export: %s\n  orrery export writes this model only with --raw"):format(tensors.published.problem))
end
run:train(data)                                               -- [train] says how long
