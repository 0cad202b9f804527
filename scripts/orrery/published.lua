--- Published models: a folder with config.json and model.safetensors or its index.
local native = require "orrery.native"
local architectures = require "orrery.architectures"
local as_published = require "orrery.as_published"
local config_json = require "orrery.config_json"
local positions = require "orrery.positions"

local published = {}

local shown = config_json.shown

local function one_of(values, value)
  for _, known in ipairs(values) do
    if value == known then return true end
  end
  return false
end

--- The model's options from the keys of config.json.
local function sizes_of(config, architecture)
  local sizes = {}
  for option, value in pairs(architecture.sizes) do sizes[option] = value end
  for _, row in ipairs(architecture.keys) do
    local key, option, absent = row[1], row[2], row[3]
    local value, flag = config:take(key), type(absent) == "boolean" and option ~= "mlp"
    local other = row.also and config:take(row.also)
    if other and value and other ~= value then
      config:fail(row.also, ("differs from %s = %s"):format(key, shown(value)))
    end
    if value == nil then value, key = other, other and row.also or key end
    if value == nil and config.all[key] == native.null then value = row.null end
    if value == nil and absent == nil then config:fail(key, "missing, expected a number") end
    if value == nil then
      value = absent
    elseif flag then
      if type(value) ~= "boolean" then config:fail(key, "expected true or false") end
    elseif type(value) ~= "number" or value < 0 or value - value ~= 0 then
      config:fail(key, "expected a number that is not negative")
    elseif math.type(absent) == "float" then
      value = value + 0.0
      if value == 0 and (option == "limit" or option == "scale") then config:fail(key, "expected a number above 0") end
    else
      value = math.tointeger(value) or config:fail(key, "expected an integer")
      if value == 0 and absent ~= 0 and row.null ~= 0 then config:fail(key, "expected an integer above 0") end
      -- Larger ones would overflow in products; each layer is recorded.
      local most = option == "layers" and 10000 or 1 << 31
      if value > most then config:fail(key, ("expected an integer of at most %d"):format(most)) end
    end
    sizes[option] = value
  end
  return sizes
end

--- The layers with a dense block in place of a mixture: the number of the first ones, or their list.
local function dense_layers(config, layers)
  local step, list, named = config:take "decoder_sparse_step" or 1, config:take "mlp_only_layers" or {}, {}
  if math.type(step) ~= "integer" or step < 1 then config:fail("decoder_sparse_step", "expected an integer above 0") end
  if type(list) ~= "table" then config:fail("mlp_only_layers", "expected a list of layers") end
  for _, layer in ipairs(list) do named[layer] = true end
  local dense, first = {}, true
  for i = 0, layers - 1 do
    if named[i] or (i + 1) % step ~= 0 then dense[#dense + 1], first = i, first and #dense == i end
  end
  if first then return #dense, false end
  return 0, dense
end

--- Takes a quantization_config that is decoded as files are read; check_rest refuses any other.
local function take_quantized(config, architecture)
  local given = config.all.quantization_config
  local method = type(given) == "table" and given.quant_method
  if not method or method ~= architecture.quantized then return end
  if method == "fp8" then
    local block = type(given.weight_block_size) == "table" and given.weight_block_size or {}
    if block[1] ~= 128 or block[2] ~= 128 then
      config:fail("quantization_config.weight_block_size", "expected [128, 128]")
    end
    if given.fmt ~= nil and given.fmt ~= "e4m3" then config:fail("quantization_config.fmt", "expected e4m3") end
  end
  config:take "quantization_config"
end

--- Changes DeepSeek's numbers to options: the width of all shared experts and the factor of the scores with yarn.
-- Returns the number of modules of multi-token prediction.
local function of_deepseek(config, sizes)
  sizes.shared = sizes.shared_count * sizes.expert_mlp
  if sizes.groups > 0 and sizes.experts % sizes.groups ~= 0 then
    config:fail("n_group", ("does not divide %d experts"):format(sizes.experts))
  end
  local scaling = config.all.rope_parameters or config.all.rope_scaling
  local all = type(scaling) == "table" and sizes.rope_scaling and scaling.mscale_all_dim or 0
  if all ~= native.null and all ~= 0 and scaling.factor > 1 then
    sizes.score_scale = (0.1 * all * math.log(scaling.factor) + 1.0) ^ 2
  end
  local modules = sizes.predicted
  sizes.shared_count, sizes.predicted = nil, nil
  return modules
end

--- Throws for all keys that require other mathematics than the model's, and all unknown keys, in one message.
local function check_rest(config, architecture)
  local problems, unknown = {}, {}
  for key, values in pairs(architecture.fixed) do
    if config.left[key] then
      local value = config:take(key)
      local empty = type(value) == "table" and next(value) == nil
      if type(value) == "table" and value.quant_method then key, value = key .. ".quant_method", value.quant_method end
      if value ~= nil and not empty and not one_of(values, value) then
        local known = {}
        for _, one in ipairs(values) do known[#known + 1] = shown(one) end
        problems[#problems + 1] = ("%s = %s: %s"):format(key, shown(value), #known > 0
          and ("the %s here computes what %s says"):format(architecture.model, table.concat(known, " or "))
          or "not supported")
      end
    end
  end
  for key in pairs(config.left) do
    local value = config.all[key]
    if not architecture.free[key] and value ~= native.null then
      unknown[#unknown + 1] = key
      problems[#problems + 1] = ("%s = %s: unknown key, which may change what the model computes"):format(key,
        shown(value))
    end
  end
  if #problems == 0 then return end
  table.sort(problems)
  table.sort(unknown)
  local advice = #unknown > 0 and ("\n  where an unknown key changes nothing, name it in `unread`: "
    .. "--set script.unread=%s"):format(table.concat(unknown, ",")) or ""
  native.fail(("%s/config.json: %s%s"):format(config.folder, table.concat(problems, "\n  "), advice))
end

--- Reads FOLDER/config.json: { type = model_type, model = of orrery/models, class =, sizes = its options, config = all
-- its keys, left_out = number of its modules of multi-token prediction, which `sizes` lack }. Options: seq, the
-- longest sequence that the model will see; unread, keys to ignore. Throws, with file, key and value, for a key that
-- changes the mathematics and is not supported.
function published.read(folder, options)
  if not folder or folder == "" then
    native.fail "there is no published model to read: set checkpoint.load = FOLDER, with config.json in it"
  end
  local config = config_json.open(folder)
  for _, key in ipairs(options.unread or {}) do
    if config.all[key] == nil then
      local keys = {}
      for known in pairs(config.all) do keys[#keys + 1] = known end
      native.fail(("script.unread: %s/config.json has no key %s%s"):format(folder, key,
        native.choices("its keys", key, keys)))
    end
    config:take(key)
  end
  local kind, names = config:take "model_type", {}
  local architecture = architectures[kind or ""]
  for name in pairs(architectures) do names[#names + 1] = name end
  if not architecture then config:fail("model_type", "expected one of " .. table.concat(names, ", ")) end
  local sizes = sizes_of(config, architecture)
  if architecture.rotary then
    sizes.theta, sizes.rope_scaling = positions.rotary(config, architecture.theta)
    sizes.window, sizes.windows = positions.window(config, architecture.window, sizes.layers, options.seq)
  elseif sizes.seq < options.seq then
    config:fail("n_positions", ("sequences of %d tokens are longer\n  give shorter ones: data.tokens_per_sequence")
      :format(options.seq))
  end
  if sizes.experts then
    if sizes.top_k > sizes.experts then
      config:fail("num_experts_per_tok", ("more than the %d experts"):format(sizes.experts))
    end
    if not sizes.dense then sizes.dense, sizes.dense_layers = dense_layers(config, sizes.layers) end
  end
  local left_out = sizes.shared_count and of_deepseek(config, sizes)
  take_quantized(config, architecture)
  check_rest(config, architecture)
  return { type = kind, model = architecture.model, class = architecture.class, sizes = sizes, config = config.all,
           left_out = left_out }
end

--- The model that FOLDER/config.json describes. Options: as for read; more: options of the model that no config has, of
-- which `experts` makes a mixture of a dense model's blocks, and `mtp_weight` above 0 takes the module of multi-token
-- prediction in; a mixture without `capacity` and overflow drops nothing; multiple (128): its table's rows are rounded
-- up to a multiple, so that meshes can split it and checkpoints fit any mesh.
function published.model(folder, options)
  local found = published.read(folder, options)
  local multiple = options.multiple or 128
  found.sizes.rows = (found.sizes.vocab + multiple - 1) // multiple * multiple
  local sizes, more = found.sizes, options.more or {}
  local upcycled = more.experts ~= nil
  if upcycled and (sizes.experts or not sizes.theta) then
    native.fail(("%s/config.json: model_type = %q: experts are made of the blocks of a dense model of Llama's family\n"
      .. "  leave `experts` out"):format(folder, found.type))
  end
  for name, value in pairs(more) do sizes[name] = value end
  if (sizes.mtp_weight or 0) ~= 0 then
    if found.left_out ~= 1 then
      native.fail(("%s/config.json: it has %d modules of multi-token prediction, and mtp_weight needs exactly 1\n"
        .. "  leave mtp_weight out (script.mtp_weight = 0)"):format(folder, found.left_out or 0))
    end
    found.left_out = 0
  end
  if sizes.experts then
    if sizes.overflow ~= "again" then sizes.capacity = sizes.capacity or sizes.experts / (sizes.top_k or 2) end
    sizes.upcycled = upcycled
  end
  local model = require("orrery.models." .. found.model)(sizes)
  model.left_out = found.left_out
  if not upcycled then
    model.published = as_published.again(found, native.published_config(folder, "generation_config.json"))
  end
  return model, found
end

return published
