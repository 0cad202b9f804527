--- The architecture and config.json that `orrery export` writes for a model, by the tables that reading uses. Returns {
-- type = model_type, config =, generation = contents of generation_config.json, nil: none }, or for a model without a
-- published architecture { problem = why, unnamed = params that have no name there }.
local native = require "orrery.native"
local architectures = require "orrery.architectures"
local positions = require "orrery.positions"

local as_published = {}
local null = native.null

--- config.json of a model that was made here. `c`: its options; `more`: additional keys.
local function of_options(kind, c, more)
  local architecture = architectures[kind]
  -- Absent token ids would default to those of the published model, so they are null.
  local config = { model_type = kind, architectures = { architecture.class }, bos_token_id = null, eos_token_id = null,
                   use_cache = true }
  for _, row in ipairs(architecture.keys) do
    local key, option = row[1], row[2]
    local value = c[option]
    if option == "kv_heads" and value == 0 then value = c.heads end
    if option == "head_dim" and value == 0 then value = c.embed // c.heads end
    config[key] = value
    if option == "mlp" and not value then config[key] = null end
    if option == "expert_mlp" and value == 0 then config[key] = c.mlp end
    if option == "shared_count" then config[key] = c.shared // (c.expert_mlp > 0 and c.expert_mlp or c.mlp) end
    if option == "top_groups" and value == 0 then config[key] = c.groups end
    if option == "q_rank" and value == 0 then config[key] = null end
    if option == "predicted" then config[key] = c.mtp_weight > 0 and 1 or 0 end
  end
  for _, keys in ipairs { architecture.said, more } do
    for key, value in pairs(keys) do config[key] = value end
  end
  return config
end

--- A model of models/gpt.lua.
function as_published.gpt(c)
  return { type = "gpt2", config = of_options("gpt2", c, { resid_pdrop = c.dropout, embd_pdrop = c.dropout }) }
end

--- Whether DeepSeek-V3 is a model with these options.
local function is_deepseek(c)
  local width = c.expert_mlp > 0 and c.expert_mlp or c.mlp
  local experts = c.scores == "sigmoid" and c.correction and c.first ~= "top_k" and c.shared % width == 0
  return c.kv_rank > 0 and experts and not (c.shared_gate or c.dense_layers or c.qkv_bias or c.qk_norm or c.windows)
    and c.window == 0
end

--- Whether gpt-oss is a model with these options.
local function is_gpt_oss(c)
  local sums_to_1 = c.scores ~= "sigmoid" and c.scale == 1 and (c.first == "top_k" or c.renormalise)
  local its = c.sinks and c.bias and c.router_bias and c.expert_bias and c.limit > 0 and sums_to_1
  return its and not (c.qk_norm or c.correction or c.dense_layers) and c.dense == 0 and c.shared == 0 and c.groups == 1
    and c.kv_rank == 0
end

--- The architecture of a mixture of experts with these options, or nil with the reason why there is none.
local function family_of_mixture(c)
  if is_deepseek(c) then return "deepseek_v3" end
  if is_gpt_oss(c) then return "gpt_oss" end
  local plain = c.scores ~= "sigmoid" and c.scale == 1 and (c.first ~= "top_k" or c.renormalise)
    and c.groups == 1 and not c.correction and c.kv_rank == 0
    and not (c.sinks or c.router_bias or c.expert_bias) and c.limit == 0
  local gated = c.shared > 0 and c.shared_gate
  if plain and c.qkv_bias and not c.qk_norm and not c.bias and gated then return "qwen2_moe" end
  if plain and not c.qkv_bias and not c.windows and c.shared == 0 then
    if c.qk_norm then return "qwen3_moe" end
    if c.renormalise and not c.bias and c.dense == 0 and not c.dense_layers then return "mixtral" end
  end
  return nil, "no published architecture has this mixture of experts\n"
    .. "  mixtral: softmax, renormalised, experts in all layers, no biases\n"
    .. "  qwen3_moe: qk_norm, no shared expert\n"
    .. "  qwen2_moe: qkv_bias and a gated shared expert", {}
end

--- The architecture of Llama's family with these options, or nil with the reason why there is none.
local function family(c)
  if c.experts > 0 then return family_of_mixture(c) end
  if c.kv_rank > 0 then return nil, "no architecture has latent attention without experts", {} end
  local window = c.window > 0
  if c.windows and not (c.qk_norm or c.qkv_bias) then
    return nil, "no architecture has windows of some layers without biases in q, k and v or a norm of q and k", {}
  end
  if c.qk_norm then
    if not c.qkv_bias or c.bias then return "qwen3" end
    local unnamed = {}
    for i = 0, c.layers - 1 do
      for _, name in ipairs { "q", "k", "v" } do
        unnamed[#unnamed + 1] = ("layers.%d.self_attn.%s.bias"):format(i, name)
      end
    end
    return nil, "no architecture has biases in q, k and v alone beside a norm of q and k (qk_norm)", unnamed
  end
  if c.bias then
    if window or c.windows then return nil, "no architecture has biases of all projections beside a window", {} end
    return "llama"
  end
  return c.qkv_bias and "qwen2" or window and "mistral" or "llama"
end

--- Keys of the windows by layer, or nil with the reason why no config.json says them.
local function layer_types(windows)
  local kinds, width = {}, nil
  for i, window in ipairs(windows) do
    kinds[i] = window > 0 and "sliding_attention" or "full_attention"
    if window > 0 and width and window ~= width then
      return nil, ("no architecture has windows of %d and of %d keys"):format(width, window)
    end
    width = window > 0 and window or width
  end
  return { layer_types = kinds, sliding_window = width or null, use_sliding_window = width ~= nil }
end

--- The names of a mixture's tensors below a layer's, by param of nn.moe: those of the architecture that the model was
-- read of or has, else Qwen's.
function as_published.mixture(model)
  local kind = model.published and model.published.type or family(model.config)
  return architectures[kind or "qwen2_moe"].mixture
end

--- Keys of the layers with a dense block in place of a mixture.
local function dense_layers(c)
  local list = c.dense_layers or {}
  if not c.dense_layers then
    for i = 0, c.dense - 1 do list[#list + 1] = i end
  end
  return { decoder_sparse_step = 1, mlp_only_layers = #list > 0 and list or null }
end

--- A model of models/llama.lua. `longest`: the longest sequence that it has seen.
function as_published.llama(c, longest)
  local kind, problem, unnamed = family(c)
  if kind and kind ~= "deepseek_v3" and c.mtp_weight > 0 then
    kind, problem, unnamed = nil, "no architecture but deepseek_v3 has multi-token prediction (mtp_weight)", {}
  end
  if not kind then return { problem = problem, unnamed = unnamed } end
  local more = { max_position_embeddings = longest }
  positions.spell(more, c.theta, c.rope_scaling, c.score_scale)
  local window = c.window > 0
  if kind == "mistral" or kind == "mixtral" then more.sliding_window = window and c.window or null end
  if kind == "deepseek_v3" then more.num_key_value_heads = c.heads end
  if kind == "mixtral" and c.expert_mlp > 0 then more.intermediate_size = c.expert_mlp end
  if kind:find "_moe" then
    for key, value in pairs(dense_layers(c)) do more[key] = value end
  end
  if kind:find "^qwen" or kind == "gpt_oss" then
    more.use_sliding_window, more.sliding_window = window, window and c.window or null
    if window then more.max_window_layers = 0 end                              -- all layers have the window
    local windows = c.windows
    if kind == "qwen2_moe" and window or kind == "gpt_oss" and not windows then
      windows = {}
      for i = 1, c.layers do windows[i] = c.window end
    end
    local by_layer, why = layer_types(windows or {})
    if not by_layer then return { problem = why, unnamed = {} } end
    if windows then
      for key, value in pairs(by_layer) do more[key] = value end
    end
    if kind == "gpt_oss" then more.use_sliding_window, more.max_window_layers = nil, nil end
  end
  return { type = kind, config = of_options(kind, c, more) }
end

--- A model that was read: `found` by published.read, `generation` from its folder.
function as_published.again(found, generation)
  local config = {}
  for key, value in pairs(found.config) do config[key] = value end
  local architecture = architectures[found.type]
  config.architectures = { architecture.class }
  local sizes = found.sizes
  if architecture.rotary then positions.spell(config, sizes.theta, sizes.rope_scaling, sizes.score_scale) end
  if found.left_out then config.num_nextn_predict_layers = (sizes.mtp_weight or 0) > 0 and 1 or 0 end
  if architecture.quantized then config.quantization_config = nil end               -- it is decoded
  return { type = found.type, config = config, generation = generation }
end

return as_published
