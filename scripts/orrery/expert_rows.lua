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
  if c.experts // c.groups % each ~= 0 then open = 1 end            -- a block is not inside one group
  local experts, none = c.experts * open, 1                         -- none: probability that no expert is in the block
  for i = 0, c.top_k - 1 do none = none * math.max(0, experts - each - i) / (experts - i) end
  return open * (1 - none)
end

--- Returns R for this program; in a train step also R as a function of the capacity, and the list of capacities, or nil
-- if no step can overflow. R is the capacity times the even share, at most one row for each token or slot of the block.
-- The last capacity holds everything, and so does an evaluation.
local function rows_of(c, at, tokens)
  local function all(slots) return math.min(tokens, c.experts // c.blocks * slots) end
  if not native.training() then return all(at.slots) end
  local even, list, capacity = tokens * share(c), c.capacities, at.capacity
  if not list then
    list = capacities(capacity, all(at.slots) / even)
    capacity = #list > 1 and native.capacity(list) or capacity
  end
  local function rows_at(size)
    local full = all(at.slots_at(size))
    return size == list[#list] and full or math.min(math.ceil(even * size * (1 - 2 ^ -40)), full)
  end
  return rows_at(capacity), rows_at, #list > 1 and list or nil
end

--- Sends tokens to the blocks of their experts. Returns slabs [..., H, E / H, S, C], and a function from the experts'
-- results, of the same shape, to y [..., N, C]. c: the options of nn.moe. `at`: x [..., N, C]; width, the name and size
-- of C; ids i32 and weights [..., N, k]; places, the slot of each choice; capacity, slots (S) and slots_at(capacity) of
-- this program; grouped(value, ...), which reshapes a value to [..., dims].
function rows.send(c, at)
  local last, grouped, each, blocks = #at.ids.shape, at.grouped, c.experts // c.blocks, { "expert_blocks", c.blocks }
  local tokens = at.ids.shape[last - 1]
  if c.experts * at.slots >= 2 ^ 24 then
    native.fail(("nn.moe: %d experts of %d slots are too many for dispatch = \"rows\", which needs fewer than "
      .. "2^24 slots in a group\n  set more parts, or dispatch = \"slab\""):format(c.experts, at.slots))
  end
  local numbers = at.places:cast "f32" + 1                          -- 0: dropped
  local chosen = numbers:greater(0):cast "f32":scatter_add(at.ids, { dim = last, size = c.experts })
  local needed = grouped(chosen, tokens, c.blocks, each):sum { dims = { last + 1 } }:greater(0)
  local index = native.iota { shape = { c.blocks }, dtype = "f32" }
  local ids = needed:select(index, native.constant(-1)):cast "i32"  -- of blocks [..., N, H]; -1: not needed
  local count, rows_at, list = rows_of(c, at, tokens)
  local size = { experts = c.blocks, slots = count }
  local places, load = ids:assign_slots(size)
  if list then native.overflow(grouped(load, { "block", c.blocks }), rows_at, list) end
  local function send(x, width) return grouped(x:dispatch(places, size), blocks, { "slots", count }, width) end
  local first = native.iota { shape = { c.blocks, 1, 1 }, dtype = "f32" } * (each * at.slots) + 1
  local own = (send(numbers, c.top_k) - first):cast "i32"           -- out of range: of another block, or dropped
  local slabs = send(at.x, at.width):dispatch(own, { experts = each, slots = at.slots })
  local weights = send(at.weights, c.top_k)
  return slabs, function(made)
    local summed = grouped(made, blocks, each, at.slots, at.width):combine(own, weights)
    return grouped(summed, blocks, { "slots", count }, at.width):combine(places)
  end
end

return rows
