--- Layers as functions: each declares its params in the current scope and records its ops.
-- Shapes: B batch, T seq, C embed, H heads, G kv_heads, D head_dim, V vocab; `...` any leading dims.
local native = require "orrery.native"
local attention = require "orrery.attention"
local moe = require "orrery.moe"
local balance = require "orrery.balance"
local dims = require "orrery.dims"

local nn = { scope = native.scope, param = native.param }

local function last(x) return { x.dims[#x.dims], x.shape[#x.shape] } end

local function normal(std) return { kind = "normal", scale = std } end

local function options_of(list)
  local has = {}
  for name in list:gmatch("%S+") do has[name] = true end
  return { has = has, list = list:gsub(" ", ", ") }
end

--- Throws for an option that `who` does not have, because a misspelt one would silently keep its default.
local function check_options(who, options, known)
  for name in next, options do  -- in any order, because pairs would sort them for each layer
    if not known.has[name] then
      native.fail(("%s has no option %s; it has %s"):format(who, tostring(name), known.list))
    end
  end
end

local function check_list(name, list, options)
  if type(list) ~= "table" or not list[1] then
    error(("o.%s: a list of values expected, as in o.%s({ a, b }, { dim = 1 })"):format(name, name), 3)
  end
  if type(options) ~= "table" or options.dim == nil then error(("o.%s: dim is missing"):format(name), 3) end
end

--- o.concat(list, { dim = }): the values one after the other along a dim that they have, for lists of any length.
function nn.concat(list, options)
  check_list("concat", list, options)
  local arguments = { table.unpack(list, 2) }
  arguments[#list] = { dim = options.dim }
  return list[1]:concat(table.unpack(arguments, 1, #list))
end

--- o.stack(list, { dim =, name = }): values of one shape along a new dim, which is number `dim` of the result, from 1.
function nn.stack(list, options)
  check_list("stack", list, options)
  local dim, rank = options.dim, #list[1].shape
  if math.type(dim) ~= "integer" or dim < 1 or dim > rank + 1 then
    error(("o.stack: dim is %s, expected 1 to %d, the new dim's number"):format(tostring(dim), rank + 1), 2)
  end
  local all = {}
  for i, x in ipairs(list) do
    local shape = dims.list(x)
    table.insert(shape, dim, options.name and { options.name, 1 } or 1)
    all[i] = x:reshape(shape)
  end
  return nn.concat(all, { dim = dim })
end

--- o.random { shape =, kind =, places = }: random numbers, uniform in [0, 1) or normal with deviation 1. `places` i32
-- [B, T] of a shape [B, T, ...]: what a token draws belongs to its place, whatever the order of the row.
function nn.random(spec)
  local drawn = native.random(spec)
  return spec.kind == "normal" and drawn or drawn + 0.5
end

local linear_options = options_of "bias std"

--- x [..., in] -> [..., out] = x w + b. `to` is { name, size }; options: bias (true; a value is added as it is), std
-- (1/sqrt(in)).
function nn.linear(x, name, to, options)
  options = options or {}
  check_options("nn.linear", options, linear_options)
  local from = last(x)
  return nn.scope(name, function()
    local w = nn.param { name = "weight", shape = { from, to }, init = normal(options.std or from[2] ^ -0.5) }
    if options.bias == false then return x:matmul(w) end
    if type(options.bias) == "userdata" then return x:matmul(w, options.bias) end
    return x:matmul(w, nn.param { name = "bias", shape = { to } })
  end)
end

--- Layer normalisation over the last dim, with gain and bias (Ba et al. 2016).
function nn.layernorm(x, name, eps)
  return nn.scope(name, function()
    local gain = nn.param { name = "weight", shape = { last(x) }, init = { kind = "ones" } }
    local bias = nn.param { name = "bias", shape = { last(x) } }
    return (x:layernorm(gain, bias, { eps = eps or 1e-5 }))
  end)
end

--- Divides by the root mean square over the last dim, with gain (Zhang and Sennrich 2019).
function nn.rmsnorm(x, name, eps)
  return nn.scope(name, function()
    local gain = nn.param { name = "weight", shape = { last(x) }, init = { kind = "ones" } }
    return (x:rmsnorm(gain, { eps = eps or 1e-5 }))
  end)
end

--- The table [V, C] of an embedding: `rows` and `columns` are { name, size }. The same name returns the same table.
function nn.table(name, rows, columns, std)
  return nn.scope(name, function()
    return nn.param { name = "weight", shape = { rows, columns }, init = normal(std or 0.02) }
  end)
end

--- tokens i32 [...] -> [..., C]: one row of the table each. `words`: number of rows with an id; all when nil.
function nn.embedding(tokens, name, rows, columns, std, words)
  return tokens:embedding(nn.table(name, rows, columns, std), { ids = words or 0 })
end

--- The bias of a head whose table has more rows than words, so that a mesh can split it: [V] 0 for words; -1e30 and
-- less for other rows, which then have no probability and no gradient. `rows` is { name, size }.
function nn.words_only(rows, words)
  local row = native.iota { shape = { rows }, dim = 1, dtype = "f32" }
  return (row - (words - 1)):relu() * -1e30
end

local head_options = options_of "bias trans_b scope"

local function in_scope(scope, f, ...)
  if scope then return nn.scope(scope, f, ...) end
  return f(...)
end

--- The logits x w [..., V] of a head w [C, V]. options: trans_b (w is [V, C]), bias [V], scope (of the op).
function nn.logits(x, w, options)
  check_options("nn.logits", options, head_options)
  return in_scope(options.scope, x.matmul, x, w, { bias = options.bias or nil, trans_b = options.trans_b })
end

--- The cross entropy of a head's logits: sum f32 [], count f32 []. x [..., C], targets i32 [...]; w and options are
-- those of nn.logits. `tile`: rows of which logits exist at a time; 0: all; -1 (or false): all up to 2^26 logits,
-- beyond as many rows as have 64 MiB.
function nn.loss(x, w, targets, tile, options)
  check_options("nn.loss", options, head_options)
  local rows = math.tointeger(tile or -1)
  if not rows or rows < -1 then
    native.fail(("nn.loss: tile = %s: expected a number of rows, 0 for all, or -1 for all up to 2^26 logits and "
      .. "64 MiB of them beyond"):format(tostring(tile)))
  end
  local count = options.trans_b and w.shape[1] or w.shape[2]
  for _, size in ipairs(targets.shape) do count = count * size end
  if rows == 0 or rows < 0 and count <= 2 ^ 26 then return nn.logits(x, w, options):cross_entropy(targets) end
  return in_scope(options.scope, x.linear_cross_entropy, x, w, targets,
    { bias = options.bias or nil, dim = options.trans_b and 1 or 2, tile = math.max(rows, 0) })
end

--- Zeroes a share p of the elements in training (Srivastava et al. 2014). `places` i32 [B, T] of x [B, T, ...], or nil:
-- a token's mask belongs to its place, whatever the order of the row.
function nn.dropout(x, p, places) return x:dropout(p or 0, places) end

local attention_options = options_of("heads kv_heads head_dim causal window bias documents positions places rope "
  .. "qk_norm sinks fused score_dropout dropout std std_out")

--- Self-attention of x [B, T, C]; H heads read G <= H key/value heads. options: heads, kv_heads (heads), head_dim
-- (C/H), causal (true; false: every position sees all, as in an encoder), window (number of last keys that a position
-- sees, including its own, Jiang et al. 2023; all when nil or 0; requires causal), bias (true; "qkv": not in the
-- output projection), documents and positions (i32 [B, T], both or neither: a position sees those of its own document,
-- causal and window count in positions; document -1 is padding), rope (theta, or the op's options as a table; its
-- `positions` may differ from those of the mask; off when nil), qk_norm (eps of an RMSNorm of each head's q and k,
-- Henry et al. 2020; off when nil), sinks (true: one more logit a head, a param, takes part in the softmax; requires
-- fused), fused (true: one op, which stores no scores; false: scores, mask, softmax and products as separate ops),
-- score_dropout (of the softmax; requires fused = false), dropout, places (i32 [B, T]; of dropout), std, std_out (std).
function nn.attention(x, options)
  check_options("nn.attention", options, attention_options)
  local embed = last(x)
  local heads = options.heads
  local kv_heads = options.kv_heads or heads
  local size = options.head_dim or embed[2] // heads
  if not options.head_dim and embed[2] % heads ~= 0 then
    native.fail(("attention: %d heads do not divide embed = %d"):format(heads, embed[2]))
  end
  if heads % kv_heads ~= 0 then
    native.fail(("attention: %d kv_heads do not divide %d heads"):format(kv_heads, heads))
  end
  local bias = options.bias ~= false
  local rope = type(options.rope) == "number" and { theta = options.rope } or options.rope
  local documents, positions = options.documents, options.positions
  if (documents == nil) ~= (positions == nil) then
    native.fail(("attention: %s without %s: give both, or neither"):format(documents and "documents" or "positions",
      documents and "positions" or "documents"))
  end
  if rope and positions and not rope.positions then
    local given = rope
    rope = { positions = positions }
    for name, value in pairs(given) do rope[name] = value end
  end
  local function project(name, dim, count)              -- [B, T, C] -> [B, T, count, D]
    local y = nn.linear(x, name, { dim, count * size }, { bias = bias, std = options.std })
    y = y:reshape { "batch", "seq", { dim, count }, { "head_dim", size } }
    if options.qk_norm and name ~= "v" then y = nn.rmsnorm(y, name .. "_norm", options.qk_norm) end
    if rope and name ~= "v" then y = y:rope(rope) end
    return y
  end
  local q, k, v = project("q", "heads", heads), project("k", "kv_heads", kv_heads), project("v", "kv_heads", kv_heads)
  local causal = options.causal == nil or options.causal
  local fused = options.fused == nil or options.fused
  if fused and (options.score_dropout or 0) > 0 then
    native.fail("attention: score_dropout needs unfused attention; give fused = false, or leave it out")
  end
  if not fused and options.sinks then
    native.fail("attention: sinks need fused attention; leave fused = false out, or sinks")
  end
  local how = { causal = causal, window = options.window, documents = documents, positions = positions }
  local y, lse
  if fused then y, lse = q:attention(k, v, how)
  else
    function how.drop(p) return nn.dropout(p, options.score_dropout) end
    y = attention.by_ops(q, k, v, how)
  end
  if options.sinks then
    y = attention.with_sinks(y, lse, nn.param { name = "sinks", shape = { { "heads", heads } } })
  end
  y = y:reshape { "batch", "seq", { "heads", heads * size } }
  y = nn.linear(y, "o", embed, { bias = bias and options.bias ~= "qkv", std = options.std_out or options.std })
  return nn.dropout(y, options.dropout, options.places)
end

local latent_options = options_of("heads q_rank kv_rank nope_dim rope_dim v_dim rope interleaved eps scale bias "
  .. "documents positions std std_out")

--- Multi-head latent attention (DeepSeek-V2, 2024), causal, of x [B, T, C]: keys and values of all heads are made of
-- one vector of kv_rank elements a position, queries of one of q_rank. A head's q and k have nope_dim elements without
-- a position and rope_dim with one; those of k are the same for all heads. options: heads, q_rank (nil: queries are
-- made of x), kv_rank, nope_dim, rope_dim, v_dim (of values), rope (theta, or the op's options), interleaved
-- (neighbours are rotated as a pair), eps (1e-6; of the norms of both vectors), scale (1; of the scores, times
-- 1/sqrt(nope_dim + rope_dim)), bias (false; in the projections of x and the output's), documents and positions as in
-- nn.attention, std, std_out (std).
function nn.latent_attention(x, options)
  check_options("nn.latent_attention", options, latent_options)
  local all = { eps = 1e-6 }
  for name, value in pairs(options) do all[name] = value end
  local rope = { positions = options.positions }
  for name, value in pairs(type(options.rope) == "number" and { theta = options.rope } or options.rope) do
    rope[name] = value
  end
  all.rope = rope
  return attention.latent(nn, x, all)
end

local mlp_options = options_of "mlp dropout places approx std std_out"

--- A feed-forward block [..., C] -> [..., M] -> [..., C] with GELU.
-- options: mlp, dropout and its places, approx ("tanh" | "erf"), std, std_out.
function nn.mlp(x, options)
  check_options("nn.mlp", options, mlp_options)
  local y = nn.linear(x, "up", { "mlp", options.mlp }, { std = options.std })
  y = nn.linear(y:gelu { approx = options.approx or "tanh" }, "down", last(x), { std = options.std_out or options.std })
  return nn.dropout(y, options.dropout, options.places)
end

local swiglu_options = options_of "mlp std std_out"

--- The gated block of Llama (SwiGLU, Shazeer 2020) without biases: down(silu(gate x) * up x).
-- options: mlp, std, std_out.
function nn.swiglu(x, options)
  check_options("nn.swiglu", options, swiglu_options)
  local plain = { bias = false, std = options.std }
  local gate = nn.linear(x, "gate", { "mlp", options.mlp }, plain)
  local up = nn.linear(x, "up", { "mlp", options.mlp }, plain)
  return nn.linear(gate:swiglu(up), "down", last(x), { bias = false, std = options.std_out or options.std })
end

local moe_options = options_of("experts top_k mlp capacity max_capacity parts overflow drop dispatch blocks scores "
  .. "first renormalise scale groups top_groups router_bias correction balance shared shared_gate bias limit std "
  .. "std_out")

--- A mixture of experts in place of nn.swiglu: x [B, T, C] -> y [B, T, C], route. A router scores E experts; each
-- token goes to the k of highest score, each of them a block as nn.swiglu; y is their sum, by weight. In a group of
-- tokens an expert has S = ceil(capacity * tokens * k / E) slots; choices that find none are dropped. A group is a
-- sequence, or one of `parts` equal parts of it, so the mesh does not change what is dropped.
-- options, with defaults in parentheses:
--   experts, top_k; mlp: width of an expert
--   capacity (1.25; 1 with overflow = "again"): experts / top_k drops nothing
--   parts (1): groups of tokens of a sequence
--   overflow ("drop"): "again": a train step in which choices find no slot changes nothing and runs again with the next
--     of the capacities 1, 1.25, 1.5, 2, 3, 4, 6 ... above `capacity`; evaluation and sampling have slots for all
--   max_capacity (2, or `capacity` if that is more): the last of them, only with overflow = "again"
--   drop ("position"): choices of later tokens find no slot; "weight": those of less weight, so that later tokens
--     change what earlier ones get
--   dispatch ("slab"): a token is sent to each of its experts; "rows": once to each block of experts that has any of
--     them, and their weighted sum comes back. This sends fewer bytes if tokens often have several experts on a rank
--   blocks (none): number of equal blocks of consecutive experts, needed with dispatch = "rows". Give the number P of
--     ranks that share the experts; a multiple of P also works, and sends more. Each of H blocks has rows for
--     `capacity` times its even share, 1 - (E - E/H choose k) / (E choose k) of a group's tokens. It drops nothing: a
--     train step that needs more rows changes nothing and runs again with the next capacity
--   scores ("softmax"): or "sigmoid"
--   first ("scores"): the best scores are chosen; "top_k": the best logits, and scores are made of them alone
--   renormalise (false): a token's weights are divided by their sum
--   scale (1): multiplies the weights
--   groups (1), top_groups (groups): only experts of the best top_groups of `groups` groups are chosen; a group ranks
--     by the sum of its two highest
--   router_bias (false): a param, added to the logits
--   correction (none): a value [E], added for the choice, not to the weights
--   shared (none): width of an expert for all tokens; shared_gate (false): a sigmoid gate of that expert
--   bias (false): biases of the experts
--   limit (none): the gated unit of gpt-oss in place of swiglu, (up + 1) * gate * sigmoid(1.702 gate), of operands
--     clamped to this magnitude, gate from above alone
--   std (1/sqrt(in)), std_out (std)
--   balance (none): { loss = "none" | "sequence" | "groups" | "last_step", coefficient = 0.01, groups = , z = 0,
--     rate = 0, targets = }, see balance.lua: an auxiliary loss for each sequence, for each of `groups` equal parts of
--     the batch, or for the whole batch by the loads of the step before; z times the z-loss; a bias of the choice that
--     moves by `rate` each step, towards the mean load. Only tokens with a target of 0 or more count. nn.balanced adds
--     the losses.
-- route: logits and scores f32 [..., E], ids i32 and weights f32 [..., k], load i32 [B, E], or [B, P, E] of P parts
-- (all choices of an expert in a group, dropped ones included), slots (S), experts, top_k.
function nn.moe(x, options)
  check_options("nn.moe", options, moe_options)
  return moe.experts(nn, x, options)
end

--- The sum of losses `loss` with those that nn.moe's `balance` made of the routes, a list in the order of layers; call
-- it once. Each step reports expert_load, by layer the largest load of an expert divided by the mean, expert_drop, by
-- layer the share of choices that found no slot, and balance_loss and z_loss divided by `count`. Evaluations have only
-- the loss itself.
function nn.balanced(routes, loss, count) return balance.close(nn, routes, loss, count) end

return nn
