--- The architectures of transformers that a model here computes, by model_type, and the meaning of their config.json.
-- model: orrery/models/MODEL.lua; class: that of transformers. keys: { key of config.json, option of the model,
-- default as in transformers; nil: required, also = another name of the key, null = meaning of null, which may be given
-- itself }. fixed: keys that must have one of our values, or be absent, because others change the mathematics. free:
-- keys that do not affect what the model computes. said: keys that `orrery export` writes in addition to the model's
-- options. quantized: method of quantization_config that is decoded as files are read.

local function set(list)
  local has = {}
  for name in list:gmatch "%S+" do has[name] = true end
  return has
end

-- Free keys of every model: names, tokens, generation, heads of other tasks.
local common = [[architectures model_type transformers_version torch_dtype dtype _name_or_path auto_map use_cache
  bos_token_id eos_token_id pad_token_id sep_token_id decoder_start_token_id tokenizer_class prefix task_specific_params
  return_dict output_hidden_states output_attentions output_scores return_dict_in_generate torchscript use_bfloat16
  tf_legacy_loss finetuning_task id2label label2id num_labels problem_type max_length min_length do_sample
  early_stopping num_beams num_beam_groups diversity_penalty temperature top_k top_p typical_p repetition_penalty
  length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids num_return_sequences
  forced_bos_token_id forced_eos_token_id remove_invalid_values exponential_decay_length_penalty suppress_tokens
  begin_suppress_tokens gradient_checkpointing _attn_implementation_autoset attn_implementation
  chunk_size_feed_forward cross_attention_hidden_size _num_labels is_llama_config unsloth_fixed unsloth_version
  transformers.js_config]]

local function fixed(more)
  local all = { is_encoder_decoder = { false }, is_decoder = { false, true }, add_cross_attention = { false },
                tie_encoder_decoder = { false }, quantization_config = {}, pruned_heads = {} }
  for key, values in pairs(more) do all[key] = values end
  return all
end

-- Params of a mixture of experts -> names of their tensors below a layer's, one for each expert. gpt_oss has one for
-- all experts, in which gate and up alternate (`fused`).
local function mixture(block, gate, up, down, shared)
  local experts = block .. ".experts.*."
  local names = { ["gate"] = block .. ".gate", ["experts.gate"] = experts .. gate, ["experts.up"] = experts .. up,
                  ["experts.down"] = experts .. down, ["shared_expert_gate"] = block .. ".shared_expert_gate" }
  for _, name in ipairs { "gate", "up", "down" } do
    names["shared_experts." .. name] = ("%s.%s.%s_proj"):format(block, shared or "shared_experts", name)
  end
  return names
end

--- A model of Llama's family. `differs`: what differs from Llama, and options of the model without a key. A number of
-- heads, or their width, that is not given here must be in the file. `keys`, `fixed`, `free`: more of them.
local function of_llama(differs)
  local keys = {
    { "vocab_size", "vocab" }, { "hidden_size", "embed" }, { "intermediate_size", "mlp" },
    { "num_hidden_layers", "layers" }, { "num_attention_heads", "heads" },
    { "num_key_value_heads", "kv_heads", differs.kv_heads }, { "head_dim", "head_dim", differs.head_dim },
    { "rms_norm_eps", "eps", differs.eps or 1e-6 }, { "initializer_range", "std", 0.02 },
    { "tie_word_embeddings", "tied", false },
  }
  if differs.biased then keys[#keys + 1] = { "attention_bias", "bias", false } end
  for _, row in ipairs(differs.keys or {}) do keys[#keys + 1] = row end
  for i = #keys, 1, -1 do
    if (differs.without or {})[keys[i][1]] then table.remove(keys, i) end
  end
  local values = fixed { hidden_act = { "silu", "swish" }, mlp_bias = { false }, attention_dropout = { 0.0 },
                         attention_bias = { false }, pretraining_tp = { 1 }, partial_rotary_factor = { 1.0 },
                         use_mrope = { false }, rope_interleaved = { false } }
  for key, value in pairs(differs.fixed or {}) do values[key] = value end
  return {
    model = "llama", class = differs.class, keys = keys, sizes = differs.sizes or {}, rotary = true,
    window = differs.window, theta = differs.theta, mixture = differs.mixture, quantized = differs.quantized,
    fixed = values, free = set(common .. " max_position_embeddings " .. (differs.free or "")),
    said = { hidden_act = "silu" },
  }
end

-- transformers only adds this to the loss, so logits do not depend on it; see script.balance.
local balance = "router_aux_loss_coef output_router_logits"

--- Keys of Qwen's mixtures.
local function of_qwen(experts, top_k, more)
  local keys = { { "num_experts", "experts", experts, also = "num_local_experts" },
                 { "num_experts_per_tok", "top_k", top_k }, { "moe_intermediate_size", "expert_mlp" },
                 { "norm_topk_prob", "renormalise", false } }
  return table.move(more or {}, 1, #(more or {}), #keys + 1, keys)
end

return {
  gpt2 = {
    model = "gpt", class = "GPT2LMHeadModel", sizes = {},
    keys = {
      { "vocab_size", "vocab" }, { "n_positions", "seq" }, { "n_embd", "embed" }, { "n_layer", "layers" },
      { "n_head", "heads" }, { "n_inner", "mlp", false }, { "layer_norm_epsilon", "eps", 1e-5 },
      { "tie_word_embeddings", "tied", true },
    },
    fixed = fixed { activation_function = { "gelu_new", "gelu_pytorch_tanh" }, scale_attn_weights = { true },
                    scale_attn_by_inverse_layer_idx = { false } },
    -- The script decides how much is dropped in training.
    free = set(common .. [[ n_ctx initializer_range reorder_and_upcast_attn resid_pdrop embd_pdrop attn_pdrop
      summary_type summary_use_proj summary_activation summary_proj_to_labels summary_first_dropout]]),
    said = { activation_function = "gelu_new", attn_pdrop = 0.0 },
  },
  llama = of_llama { class = "LlamaForCausalLM", kv_heads = 0, head_dim = 0, biased = true },
  -- window: the meaning of sliding_window. "all": for every layer, 4096 when the key is absent; "given": for every
  -- layer; "used", "some", "listed": if use_sliding_window is set, for every layer, for those that layer_types or
  -- max_window_layers select, or for those of layer_types. "typed": for those of layer_types, or each second one.
  mistral = of_llama { class = "MistralForCausalLM", window = "all", head_dim = 0 },
  qwen2 = of_llama { class = "Qwen2ForCausalLM", window = "some", head_dim = 0, sizes = { qkv_bias = true } },
  qwen3 = of_llama { class = "Qwen3ForCausalLM", window = "some", sizes = { qk_norm = true }, biased = true },
  mixtral = of_llama {
    class = "MixtralForCausalLM", window = "given", head_dim = 0, eps = 1e-5, theta = 1e6, free = balance,
    keys = { { "num_local_experts", "experts", 8, also = "num_experts" }, { "num_experts_per_tok", "top_k", 2 } },
    fixed = { router_jitter_noise = { 0.0 } }, mixture = mixture("block_sparse_moe", "w1", "w3", "w2"),
  },
  qwen2_moe = of_llama {
    class = "Qwen2MoeForCausalLM", window = "listed", head_dim = 0, sizes = { qkv_bias = true, shared_gate = true },
    free = balance .. " max_window_layers", fixed = { qkv_bias = { true } },
    mixture = mixture("mlp", "gate_proj", "up_proj", "down_proj", "shared_expert"),
    keys = of_qwen(60, 4, { { "shared_expert_intermediate_size", "shared", 5632 } }),
  },
  gpt_oss = of_llama {
    class = "GptOssForCausalLM", window = "typed", head_dim = 64, eps = 1e-5, theta = 150000.0,
    sizes = { bias = true, sinks = true, router_bias = true, expert_bias = true, first = "top_k" },
    fixed = { attention_bias = { true }, swiglu_alpha = { 1.702 } },
    free = balance .. " experts_per_token initial_context_length",
    keys = { { "num_local_experts", "experts", 128, also = "num_experts" }, { "num_experts_per_tok", "top_k", 4 },
             { "swiglu_limit", "limit", 7.0 } },
    mixture = { fused = true }, quantized = "mxfp4",
  },
  deepseek_v3 = of_llama {
    class = "DeepseekV3ForCausalLM", biased = true, mixture = mixture("mlp", "gate_proj", "up_proj", "down_proj"),
    sizes = { scores = "sigmoid", correction = true }, without = set "num_key_value_heads head_dim",
    free = balance .. " num_key_value_heads head_dim qk_head_dim ep_size seq_aux aux_loss_alpha",
    fixed = { scoring_func = { "sigmoid" }, topk_method = { "noaux_tc" }, moe_layer_freq = { 1 } },
    quantized = "fp8",
    keys = {
      { "n_routed_experts", "experts", 256, also = "num_local_experts" }, { "num_experts_per_tok", "top_k", 8 },
      { "moe_intermediate_size", "expert_mlp" }, { "n_shared_experts", "shared_count", 1, null = 0 },
      { "routed_scaling_factor", "scale", 2.5 }, { "n_group", "groups", 8 }, { "topk_group", "top_groups", 4 },
      { "norm_topk_prob", "renormalise", true }, { "first_k_dense_replace", "dense", 3, null = 0 },
      { "q_lora_rank", "q_rank", 1536, null = 0 }, { "kv_lora_rank", "kv_rank", 512 },
      { "qk_nope_head_dim", "nope_dim", 128 }, { "qk_rope_head_dim", "rope_dim", 64 }, { "v_head_dim", "v_dim", 128 },
      { "rope_interleave", "interleaved", true }, { "num_nextn_predict_layers", "predicted", 1, null = 0 },
    },
  },
  qwen3_moe = of_llama {
    class = "Qwen3MoeForCausalLM", window = "used", head_dim = 0, sizes = { qk_norm = true }, biased = true,
    free = balance .. " max_window_layers", mixture = mixture("mlp", "gate_proj", "up_proj", "down_proj"),
    keys = of_qwen(128, 8),
  },
}
