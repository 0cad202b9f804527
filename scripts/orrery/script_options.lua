--- What gpt.lua, llama.lua and hf.lua do with their options.
local native = require "orrery.native"
local strategy = require "orrery.strategy"

local script_options = {}

--- The list { "dp", "cp" } of a text "dp,cp".
function script_options.words(list)
  local all = {}
  for word in list:gmatch "[^,%s]+" do all[#all + 1] = word end
  return all
end

--- The list { 11, 13, 12 } of script.stages = "11,13,12". Throws for anything else, and without a pipeline.
function script_options.stages(opt, mesh)
  local counts = {}
  for _, word in ipairs(script_options.words(opt.stages)) do
    counts[#counts + 1] = math.tointeger(tonumber(word))
      or error(("script.stages = %s: %q is not a number of layers\n  list them, as in 11,13,12")
        :format(opt.stages, word), 2)
  end
  if #counts > 0 and (mesh.pp or 1) == 1 then
    error(("script.stages = %s: the mesh has one rank on pp, which has all layers\n  set mesh.pp, or leave "
      .. "script.stages out"):format(opt.stages), 2)
  end
  return counts
end

--- Adds the options of codecs to those that a script declares. Returns the same table.
function script_options.with_codecs(declared)
  declared.codec = { "none", "how gradients are sent over the axes of the batch: bf16, f16, f8e4m3, f8e5m2, int8, "
                       .. "int4, int2, sign, top_k/100, top_k/64+int2, powersgd/4, or a plugin's; by axis: "
                       .. "rep=int4,dp=bf16" }
  declared.param_codec = { "none", "with zero = 3: how gathered params are sent: bf16, f16, f8e4m3, f8e5m2, int8, "
                             .. "int4" }
  declared.activation_codec = { "none", "how activations between shards, stages and experts, and their gradients, are "
                                  .. "sent" }
  declared.feedback = { false, "with a codec: each rank adds what encoding leaves out of a gradient to its next one" }
  return declared
end

--- The strategies of script.param_codec over `axes`, and of script.activation_codec between shards of a matrix, stages
-- and experts. Throws where nothing would read them.
function script_options.codecs(opt, axes)
  local mesh = native.config.mesh
  if opt.param_codec ~= "none" and opt.zero ~= 3 then
    error(("script.param_codec = %s: params are gathered with script.zero = 3 only\n  set it, or leave param_codec out")
      :format(opt.param_codec), 2)
  end
  local between, ranks = { "tp", "pp" }, (mesh.tp or 1) * (mesh.pp or 1)
  for _, axis in ipairs(script_options.words(opt.expert_axes or "")) do
    between[#between + 1] = axis
    ranks = ranks * (mesh[axis] or 1)
  end
  if opt.activation_codec ~= "none" and ranks == 1 then
    error(("script.activation_codec = %s: no activations are sent over this mesh\n  leave it out, or use %s")
      :format(opt.activation_codec, table.concat(between, ", ")), 2)
  end
  return strategy.twins.codec { axis = axes, params = opt.param_codec },
    strategy.twins.codec { axis = between, activations = opt.activation_codec }
end

--- The axis script.replicate. Throws where another one than the default is given and the mesh lacks it.
function script_options.replicate(declared, opt, mesh)
  if opt.replicate ~= declared.replicate[1] and opt.replicate ~= "" and not mesh[opt.replicate] then
    error(("script.replicate = %s: the mesh has no such axis, so that nothing would be repeated\n  name an axis of "
      .. "[mesh], or leave it out"):format(opt.replicate), 2)
  end
  return opt.replicate
end

--- The blocks of experts of dispatch = rows: as given, or as many as ranks share experts; 0 with slabs.
function script_options.expert_blocks(opt, mesh)
  local ranks = 1
  for _, axis in ipairs(script_options.words(opt.expert_axes)) do ranks = ranks * (mesh[axis] or 1) end
  return opt.dispatch == "slab" and 0 or opt.expert_blocks ~= 0 and opt.expert_blocks or ranks
end

--- Says that tokens are dropped where `capacity` times an expert's even share does not hold all of them.
function script_options.tell_drops(opt, capacity, sizes)
  if opt.overflow == "drop" and capacity * sizes.top_k < sizes.experts then
    print(("experts: tokens beyond %g times an expert's even share are dropped, also in evaluation"
      .. " (script.capacity)\n  software that reads an exported model drops none, so its loss differs")
      :format(capacity))
  end
end

--- Throws for an option of a mixture of experts that is given but has no effect, because another one is not set, no
-- layer has experts or the mesh has no such axis. `declared`: the table given to o.options, with the defaults; `opt`:
-- its result.
function script_options.check_mixture(declared, opt)
  local function check(key, read, needed)
    if declared[key] and not read and opt[key] ~= declared[key][1] then
      error(("script.%s = %s: nothing reads it without %s\n  leave it out, or set script.%s")
        :format(key, opt[key], needed, needed), 3)
    end
  end
  check("max_capacity", opt.overflow == "again", "overflow = again")
  check("expert_blocks", opt.dispatch == "rows", "dispatch = rows")
  check("drop", opt.overflow == "drop", "overflow = drop")
  check("balance_coefficient", opt.balance ~= "none", "balance")
  check("balance_groups", opt.balance == "groups", "balance = groups")
  if declared.dense and opt.dense > 0 and opt.dense >= opt.layers then
    error(("script.dense = %d: none of %d layers would have experts\n  give fewer than script.layers, or choose "
      .. "script.model = llama"):format(opt.dense, opt.layers), 2)
  end
  local mesh, meshed, known = native.config.mesh, false, false
  for _ in pairs(mesh) do meshed = true end
  for _, axis in ipairs(script_options.words(opt.expert_axes)) do known = known or mesh[axis] ~= nil end
  if meshed and not known and opt.expert_axes ~= declared.expert_axes[1] then
    error(("script.expert_axes = %s: the mesh has no such axis, so that experts would not be split\n  name axes of "
      .. "[mesh], or leave it out"):format(opt.expert_axes), 2)
  end
end

--- Adds the options of methods (orrery/methods) to those that a script declares. Returns the same table.
function script_options.with_methods(declared)
  declared.method = { "none", "islands train on their own and meet now and then; none: gradients are summed every step",
                      one_of = { "none", "local_sgd", "diloco", "streaming", "gossip" } }
  declared.sync_every = { 0, "with method: steps after which islands meet; 0: as many as the method has by default" }
  declared.islands = { "site", "with method: mesh axis of the islands" }
  declared.islands_resume = { "", "with method: from another number of islands: mean, copies or round; empty: refused" }
  declared.islands_codec = { "none", "with method: how sums over islands are sent: bf16, int8, int4, top_k/100, ..." }
  declared.islands_feedback = { false, "with islands_codec: each island adds what encoding leaves out to what it sends "
                                  .. "next (diloco, streaming)" }
  return declared
end

--- The axes of data parallelism: `axes`, without that of islands.
function script_options.data_axes(opt, axes)
  local kept = {}
  for _, axis in ipairs(axes) do
    if opt.method == "none" or axis ~= opt.islands then kept[#kept + 1] = axis end
  end
  return kept
end

--- Trains `program` by script.method: with the optimizer in every step, or as islands; their strategy becomes the first
-- of `strategies`. Throws for options of methods that have no effect, and for islands over an axis that the mesh lacks.
function script_options.train(program, optimizer, strategies, declared, opt)
  local mesh = native.config.mesh
  if opt.method ~= "none" then
    if not mesh[opt.islands] then
      error(("script.method = %s: the mesh has no axis %s for its islands\n  set mesh.%s to their number, or "
        .. "script.islands to an axis of [mesh]"):format(opt.method, opt.islands, opt.islands), 2)
    end
    if opt.islands_codec ~= "none" and (mesh[opt.islands] or 1) == 1 then
      error(("script.islands_codec = %s: nothing is sent over %s, which has one island\n  leave it out")
        :format(opt.islands_codec, opt.islands), 2)
    end
    local every = opt.sync_every ~= 0 and opt.sync_every or nil
    require("orrery.methods." .. opt.method)(program, { optimizer = optimizer, every = every })
    table.insert(strategies, 1, strategy.plugins.islands { axis = opt.islands, codec = opt.islands_codec,
      feedback = opt.islands_feedback, resume = opt.islands_resume })
    return
  end
  local set = "set script.method to " .. table.concat(declared.method.one_of, ", ", 2)
  for _, key in ipairs { "sync_every", "islands", "islands_codec", "islands_feedback", "islands_resume" } do
    if opt[key] ~= declared[key][1] then
      error(("script.%s = %s: nothing reads it without script.method\n  leave it out, or %s")
        :format(key, tostring(opt[key]), set), 2)
    end
  end
  if (mesh[opt.islands] or 1) > 1 then
    error(("mesh.%s = %d: the islands of that axis need a method\n  %s, or use mesh.dp for data parallelism")
      :format(opt.islands, mesh[opt.islands], set), 2)
  end
  program:train_with(optimizer)
end

--- Throws for script.recompute_layers where nothing is recomputed.
function script_options.check_recompute(opt)
  if opt.recompute == "none" and opt.recompute_layers ~= 0 then
    error(("script.recompute_layers = %d: nothing is recomputed without script.recompute\n  leave it out, or set "
      .. "script.recompute = all"):format(opt.recompute_layers), 2)
  end
end

return script_options
