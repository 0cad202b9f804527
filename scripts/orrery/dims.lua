--- Dims of a value with their names, as reshape and o.param take them.
local dims = {}

--- Dim d of x, with the size of x or another one: { name, size }, or the size where the dim has no name.
function dims.of(x, d, size)
  local name = x.dims[d]
  size = size or x.shape[d]
  return name ~= "" and { name, size } or size
end

--- The dims first .. last of x, a list; all without both numbers.
function dims.list(x, first, last)
  local list = {}
  for d = first or 1, last or #x.shape do list[#list + 1] = dims.of(x, d) end
  return list
end

return dims
