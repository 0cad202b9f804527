--- The strategies that a script of this folder asks for, on the mesh of its configuration.
local o = require "orrery"

--- Appends to the list: over co and cp the context parallelism of opt.outer and opt.context; experts over the axes
-- opt.experts_over; over tp `tensor`, or the one of the library; plain data parallelism over rep, with opt.rep; over
-- dp, ep, co and cp with opt.zero, or without ep with opt.same_tokens.
return function(opt, list, tensor)
  local mesh = o.config.mesh
  local function add(strategy) list[#list + 1] = strategy end
  local order, context = opt.order or "natural", opt.context or ""
  if mesh.co then add(o.strategy.context { axis = "co", method = opt.outer, order = order }) end
  if context ~= "" then
    add(o.strategy.context { axis = "cp", method = context, order = not mesh.co and order or "natural" })
  end
  local over = {}
  for axis in (opt.experts_over or ""):gmatch "%S+" do over[#over + 1] = axis end
  if #over > 0 then add(o.strategy.expert { axes = over }) end
  if mesh.tp then add(tensor or o.strategy.tensor { axis = "tp", sequence = opt.sequence or nil }) end
  if opt.rep then add(o.strategy.data { axis = "rep" }) end
  local of_tokens = { "dp", "co", "cp", not opt.same_tokens and "ep" or nil }
  if mesh.dp or mesh.cp or #of_tokens > 3 then add(o.strategy.data { axis = of_tokens, zero = opt.zero }) end
  return list
end
