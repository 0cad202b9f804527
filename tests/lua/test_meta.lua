--- scripts/orrery/meta.lua says what there is: every function, method and field, and nothing else.
local native = require "orrery.native"
local o = require "orrery"

local path = o.config.plugins.path[1] .. "/scripts/orrery/meta.lua"
local problems = {}
local function problem(...) problems[#problems + 1] = string.format(...) end

-- What the file declares: functions[class][name] = parameters, fields[class][name].
local functions, fields, class = {}, {}, nil
local locals = {}
for line in assert(io.open(path)):lines() do
  local name = line:match "^%-%-%-@class ([%w_.]+)"
  if name then
    class = name
    functions[class], fields[class] = functions[class] or {}, {}
  end
  local field = line:match "^%-%-%-@field ([%w_]+)"
  if field then fields[class][field] = true end
  local variable = line:match "^local ([%w_]+) = {}"
  if variable then locals[variable] = class end
  local owner, key, params = line:match "^function ([%w_]+)[.:]([%w_]+)%((.-)%) end"
  if owner then
    if not locals[owner] then problem("function %s.%s: no class", owner, key)
    elseif functions[locals[owner]][key] then problem("%s.%s is declared twice", owner, key)
    else functions[locals[owner]][key] = params end
  end
end

local function same(what, have, declared)
  for name in pairs(have) do
    if declared[name] == nil then problem("%s.%s is not in meta.lua", what, name) end
  end
  for name in pairs(declared) do
    if have[name] == nil then problem("%s.%s is in meta.lua but does not exist", what, name) end
  end
end

local function set(list)
  local out = {}
  for _, name in ipairs(list) do out[name] = true end
  return out
end

-- Modules.
local function module(class_name, table)
  local have, have_fields = {}, {}
  for name, value in pairs(table) do
    local method = type(value) == "function" and fields[class_name][name] == nil
    if method then have[name] = true else have_fields[name] = true end
  end
  same(class_name, have, functions[class_name])
  same(class_name, have_fields, fields[class_name])
end
module("orrery", o)
for _, name in ipairs { "nn", "optim", "lr", "data", "published", "islands" } do module("orrery." .. name, o[name]) end
module("orrery.strategy", require "orrery.strategy")
module("orrery.collective", require "orrery.collective")

-- Classes.
local classes = { Program = "program", Run = "run", Update = "update", AnnotatedProgram = "annotated", Mesh = "mesh",
                  StateGroup = "group" }
for name, key in pairs(classes) do same(name, set(native.methods("orrery." .. key)), functions[name]) end
for field in pairs(fields.Data) do assert(o.data.text {}[field] ~= nil, field) end

-- Values: methods and ops.
local have = set(native.methods "orrery.value")
for name, op in pairs(native.ops()) do
  if #op.operands > 0 then have[name] = true end
end
same("Value", have, functions.Value)

assert(#problems == 0, table.concat(problems, "\n"))
print "ok"
