--- Positions in config.json: rotary embeddings and sliding windows.
local native = require "orrery.native"
local numbers = require "orrery.numbers"
local shown = require "orrery.config_json".shown

local positions = {}
local null = native.null

local numbers_of = {                                     -- required numbers of each kind of scaling, above 0
  default = "", linear = "factor", llama3 = "factor low_freq_factor high_freq_factor original_max_position_embeddings",
  yarn = "factor",
}
local optional = {
  yarn = "original_max_position_embeddings attention_factor beta_fast beta_slow mscale mscale_all_dim",
}

--- Reads rope_scaling or rope_parameters: theta, and numbers of a scaling under config.json's names.
local function scaling_of(config, key, given, theta)
  if type(given) ~= "table" then config:fail(key, "expected an object") end
  local function number(name)
    local value = numbers.positive("", given[name])
    return value and value + 0.0 or config:fail(key .. "." .. name, "expected a number above 0")
  end
  local kind = given.rope_type or given.type or "default"
  if not numbers_of[kind] then
    config:fail(key .. (given.rope_type and ".rope_type" or ".type"), "expected default, linear, llama3 or yarn")
  end
  local scaling = { theta = given.rope_theta and number "rope_theta" or theta }
  for name in numbers_of[kind]:gmatch "%S+" do scaling[name] = number(name) end
  for name in (optional[kind] or ""):gmatch "%S+" do
    if given[name] ~= nil and given[name] ~= null then scaling[name] = number(name) end
  end
  if kind == "yarn" then
    scaling.truncate = given.truncate == nil or given.truncate
    if type(scaling.truncate) ~= "boolean" then config:fail(key .. ".truncate", "expected true or false") end
    scaling.beta_fast, scaling.beta_slow = scaling.beta_fast or 32.0, scaling.beta_slow or 1.0
    if scaling.beta_fast <= scaling.beta_slow then
      config:fail(key .. ".beta_fast", ("expected more than beta_slow = %g"):format(scaling.beta_slow))
    end
    local positions_then = scaling.original_max_position_embeddings or config.all.max_position_embeddings
    scaling.original_max_position_embeddings = numbers.positive("", positions_then)
      or config:fail(key .. ".original_max_position_embeddings", "expected a number above 0")
  end
  for name, value in pairs(given) do
    local known = scaling[name] ~= nil or name == "rope_type" or name == "type" or name == "rope_theta" or value == null
      or name == "partial_rotary_factor" and value == 1
    if not known then config:fail(key .. "." .. name, ("unknown number of a scaling of kind %s"):format(kind)) end
  end
  return scaling
end

--- The name of a number that differs between the two, or that only one of them has.
local function difference(a, b)
  for name, value in pairs(a) do
    if b[name] ~= value then return name end
  end
  for name in pairs(b) do
    if a[name] == nil then return name end
  end
end

--- The factor of cosines and sines of yarn, as in transformers.
local function yarn_magnitude(given)
  local function of(mscale) return given.factor <= 1 and 1.0 or 0.1 * mscale * math.log(given.factor) + 1.0 end
  if given.attention_factor then return given.attention_factor end
  if given.mscale and given.mscale_all_dim then return of(given.mscale) / of(given.mscale_all_dim) end
  return of(1)
end

--- The rotary embedding: theta, `absent` (10,000) without its key, and the scaling as options of the op. rope_theta and
-- rope_scaling are the spelling of transformers 4, rope_parameters that of 5; when both are present they must agree.
function positions.rotary(config, absent)
  local old_theta, old = config:take "rope_theta", config:take "rope_scaling"
  local new = config:take "rope_parameters"
  local theta = numbers.positive("", old_theta or absent or 10000.0)
  theta = theta and theta + 0.0 or config:fail("rope_theta", "expected a number above 0")
  local was = old and scaling_of(config, "rope_scaling", old, theta)
  local is = new and scaling_of(config, "rope_parameters", new, theta)
  local other = was and is and difference(was, is) or old_theta and is and is.theta ~= theta and "theta"
  if other then config:fail("rope_parameters", ("its %s differs from rope_theta or rope_scaling"):format(other)) end
  local result = is or was or { theta = theta }
  theta, result.theta = result.theta, nil
  result.original_positions = math.tointeger(result.original_max_position_embeddings)
  result.original_max_position_embeddings = nil
  if result.beta_fast then
    result.magnitude = yarn_magnitude(result)
    result.attention_factor, result.mscale, result.mscale_all_dim = nil, nil, nil
    result.truncate = result.truncate or nil
  end
  return theta, next(result) and result or false
end

--- Writes the rotary embedding in both spellings: with the new one alone transformers 4 silently uses a theta of 10,000
-- and no scaling. `scaling`: options of the op, or false; score_scale: factor of DeepSeek's scores with yarn, or nil.
function positions.spell(config, theta, scaling, score_scale)
  local new = { rope_type = "default", rope_theta = theta }
  config.rope_theta, config.rope_scaling, config.rope_parameters = theta, null, new
  if not scaling then return end
  new.rope_type = scaling.low_freq_factor and "llama3" or scaling.beta_fast and "yarn" or "linear"
  for name, value in pairs(scaling) do
    new[name == "original_positions" and "original_max_position_embeddings" or name == "magnitude" and
      "attention_factor" or name] = value
  end
  if scaling.beta_fast then
    new.attention_factor, new.truncate = scaling.magnitude or 1.0, scaling.truncate or false
    if score_scale and score_scale ~= 1 then
      new.mscale_all_dim = (score_scale ^ 0.5 - 1) / (0.1 * math.log(scaling.factor))
    end
  end
  local old = {}
  for name, value in pairs(new) do old[name] = value end
  old.rope_theta = nil
  if old.rope_type == "linear" then old.type, old.rope_type = "linear", nil end      -- its name before llama3
  config.rope_scaling = old
end

--- The number of keys that a position sees, 0: all; where only some layers have a window, 0 and the number of each
-- layer as a list. `meant`: the architecture's meaning of sliding_window, see architectures.lua; nil: it has none.
-- `seq`: the longest sequence of the run.
function positions.window(config, meant, layers, seq)
  if not meant then return 0 end
  local window, kinds = config:take "sliding_window", nil
  local from = 0
  if config.all.sliding_window == nil and meant ~= "given" then               -- as in transformers
    window = meant == "typed" and 128 or 4096
  end
  if meant ~= "all" and meant ~= "given" and meant ~= "used" then kinds = config:take "layer_types" end
  if meant == "some" then from = config:take "max_window_layers" or 28 end
  local switched = meant ~= "all" and meant ~= "given" and meant ~= "typed"
  if switched and not config:take "use_sliding_window" then window = nil end
  if meant == "listed" and window and not kinds then
    config:fail("layer_types", "expected the kind of each layer, as use_sliding_window is set")
  end
  if kinds and #kinds ~= layers then
    config:fail("layer_types", ("%d kinds for %d layers: expected one a layer"):format(#kinds, layers))
  end
  local sliding, windows = 0, {}
  for i = 1, layers do
    local absent = meant == "typed" and (i % 2 == 1 and "sliding_attention" or "full_attention")
    local kind = kinds and kinds[i] or absent or window and i > from and "sliding_attention" or "full_attention"
    if kind ~= "sliding_attention" and kind ~= "full_attention" then
      config:fail("layer_types", ("layer %d is %s, expected full_attention or sliding_attention"):format(i,
        shown(kind)))
    end
    windows[i] = kind == "sliding_attention" and window or 0
    if kind == "sliding_attention" then sliding = sliding + 1 end
  end
  if sliding == 0 then return 0 end
  if math.type(window) ~= "integer" or window < 1 then config:fail("sliding_window", "expected a number of keys") end
  if window >= seq then return 0 end
  if sliding < layers then return 0, windows end
  return window
end

return positions
