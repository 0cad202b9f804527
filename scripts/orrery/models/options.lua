--- The options of models.
local numbers = require "orrery.numbers"

--- options(name, given, defaults) -> both merged; throws at the caller's caller for an unknown or ill-typed option.
-- Integers must be at least 1, or the default if that is less; other numbers must be finite and not negative.
return function(name, given, defaults)
  local merged = {}
  for key, default in pairs(defaults) do merged[key] = default end
  for key, value in pairs(given or {}) do
    local default = defaults[key]
    if default == nil then
      local names = {}
      for known in pairs(defaults) do names[#names + 1] = known end
      error(("%s: unknown option \"%s\"\n  known: %s"):format(name, tostring(key), table.concat(names, ", ")), 3)
    end
    if default and type(value) ~= type(default) and value ~= false then
      error(("%s: %s is %s, expected a %s"):format(name, key, tostring(value), type(default)), 3)
    end
    if type(value) == "number" then
      local what = name .. ": " .. key
      local problem
      if math.type(default) ~= "integer" then value, problem = numbers.number(what, value, 0)
      else value, problem = numbers.integer(what, value, math.min(default, 1)) end
      if problem then error(problem, 3) end
    end
    merged[key] = value
  end
  return merged
end
