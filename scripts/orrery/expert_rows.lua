--- dispatch = "rows" of nn.moe: a token goes once to each block of consecutive experts that has any of its choices,
-- with the numbers of their slots and their weights. There it is copied to the slots, and the results of the block's
-- experts are weighted and summed before they come back. The slots are those of dispatch = "slab".
-- Shapes: as in moe.lua, H blocks, R rows of a block in a group.
local native, capacities = require "orrery.native", require "orrery.capacities"

local rows = {}

--- The share of tokens that go to a block if every choice of k experts is equally likely, in c.top_groups of c.groups
-- groups of experts.
local function share(c)
  local each, open = c.experts // c.blocks, c.top_groups / c.groups
  if c.experts // c.groups % each ~= 0 then open = 1 end            -- blocks that do not divide groups
  local experts, none = c.experts * open, 1                         -- none: probability that no expert is of the block
  for i = 0, c.top_k - 1 do none = none * math.max(0, experts - each - i) / (experts - i) end
  return open * (1 - none)
end

--- R of this program, where experts have `slots`, and whether a step that overflows it runs again; then also the R of
-- another capacity. R is the capacity times the even share, and at most one for each token or slot of the block. Blocks
-- drop nothing: the last capacity holds everything, and so does an evaluation.
local function rows_of(c, tokens, capacity, slots, slots_at)
  local function all(held) return math.min(tokens, c.experts // c.blocks * held) end
  local even, sizes = tokens * share(c), c.sizes
  if not native.training() then return all(slots), false end
  if not sizes then
    sizes = capacities(c.capacity, all(slots) / even)
    capacity = #sizes > 1 and native.capacity(sizes) or c.capacity
  end
  local function at(size)
    local full = all(slots_at(size))
    return size == sizes[#sizes] and full or math.min(math.ceil(even * size * (1 - 2 ^ -40)), full)
  end
  return at(capacity), #sizes > 1, at
end

--- To experts and back. h [..., N, C] with `width`, the name and size of C; ids i32 [..., N, k], their slots `places`
-- and `weights`; capacity and slots (S) of experts in this program, slots_at(capacity) in another; grouped(x, ...): x
-- as [..., dims]. Returns slabs [..., H, E / H, S, C], and a function from such results of experts to y [..., N, C].
function rows.send(c, h, width, ids, places, weights, capacity, slots, slots_at, grouped)
  local last, tokens, each = #ids.shape, ids.shape[#ids.shape - 1], c.experts // c.blocks
  if c.experts * slots >= 2 ^ 24 then
    native.fail(("nn.moe: %d experts of %d slots are too many for dispatch = \"rows\": numbers of slots do not fit "
      .. "f32\n  make groups smaller by more parts, or set dispatch = \"slab\""):format(c.experts, slots))
  end
  local space, again, space_at = rows_of(c, tokens, capacity, slots, slots_at)
  local numbers = places:cast "f32" + 1                             -- 0: dropped
  local chosen = numbers:greater(0):cast "f32":scatter_add(ids, { dim = last, size = c.experts })
  local needed = grouped(chosen, tokens, c.blocks, each):sum { dims = { last + 1 } }:greater(0)
  local block = native.iota { shape = { c.blocks }, dtype = "f32" }
  local blocks = needed:select(block, native.constant(-1)):cast "i32"    -- [..., N, H]
  local at, load = blocks:assign_slots { experts = c.blocks, slots = space }
  if again then native.overflow(grouped(load, { "block", c.blocks }), space_at) end
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
