--- A config.json whose keys are taken one by one; keys that are left at the end are unknown.
local native = require "orrery.native"

local null = native.null

local function shown(value)
  if value == null then return "null" end
  if type(value) == "string" then return ("%q"):format(value) end
  return type(value) == "table" and "an object" or tostring(value)
end

local Config = {}
Config.__index = Config

--- Throws at `key`, "rope_scaling.factor" for a key of an object, with its value.
function Config:fail(key, problem)
  local value = self.all
  for part in key:gmatch "[^.]+" do value = type(value) == "table" and value[part] end
  if value == nil then native.fail(("%s/config.json: no %s: %s"):format(self.folder, key, problem)) end
  native.fail(("%s/config.json: %s = %s: %s"):format(self.folder, key, shown(value), problem))
end

--- The value; nil when it is absent or null.
function Config:take(key)
  self.left[key] = nil
  local value = self.all[key]
  if value == null then return nil end
  return value
end

--- config_json.open(folder) -> FOLDER/config.json: `all` its keys, `left` those that were not taken yet.
local function open(folder)
  local all, left = native.published_config(folder), {}
  for key in pairs(all) do left[key] = true end
  return setmetatable({ folder = folder, all = all, left = left }, Config)
end

return { open = open, shown = shown }
