--- The strategies that a script of this folder asks for, on the mesh of its configuration.
local o = require "orrery"

--- Appends to the list: over co and cp the context parallelism of opt.outer and opt.context; over tp `tensor`, or the
-- one of the library; plain data parallelism over rep, with opt.rep; over dp, co and cp with opt.zero.
return function(opt, list, tensor)
  local mesh = o.config.mesh
  local function add(strategy) list[#list + 1] = strategy end
  local order, context = opt.order or "natural", opt.context or ""
  if mesh.co then add(o.strategy.context { axis = "co", method = opt.outer, order = order }) end
  if context ~= "" then
    add(o.strategy.context { axis = "cp", method = context, order = not mesh.co and order or "natural" })
  end
  if mesh.tp then add(tensor or o.strategy.tensor { axis = "tp", sequence = opt.sequence or nil }) end
  if opt.rep then add(o.strategy.data { axis = "rep" }) end
  if mesh.dp or mesh.cp then add(o.strategy.data { axis = { "dp", "co", "cp" }, zero = opt.zero }) end
  return list
end
