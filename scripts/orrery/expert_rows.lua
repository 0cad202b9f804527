--- dispatch = "rows" of nn.moe: a token goes once to each block of consecutive experts that has any of its choices,
-- with the numbers of their slots and their weights. There it is copied to the slots, and the results of the block's
-- experts are weighted and summed before they come back. The slots are those of dispatch = "slab".
-- Shapes: as in moe.lua, H blocks, R rows of a block in a group.
local native, capacities = require "orrery.native", require "orrery.capacities"

local rows = {}

--- The share of tokens that go to a block if every choice of k experts is equally likely.
local function share(c)
  local none = 1                                                    -- probability that a block has no expert of a token
  for i = 0, c.top_k - 1 do
    none = none * math.max(0, c.experts - c.experts // c.blocks - i) / (c.experts - i)
  end
  return 1 - none
end

--- R: `capacity` times the even share, and at most one for each token.
local function rows_of(c, capacity, tokens)
  return math.min(math.ceil(capacity * tokens * share(c) * (1 - 2 ^ -40)), tokens)
end

--- Whether a block can have too few rows in this program. It drops nothing: such a step runs again.
local function can_overflow(c) return native.training() and c.capacity < 1 / share(c) end

--- The capacity of blocks in this program, where that of experts is `capacity`.
local function capacity_of(c, capacity)
  local all = 1 / share(c)                                          -- holds every token
  if not can_overflow(c) then return all end
  return c.overflow == "again" and capacity or native.capacity(capacities(c.capacity, all))
end

--- To experts and back. h [..., N, C] with `width`, the name and size of C; ids i32 [..., N, k], their slots `places`
-- and `weights`; capacity and slots (S) of experts in this program; grouped(x, ...): x as [..., dims]. Returns slabs
-- [..., H, E / H, S, C], and a function from such results of experts to y [..., N, C].
function rows.send(c, h, width, ids, places, weights, capacity, slots, grouped)
  local last, tokens, each = #ids.shape, ids.shape[#ids.shape - 1], c.experts // c.blocks
  if c.experts * slots >= 2 ^ 24 then
    native.fail(("nn.moe: %d experts of %d slots are too many for dispatch = \"rows\": numbers of slots do not fit "
      .. "f32\n  make groups smaller by more parts, or set dispatch = \"slab\""):format(c.experts, slots))
  end
  capacity = capacity_of(c, capacity)
  local space = rows_of(c, capacity, tokens)
  local numbers = places:cast "f32" + 1                             -- 0: dropped
  local chosen = numbers:greater(0):cast "f32":scatter_add(ids, { dim = last, size = c.experts })
  local needed = grouped(chosen, tokens, c.blocks, each):sum { dims = { last + 1 } }:greater(0)
  local block = native.iota { shape = { c.blocks }, dtype = "f32" }
  local blocks = needed:select(block, native.constant(-1)):cast "i32"    -- [..., N, H]
  local at, load = blocks:assign_slots { experts = c.blocks, slots = space }
  if can_overflow(c) then
    native.overflow(grouped(load, { "block", c.blocks }), function(other) return rows_of(c, other, tokens) end)
  end
  local named = { "blocks", c.blocks }
  local function send(x, size)
    return grouped(x:dispatch(at, { experts = c.blocks, slots = space }), named, { "slots", space }, size)
  end
  local first = native.iota { shape = { c.blocks, 1, 1 }, dtype = "f32" } * (each * slots) + 1
  local own = (send(numbers, c.top_k) - first):cast "i32"           -- out of range: of another block, or dropped
  local slabs = send(h, width):dispatch(own, { experts = each, slots = slots })
  local own_weights = send(weights, c.top_k)
  return slabs, function(made)
    local summed = grouped(made, named, each, slots, width):combine(own, own_weights)
    return grouped(summed, named, { "slots", space }, width):combine(at)
  end
end

return rows
