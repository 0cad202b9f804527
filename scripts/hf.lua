--- Trains a published model on: what config.json says is built, and begins with the weights beside it.
-- orrery run scripts/hf.lua --config configs/laptop.toml --set checkpoint.load=FOLDER
local o = require "orrery"
local script_options = require "orrery.script_options"
local words = script_options.words

local cfg = o.config
local declared = script_options.with_codecs(script_options.with_methods {
  fused    = { true, "attention as one op; false: scores, mask, softmax and products as ops of their own" },
  loss_tile = { -1, "rows of a tile of the loss; 0: all logits at once; -1: at once up to 2^26, else tiles of 64 MiB" },
  dropout  = { 0.0, "share of activations dropped while training; gpt2 only" },
  capacity = { 0.0, "experts: slots of one in a sequence, times the even share; 0: each token finds one, or with "
               .. "overflow = again 1, which the first step begins with" },
  overflow = { "drop", "experts: choices without a slot are dropped, or the step runs again with more slots",
               one_of = { "drop", "again" } },
  max_capacity = { 0.0, "experts with overflow = again: the largest capacity; 0: 2; experts / top_k holds everything" },
  parts    = { 1, "experts: groups of tokens that a sequence is cut into; with mesh axis cp: a multiple of its size" },
  dispatch = { "slab", "experts: slab: a token is sent to each of its experts; rows: once to each block of experts "
               .. "that has any of them, in fewer bytes", one_of = { "slab", "rows" } },
  expert_blocks = { 0, "experts with dispatch = rows: equal blocks of experts; 0: one for each rank" },
  balance  = { "none", "experts: loss on uneven loads in a sequence, or by the loads of the last step",
               one_of = { "none", "sequence", "last_step" } },
  balance_coefficient = { 0.01, "experts with balance: factor of that loss" },
  bias_rate = { 0.0, "experts: step of a bias of the choice towards even loads; DeepSeek-V3 has the bias" },
  z_loss   = { 0.0, "experts: factor of the z-loss" },
  mtp_weight = { 0.0, "deepseek_v3: factor of the loss of multi-token prediction, as 0.1; 0: without its module" },
  experts  = { 0, "makes a mixture of so many copies of a dense model's block, with a new router; 0: as published" },
  top_k    = { 0, "with script.experts: experts of a token; 0: 2" },
  unread   = { "", "keys of config.json to leave unread, as in key,key" },
  documents = { false, "rows of packed documents; they end by .idx, data.separator or as lines of JSON" },
  lr       = { 2e-5, "peak learning rate" },
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
  optional = { false, "mesh axis tp: what it does not divide stays whole, and check lists it, instead of an error" },
  recompute = { "none", "made again in the backward pass: none, all of a block, or kinds of op as in rmsnorm,swiglu" },
  recompute_layers = { 0, "with recompute: number of layers to recompute, spread evenly; 0: all" },
  zero     = { 0, "mesh axes dp, ep, cp: 1, 2 or 3 also splits optimizer states, gradients, params" },
  replicate = { "rep", "mesh axis that splits the batch and holds copies of what zero splits over dp, ep, cp (HSDP)" },
})

local opt = o.options(declared)
script_options.check_mixture(declared, opt)
script_options.check_recompute(opt)

local data = o.data.file { documents = opt.documents }
local packed = opt.documents or opt.order ~= "natural"        -- attention by documents and positions
local more = { fused = opt.fused, dropout = opt.dropout ~= 0 and opt.dropout or nil, loss_tile = opt.loss_tile,
               capacity = opt.capacity ~= 0 and opt.capacity or nil,
               max_capacity = opt.max_capacity ~= 0 and opt.max_capacity or nil }
if opt.mtp_weight ~= 0 then more.mtp_weight = opt.mtp_weight end
if opt.parts ~= 1 then more.parts = opt.parts end
if opt.experts < 0 then error(("script.experts = %d: expected a number of experts, or 0"):format(opt.experts)) end
if opt.experts > 0 then more.experts, more.top_k = opt.experts, opt.top_k ~= 0 and opt.top_k or 2 end
if opt.overflow == "again" then more.overflow = "again" end
if opt.dispatch == "rows" then
  more.dispatch, more.expert_blocks = "rows", script_options.expert_blocks(opt, cfg.mesh)
end
if opt.balance ~= "none" or opt.bias_rate ~= 0 or opt.z_loss ~= 0 then
  more.balance = { loss = opt.balance, coefficient = opt.balance_coefficient, rate = opt.bias_rate, z = opt.z_loss }
end
local model, published = o.published.model(cfg.checkpoint.load,
  { seq = data.seq, unread = words(opt.unread), more = more })
if opt.top_k ~= 0 and opt.experts == 0 then
  local said = published.sizes.top_k and "the folder says num_experts_per_tok = " .. published.sizes.top_k
    or published.type .. " has no experts"
  error(("script.top_k = %d: %s\n  leave it out, or give script.experts to upcycle a dense model")
    :format(opt.top_k, said))
end
for key in ("capacity overflow parts dispatch balance bias_rate z_loss"):gmatch "%S+" do
  if not published.sizes.experts and opt[key] ~= declared[key][1] then
    error(("script.%s = %s: %s has no experts\n  leave it out"):format(key, opt[key], published.type))
  end
end

local program = o.trace(published.type, packed and data.placed or data.signature, function(batch)
  return model:loss(batch.tokens, batch.targets, packed and batch or nil)
end)
local adamw = o.optim.adamw {
  lr = o.lr.cosine { peak = opt.lr, warmup = opt.warmup, floor = opt.lr * opt.floor, steps = cfg.train.steps },
  decay = opt.decay, beta2 = 0.95, clip = 1.0,
}
local tensors = model:tensors()
program:weights(tensors)
local stages = script_options.stages(opt, cfg.mesh)
local replicate = script_options.replicate(declared, opt, cfg.mesh)
local axes = script_options.data_axes(opt, { "dp", "ep", "cp" })
local strategies = {
  o.strategy.pipeline { axis = "pp", schedule = opt.pipeline, chunks = opt.chunks, ends = opt.ends, layers = stages },
  o.strategy.context { axis = "cp", method = opt.context, order = opt.order },
  o.strategy.expert { axes = words(opt.expert_axes) },
  o.strategy.tensor { axis = "tp", sequence = opt.sequence, optional = opt.optional },
  o.strategy.data { axis = axes, replicate = replicate, codec = opt.codec,
    feedback = opt.feedback, zero = opt.zero },
  script_options.codecs(opt, axes),
}
if opt.recompute ~= "none" then
  local kinds = opt.recompute ~= "all" and words(opt.recompute) or nil
  local scopes = opt.mtp_weight > 0 and opt.recompute_layers == 0 and {} or nil
  for i = 1, scopes and published.sizes.layers or 0 do scopes[i] = "layers." .. i - 1 end
  if scopes then scopes[#scopes + 1] = "mtp" end              -- recomputed when all are; counts as no layer
  table.insert(strategies, 1, o.strategy.recompute { kinds = kinds, scopes = scopes, layers = opt.recompute_layers })
end
script_options.train(program, adamw, strategies, declared, opt)
program:parallel(strategies)

local run = program:compile()
print(run:summary())
if (published.left_out or 0) > 0 then
  print(("multi-token prediction: %d module%s of the published files %s not loaded, trained or exported"
    .. "; set script.mtp_weight to train it"):format(published.left_out, published.left_out > 1 and "s" or "",
    published.left_out > 1 and "are" or "is"))
end
if opt.capacity > 0 then script_options.tell_drops(opt, opt.capacity, published.sizes) end
if tensors.published.problem then
  print(("export: %s\n  orrery export writes this model only with --raw"):format(tensors.published.problem))
end
run:train(data)
