--- Groups of params with their own settings: optim.adamw { groups = { { dim = "vocab", decay = 0 } } }.
local native = require "orrery.native"
local numbers = require "orrery.numbers"

local groups = {}

local function has_dim(p, dim)
  for _, name in ipairs(p.dims) do
    if name == dim then return true end
  end
  return false
end

local group_keys = { match = "string", dim = "string", rank = "number", decay = "number", lr_scale = "number" }

local function describe(group)
  local parts = {}
  for _, key in ipairs { "match", "dim", "rank" } do
    if group[key] ~= nil then parts[#parts + 1] = ("%s = %s"):format(key, group[key]) end
  end
  return "{ " .. table.concat(parts, ", ") .. " }"
end

local function refuse(text, ...) native.fail(("groups: " .. text):format(...)) end

--- Throws for groups that are certainly wrong: an unknown key, no criterion, no setting.
function groups.check(list)
  for key in pairs(list) do
    if math.type(key) ~= "integer" then
      refuse("a list of groups is expected, found the key %s\n  write { { dim = \"vocab\", decay = 0 } }", key)
    end
  end
  for i, group in ipairs(list) do
    if type(group) ~= "table" then refuse("group %d is %s, expected a table", i, tostring(group)) end
    for key, value in pairs(group) do
      local kind = group_keys[key]
      if not kind then refuse("group %d: unknown key \"%s\"\n  known: match, dim, rank, decay, lr_scale", i, key) end
      if type(value) ~= kind then refuse("group %d: %s is %s, expected a %s", i, key, tostring(value), kind) end
      if kind == "number" then
        local _, problem = numbers.number(("group %d: %s"):format(i, key), value, 0)
        if problem then refuse("%s", problem) end
      end
    end
    if not (group.match or group.dim or group.rank) then
      refuse("group %d names no params\n  give it match (a pattern of names), dim or rank", i)
    end
    if not (group.decay or group.lr_scale) then
      refuse("group %d %s sets nothing\n  give it decay or lr_scale", i, describe(group))
    end
  end
end

local function matches(p, group)
  return (not group.match or p.name:find(group.match)) and (not group.dim or has_dim(p, group.dim))
    and (not group.rank or group.rank == #p.shape)
end

--- Throws for a group that matches none of the updated params.
function groups.require_params(list, update)
  for i, group in ipairs(list) do
    local found = false
    for p in update:params() do found = found or matches(p, group) end
    if not found then
      refuse("group %d %s matches no param\n  program:text() shows their names and dims", i, describe(group))
    end
  end
end

--- { decay, lr_scale } of a param: each matching group overrides the settings of the groups before.
-- A group is { match = "%.bias$" | dim = "vocab" | rank = 1, decay = , lr_scale = }; all of its criteria must match.
function groups.of(p, options)
  local chosen = { decay = #p.shape >= 2 and options.decay or 0, lr_scale = 1 }  -- no decay for norms and biases
  for _, group in ipairs(options.groups) do
    if matches(p, group) then
      chosen.decay = group.decay or chosen.decay
      chosen.lr_scale = group.lr_scale or chosen.lr_scale
    end
  end
  return chosen
end

return groups
