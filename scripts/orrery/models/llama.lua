--- Llama (Touvron et al. 2023): RMSNorm, rotary positions, SwiGLU, grouped key/value heads, no biases.
-- Shapes: B batch, T seq, C embed, H heads, G kv_heads, D head_dim, M mlp, V vocab.
local native = require "orrery.native"
local nn, as_published = require "orrery.nn", require "orrery.as_published"

local Llama = { left_out = 0 }                     -- left_out: modules of multi-token prediction that files have, too
Llama.__index = Llama

-- kv_heads: 0: heads
-- head_dim: 0: embed / heads
-- embed_std: false: std
-- std_out: of projections that write to the residual stream; 0 initializes them to zero; false: std
-- rows: of the table, of which `vocab` have a word; 0: vocab
-- qk_norm: normalizes each head's q and k, as in Qwen3
-- window: number of keys that a position sees, including its own (Mistral's sliding_window); 0: all before it
-- windows: a list of such numbers, one a layer, instead
-- rope_scaling: options of the op rope in addition to theta, as { factor = 2 }
-- qkv_bias: biases in q, k and v; bias: also in the output projection
-- fused: false: attention as separate ops
-- loss_tile: see nn.loss
-- sinks: see nn.attention
-- kv_rank: above 0: attention is nn.latent_attention (DeepSeek-V3), with q_rank (0: none), nope_dim, rope_dim, v_dim,
--   interleaved, and score_scale, its option scale
-- experts: of a mixture in place of the feed-forward block; 0: none. All others are of such a mixture.
-- dense: number of the first layers without it; dense_layers: a list of such layers, from 0
-- expert_mlp: width of an expert; 0: mlp
-- expert_bias: biases of the experts
-- limit: of the clamped activation of gpt-oss; 0: SwiGLU
-- shared: width of an expert for all tokens; 0: none
-- upcycled: published files have a dense block, which all experts begin with, and no router
-- correction: a bias of each expert that is added for the choice, a state, which changes only by balance.rate
-- balance: as of nn.moe; its losses count the tokens that the model's loss counts
-- mtp_weight: above 0: DeepSeek-V3's module of multi-token prediction is trained; see Llama:ahead
-- expert_blocks: with dispatch = "rows", blocks of experts
-- top_k, capacity, max_capacity, parts, overflow, drop, dispatch, scores, first, renormalise, scale, shared_gate,
--   groups, top_groups, router_bias: as of nn.moe
local defaults = { layers = 32, embed = 4096, heads = 32, kv_heads = 0, head_dim = 0, mlp = 11008, vocab = 32000,
                   window = 0, windows = false, theta = 10000.0, rope_scaling = false, eps = 1e-5, tied = false,
                   qkv_bias = false, bias = false, qk_norm = false, std = 0.02, embed_std = false, std_out = false,
                   fused = true, rows = 0, loss_tile = -1, experts = 0, top_k = 2, expert_mlp = 0, dense = 0,
                   dense_layers = false, upcycled = false, capacity = false, max_capacity = false, parts = 1,
                   overflow = "drop", drop = "position", dispatch = "slab", expert_blocks = 0, scores = false,
                   first = false, renormalise = true, scale = 1.0, shared = 0, shared_gate = false, groups = 1,
                   top_groups = 0, correction = false, balance = false, q_rank = 0, kv_rank = 0, nope_dim = 128,
                   rope_dim = 64, v_dim = 128, interleaved = true, score_scale = 1.0, mtp_weight = 0.0, sinks = false,
                   router_bias = false, expert_bias = false, limit = 0.0 }

local function or_nil(n) return n ~= 0 and n or nil end

--- Options of nn.moe for layers with experts.
local function mixture(c)
  local options = { experts = c.experts, mlp = or_nil(c.expert_mlp) or c.mlp, shared = or_nil(c.shared), std = c.std,
                    std_out = c.std_out or c.std, groups = c.groups, top_groups = or_nil(c.top_groups),
                    router_bias = c.router_bias or nil, blocks = or_nil(c.expert_blocks), bias = c.expert_bias or nil,
                    limit = or_nil(c.limit) }
  local same = "top_k capacity max_capacity parts overflow drop dispatch scores first renormalise scale shared_gate"
  for key in same:gmatch "%S+" do
    options[key] = c[key] or nil
  end
  return options
end

--- Names of the weights of a layer's mixture.
local function mixture_params(c)
  local list = { "gate", "experts.gate", "experts.up", "experts.down" }
  if c.shared > 0 then
    for _, name in ipairs { "gate", "up", "down" } do list[#list + 1] = "shared_experts." .. name end
  end
  if c.shared_gate then list[#list + 1] = "shared_expert_gate" end
  return list
end

--- Params of latent attention, their names in DeepSeek's files, and whether they are transposed.
local function latent_names(c)
  local list = { { "kv_a.weight", "kv_a_proj_with_mqa.weight", true }, { "kv_a_norm.weight", "kv_a_layernorm.weight" },
                 { "kv_b.weight", "kv_b_proj.weight", true }, { "o.weight", "o_proj.weight", true } }
  local function add(...) list[#list + 1] = { ... } end
  if c.q_rank > 0 then
    add("q_a.weight", "q_a_proj.weight", true)
    add("q_a_norm.weight", "q_a_layernorm.weight")
    add("q_b.weight", "q_b_proj.weight", true)
  else
    add("q.weight", "q_proj.weight", true)
  end
  if c.bias then
    add("kv_a.bias", "kv_a_proj_with_mqa.bias")
    add("o.bias", "o_proj.bias")
    if c.q_rank > 0 then add("q_a.bias", "q_a_proj.bias") end
  end
  return list
end

--- Whether layer i, from 0, has a mixture of experts.
local function has_experts(c, i)
  if c.experts == 0 or i < c.dense then return false end
  for _, layer in ipairs(c.dense_layers or {}) do
    if layer == i then return false end
  end
  return true
end

--- The feed-forward block of layer i, from 0; routes[i] is then what nn.moe says of its tokens.
function Llama:block(i, x_BTC)
  local c = self.config
  if not has_experts(c, i) then
    return nn.swiglu(x_BTC, { mlp = c.mlp, std = c.std, std_out = c.std_out or c.std })
  end
  local options = mixture(c)
  if c.balance then
    options.balance = { targets = self.targets }
    for key, value in pairs(c.balance) do options.balance[key] = value end
  end
  if c.correction and ((c.balance or {}).rate or 0) == 0 then
    options.correction = native.state { name = "gate.correction", shape = { { "router", c.experts } } }
    if native.training() then options.correction:next(options.correction) end
  end
  local y_BTC, route = nn.moe(x_BTC, options)
  self.routes[i] = route
  return y_BTC
end

--- The function of attention, and its options. `packed`: see head.
local function attention_of(c, packed)
  local std, std_out = c.std, c.std_out or c.std
  local rope = { theta = c.theta }
  for name, value in pairs(c.rope_scaling or {}) do rope[name] = value end
  local documents, positions = (packed or {}).documents, (packed or {}).positions
  if c.kv_rank > 0 then
    return nn.latent_attention, { heads = c.heads, q_rank = or_nil(c.q_rank), kv_rank = c.kv_rank,
                                  nope_dim = c.nope_dim, rope_dim = c.rope_dim, v_dim = c.v_dim, rope = rope,
                                  interleaved = c.interleaved, bias = c.bias, scale = c.score_scale,
                                  documents = documents, positions = positions, std = std, std_out = std_out }
  end
  return nn.attention, { heads = c.heads, kv_heads = or_nil(c.kv_heads), head_dim = or_nil(c.head_dim), rope = rope,
                         window = or_nil(c.window), bias = c.bias or c.qkv_bias and "qkv",
                         qk_norm = c.qk_norm and c.eps, fused = c.fused, sinks = c.sinks or nil,
                         documents = documents, positions = positions, std = std, std_out = std_out }
end

--- Layer i, from 0, in the current scope.
function Llama:layer(i, x_BTC, packed)
  local c, attend, attention = self.config, attention_of(self.config, packed)
  if c.windows then attention.window = or_nil(c.windows[i + 1]) end
  x_BTC = x_BTC + nn.scope("self_attn", attend, nn.rmsnorm(x_BTC, "input_layernorm", c.eps), attention)
  return x_BTC + nn.scope("mlp", self.block, self, i, nn.rmsnorm(x_BTC, "post_attention_layernorm", c.eps))
end

--- tokens i32 [B, T] -> x [B, T, C], the head's weight and its options for nn.logits, and the table of the embedding.
-- `packed`: { documents = , positions = }, i32 [B, T], of rows of packed documents
function Llama:head(tokens, packed)
  local c = self.config
  local vocab, embed, std = { "vocab", math.max(c.rows, c.vocab) }, { "embed", c.embed }, c.std
  local mask = c.rows > c.vocab and nn.words_only(vocab, c.vocab)
  if c.windows and #c.windows ~= c.layers then
    error(("llama: windows has %d numbers for %d layers"):format(#c.windows, c.layers), 2)
  end
  self.routes = {}                                                    -- of layers with experts, by number from 0
  local table = nn.table("embed_tokens", vocab, embed, c.embed_std or std)
  local x_BTC = tokens:embedding(table, { ids = c.vocab })
  for i = 0, c.layers - 1 do
    x_BTC = nn.scope("layers." .. i, self.layer, self, i, x_BTC, packed)
  end
  x_BTC = nn.rmsnorm(x_BTC, "norm", c.eps)
  self.longest = math.max(self.longest or 0, tokens:dim("seq"))
  -- The bias masks rows without a word.
  if c.tied then return x_BTC, table, { bias = mask, trans_b = true }, table end
  return x_BTC, nn.table("lm_head", embed, vocab, std), { bias = mask, scope = "lm_head" }, table
end

--- tokens, targets i32 [B, T] -> for each position the token and the target of the position after it. The last position
-- of a row or document gets its own token and the target -1.
local function following(tokens, targets, packed)
  local batch, length = tokens.shape[1], tokens.shape[2]
  local one, zero = native.constant(1), native.constant(0)
  -- f32 is exact up to 2^24. Other dim names, so that strategies do not take these for activations and split them.
  local function plain(ids) return ids:reshape({ { "rows", batch }, { "places", length } }):cast "f32" end
  local function ids_of(x) return x:cast("i32"):reshape { { "batch", batch }, { "seq", length } } end
  local function next_of(ids) return plain(ids:roll { dim = "seq", by = -1 }) end
  local inside = native.iota { shape = { length }, dim = 1 }:less(length - 1):select(one, zero)
  if packed then inside = inside * plain(packed.documents):equal(next_of(packed.documents)):select(one, zero) end
  local own = plain(tokens)
  return ids_of(own + (next_of(tokens) - own) * inside), ids_of((next_of(targets) + 1) * inside - 1)
end

--- x [B, T, C] -> x, targets i32 [B, T]: DeepSeek-V3's module of multi-token prediction (2024, section 2.2). A position
-- sees x and the next token, and predicts the target of the next position. `table`: the model's embedding. The scope
-- has no number, so that a pipeline has it next to the head.
function Llama:ahead(x_BTC, table, tokens, targets, packed)
  local c = self.config
  tokens, targets = following(tokens, targets, packed)
  self.targets = targets
  local e_BTC = nn.rmsnorm(tokens:embedding(table, { ids = c.vocab }), "enorm", c.eps)
  local both = nn.concat({ e_BTC, nn.rmsnorm(x_BTC, "hnorm", c.eps) }, { dim = "embed" })
  both = both:reshape { "batch", "seq", { "both", 2 * c.embed } }
  x_BTC = self:layer(c.layers, nn.linear(both, "eh_proj", { "embed", c.embed }, { bias = false, std = c.std }), packed)
  return nn.rmsnorm(x_BTC, "shared_head.norm", c.eps), targets
end

--- tokens i32 [B, T] -> logits [B, T, V]. `packed`: see head.
function Llama:logits(tokens, packed)
  self.targets = nil
  return nn.logits(self:head(tokens, packed))
end

--- tokens, targets i32 [B, T] -> sum of the losses f32 [], their count f32 []. `packed`: see head. A train step adds
-- mtp_weight times the loss of multi-token prediction to the sum, and nothing to the count.
function Llama:loss(tokens, targets, packed)
  self.targets = targets
  local c = self.config
  local x_BTC, weight, options, table = self:head(tokens, packed)
  local ahead_BTC, later
  if c.mtp_weight > 0 and native.training() then
    ahead_BTC, later = nn.scope("mtp", self.ahead, self, x_BTC, table, tokens, targets, packed)
  end
  local loss, count = nn.loss(x_BTC, weight, targets, c.loss_tile, options)
  if ahead_BTC then
    local mtp, predicted = nn.loss(ahead_BTC, weight, later, c.loss_tile, options)
    native.result("mtp_loss", mtp, predicted)
    loss = loss + mtp * c.mtp_weight
  end
  local routes = {}
  for i = 0, c.layers do routes[#routes + 1] = self.routes[i] end
  return nn.balanced(routes, loss, count), count
end

--- The tensors of a published checkpoint (safetensors) for the params: a list of { param, tensor, transpose = }.
-- Published linear weights are [out, in], ours [in, out]. `prefix`, `ignore`, `copies`, `published`: see gpt.lua;
-- `published.repeats`: those of `copies` that an export writes again.
function Llama:tensors()
  local list = { ignore = { "*.rotary_emb.inv_freq" }, prefix = "model.", copies = {},    -- made from theta
                 published = self.published or as_published.llama(self.config, self.longest) }
  if ((self.config.balance or {}).rate or 0) > 0 and not self.config.correction then
    list.published = { problem = "no architecture but deepseek_v3 has a bias of the choice that balances experts",
                       unnamed = {} }
  end
  local words = self.config.rows > self.config.vocab and { 1, self.config.vocab } or nil
  local names = self.config.experts > 0 and as_published.mixture(self)
  for layer = self.config.layers, self.config.layers + self.left_out - 1 do
    list.ignore[#list.ignore + 1] = ("model.layers.%d.*"):format(layer)
  end
  if self.config.upcycled then list.fresh = { "layers.*.mlp.gate.weight" } end
  local function add(param, tensor, transpose, padded)
    list[#list + 1] = { param = param, tensor = tensor, transpose = transpose or false, padded = padded }
  end
  add("embed_tokens.weight", "model.embed_tokens.weight", false, words)
  local module = self.config.mtp_weight > 0 and self.config.layers or nil                 -- in their files
  for i = 0, module or self.config.layers - 1 do
    local ours, theirs = i == module and "mtp." or ("layers.%d."):format(i), ("model.layers.%d."):format(i)
    for _, row in ipairs(self.config.kv_rank > 0 and latent_names(self.config) or {}) do
      add(ours .. "self_attn." .. row[1], theirs .. "self_attn." .. row[2], row[3])
    end
    for _, name in ipairs(self.config.kv_rank > 0 and {} or { "q", "k", "v", "o" }) do
      add(ours .. "self_attn." .. name .. ".weight", theirs .. "self_attn." .. name .. "_proj.weight", true)
      if self.config.bias or self.config.qkv_bias and name ~= "o" then
        add(ours .. "self_attn." .. name .. ".bias", theirs .. "self_attn." .. name .. "_proj.bias")
      end
    end
    for _, name in ipairs(self.config.qk_norm and { "q", "k" } or {}) do
      add(ours .. "self_attn." .. name .. "_norm.weight", theirs .. "self_attn." .. name .. "_norm.weight")
    end
    if self.config.sinks then add(ours .. "self_attn.sinks", theirs .. "self_attn.sinks") end
    if names and names.fused and has_experts(self.config, i) then
      add(ours .. "mlp.gate.weight", theirs .. "mlp.router.weight", true)
      add(ours .. "mlp.gate.bias", theirs .. "mlp.router.bias")
      for _, kind in ipairs { "weight", "bias" } do
        local ending, dim = kind == "bias" and "_bias" or "", kind == "bias" and 2 or 3
        for index, name in ipairs { "gate", "up" } do
          add(("%smlp.experts.%s.%s"):format(ours, name, kind), theirs .. "mlp.experts.gate_up_proj" .. ending)
          list[#list].part, list[#list].interleaved = { dim, index, 2 }, true
        end
        add(ours .. "mlp.experts.down." .. kind, theirs .. "mlp.experts.down_proj" .. ending)
      end
    elseif has_experts(self.config, i) then
      for _, name in ipairs(mixture_params(self.config)) do
        add(ours .. "mlp." .. name .. ".weight", theirs .. names[name] .. ".weight", true)
        local dense = self.config.upcycled and name:match "^experts%.(%a+)$"
        if self.config.correction and name == "gate" then
          add(ours .. "mlp.gate.correction", theirs .. "mlp.gate.e_score_correction_bias")
        end
        if dense then list[#list].from = ("%smlp.%s_proj.weight"):format(theirs, dense) end
      end
    else
      for _, name in ipairs { "gate", "up", "down" } do
        add(ours .. "mlp." .. name .. ".weight", theirs .. "mlp." .. name .. "_proj.weight", true)
      end
    end
    for _, name in ipairs { "input_layernorm", "post_attention_layernorm" } do
      add(ours .. name .. ".weight", theirs .. name .. ".weight")
    end
  end
  add("norm.weight", "model.norm.weight")
  if self.config.tied then
    list.copies["lm_head.weight"] = "model.embed_tokens.weight"
  else
    add("lm_head.weight", "lm_head.weight", true, words)
  end
  if module then
    local theirs = ("model.layers.%d."):format(module)
    for _, name in ipairs { "enorm", "hnorm", "eh_proj", "shared_head.norm" } do
      add(("mtp.%s.weight"):format(name), theirs .. name .. ".weight", name == "eh_proj")
    end
    list.published.repeats = { [theirs .. "embed_tokens.weight"] = "model.embed_tokens.weight",
                               [theirs .. "shared_head.head.weight"] = self.config.tied and "model.embed_tokens.weight"
                                 or "lm_head.weight" }
    for tensor, of in pairs(list.published.repeats) do list.copies[tensor] = of end
  end
  return list
end

--- llama { layers = 32, embed = 4096, heads = 32, kv_heads = heads, mlp = 11008, vocab = 32000, theta = 10000 }
return function(options)
  local c = require "orrery.models.options"("llama", options, defaults)
  if c.mtp_weight > 0 and c.vocab > 1 << 24 then
    error(("llama: mtp_weight = %g needs a vocabulary of at most 2^24 words, not %d"):format(c.mtp_weight, c.vocab), 2)
  end
  return setmetatable({ config = c }, Llama)
end
