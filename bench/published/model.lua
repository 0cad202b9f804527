--- A decoder-only transformer as published rows describe one: norms, positions, activation, biases and head by options.
-- The program `published` writes the configuration; nothing here is trained.
local o  = require "orrery"
local nn = require "orrery.nn"

local opt = o.options {
  layers     = { 2, "blocks" },
  embed      = { 64, "width of the residual stream" },
  heads      = { 4, "query heads" },
  kv_heads   = { 4, "key and value heads" },
  head_dim   = { 0, "width of a head; 0: embed / heads" },
  mlp        = { 256, "width of the feed-forward layer" },
  vocab      = { 256, "words" },
  activation = { "gelu", "gelu or relu2 (two products), swiglu (three)" },
  norm       = { "layernorm", "layernorm or rmsnorm" },
  positions  = { "learned", "learned, rope or none" },
  bias       = { true, "products add a bias" },
  tied       = { true, "head shared with the embedding" },
  schedule   = { "1f1b", "of the pipeline" },
  chunks     = { 1, "stages that a rank of the pipeline has" },
  stages     = { 0, "stages of equally many blocks; 0: the embedding and the head count as blocks, too" },
  stage_blocks = { "", "blocks of each stage, as 11,5; empty: as `stages` says" },
  sequence   = { false, "tp also splits what lies between the blocks" },
  saves_gathered = { false, "with sequence: what tp has gathered is saved for the backward pass" },
  context    = { "ring", "method over cp" },
  order      = { "natural", "of a row's tokens over cp" },
  zero       = { 0, "stage over dp and cp" },
  replicate  = { "", "the axis that repeats what zero splits" },
  bucket_mib = { 160, "largest joined message" },
  experts    = { 0, "of a mixture in place of each feed-forward layer; 0: none" },
  top_k      = { 1, "experts of a token" },
  expert_mlp = { 0, "width of an expert" },
  capacity   = { 1.0, "slots of the experts over their even share" },
  parts      = { 1, "groups of tokens in a sequence" },
  recompute  = { "none", "none, full, attention, ops, or every:N and first:N for whole blocks" },
}

local data = o.data.text {}
local tokens_per_sequence = o.config.data.tokens_per_sequence
local vocab, embed = { "vocab", opt.vocab }, { "embed", opt.embed }
local plain = { bias = opt.bias }

local norm = opt.norm == "rmsnorm" and nn.rmsnorm or nn.layernorm

--- x [B, T, C] -> [B, T, C]: one feed-forward layer.
local function feed_forward(x)
  if opt.experts > 0 then
    return (nn.moe(x, { experts = opt.experts, top_k = opt.top_k, mlp = opt.expert_mlp, capacity = opt.capacity,
                        parts = opt.parts }))
  end
  local up = nn.linear(x, "up", { "mlp", opt.mlp }, plain)
  if opt.activation == "swiglu" then
    up = nn.linear(x, "gate", { "mlp", opt.mlp }, plain):swiglu(up)
  elseif opt.activation == "relu2" then
    up = up:relu():square()
  else
    up = up:gelu { approx = "tanh" }
  end
  return nn.linear(up, "down", embed, plain)
end

local placed = opt.order ~= "natural"         -- tokens are known by documents and positions

--- batch.tokens i32 [B, T] -> logits [B, T, V]
local function logits(batch)
  local attention = { heads = opt.heads, kv_heads = opt.kv_heads, bias = opt.bias,
                      head_dim = opt.head_dim > 0 and opt.head_dim or nil,
                      rope = opt.positions == "rope" and 1e4 or nil }
  if placed then attention.documents, attention.positions = batch.documents, batch.positions end
  local x = nn.embedding(batch.tokens, "embedding", vocab, embed)
  if opt.positions == "learned" and placed then
    x = x + nn.embedding(batch.positions, "positions", { "positions", tokens_per_sequence }, embed)
  elseif opt.positions == "learned" then
    local positions = nn.table("positions", { "positions", tokens_per_sequence }, embed)
    x = x + positions:reshape { { "seq", tokens_per_sequence }, "embed" }
  end
  for i = 0, opt.layers - 1 do
    nn.scope("layers." .. i, function()
      x = x + nn.scope("attention", nn.attention, norm(x, "before_attention"), attention)
      x = x + nn.scope("mlp", feed_forward, norm(x, "before_mlp"))
    end)
  end
  x = norm(x, "last_norm")
  if opt.tied then return x:matmul(nn.table("embedding", vocab, embed), { trans_b = true }) end
  return nn.linear(x, "head", vocab, { bias = false })
end

--- What of the blocks is made again: scopes and kinds for the strategy recompute; nil: nothing.
local function recomputed()
  local how, count = opt.recompute:match "^(%a+):?(%d*)$"
  if how == "none" then return nil end
  if how == "full" then return { {} } end
  if how == "attention" then return { { kinds = { "attention" } } } end
  local scopes = {}
  if how == "ops" then                      -- every second product, and all that is cheap (torchtitan's default)
    for i = 0, opt.layers - 1 do
      for _, part in ipairs { "attention.k", "attention.o", "mlp.up" } do
        scopes[#scopes + 1] = ("layers.%d.%s"):format(i, part)
      end
    end
    local cheap = { opt.norm, "add" }
    if opt.positions == "rope" then cheap[#cheap + 1] = "rope" end
    local activation = opt.experts > 0 and { "swiglu" } or opt.activation == "relu2" and { "relu", "square" }
      or { opt.activation }
    table.move(activation, 1, #activation, #cheap + 1, cheap)
    return { { scopes = scopes, kinds = { "matmul" } }, { kinds = cheap } }
  end
  local n = math.tointeger(count)
  for i = 0, opt.layers - 1 do
    if how == "every" and i % n == 0 or how == "first" and i < n then scopes[#scopes + 1] = "layers." .. i end
  end
  return { { scopes = scopes } }
end

local program = o.trace("published", placed and data.placed or data.signature, function(batch)
  return logits(batch):cross_entropy(batch.targets)
end)
program:train_with(o.optim.adamw { lr = 1e-4, clip = 1.0 })

local blocks = {}
for count in opt.stage_blocks:gmatch "%d+" do blocks[#blocks + 1] = math.tointeger(count) end
for stage = #blocks + 1, opt.stages do blocks[stage] = opt.layers // opt.stages end
local strategy = require "orrery.strategy"

--- Groups of tokens stay on the ranks of tp that have the tokens, as Megatron-LM's dispatcher has them: each rank sends
-- its own slots to the experts, and the ranks of tp gather what came.
local groups = strategy.define("groups", { axis = "tp" }, function(program, mesh, options)
  if mesh:size(options.axis) == 1 then return end
  for _, op in ipairs(program:ops()) do
    if op.kind == "dispatch" then op.inputs[1]:store { [options.axis] = strategy.S(2) } end
  end
end)

local data_axes = { "dp", "ep", "cp" }
local asked = {
  o.strategy.pipeline { axis = "pp", schedule = opt.schedule, chunks = opt.chunks, layers = blocks,
                        ends = #blocks == 0 },
  o.strategy.context { axis = "cp", method = opt.context, order = opt.order },
  o.strategy.tensor { axis = "tp", sequence = opt.sequence, keep = opt.sequence and opt.saves_gathered },
}
if opt.experts > 0 then
  table.insert(asked, 2, o.strategy.expert { axes = { "ep" } })
  if opt.sequence then table.insert(asked, 3, groups {}) end
end
for _, what in ipairs(recomputed() or {}) do asked[#asked + 1] = o.strategy.recompute(what) end
if opt.zero > 0 then
  asked[#asked + 1] = o.strategy.zero { axis = data_axes, replicate = opt.replicate, stage = opt.zero,
                                        bucket_mib = opt.bucket_mib }
else
  asked[#asked + 1] = o.strategy.data { axis = data_axes, bucket_mib = opt.bucket_mib }
end
program:parallel(asked)
program:compile()
