--- Joins lists of values along a dim.
local join = {}

local function check(name, list, options)
  if type(list) ~= "table" or not list[1] then
    error(("o.%s: a list of values expected, as in o.%s({ a, b }, { dim = 1 })"):format(name, name), 3)
  end
  if type(options) ~= "table" or options.dim == nil then error(("o.%s: dim is missing"):format(name), 3) end
end

--- concat(list, { dim = }) -> the values one after the other along a dim that they have. Equal to
-- list[1]:concat(list[2], ..., { dim = }) for lists of any length.
function join.concat(list, options)
  check("concat", list, options)
  local arguments = { table.unpack(list, 2) }
  arguments[#list] = { dim = options.dim }
  return list[1]:concat(table.unpack(arguments, 1, #list))
end

--- stack(list, { dim =, name = }) -> values of one shape along a new dim, which is number `dim` of the result, from 1.
function join.stack(list, options)
  check("stack", list, options)
  local dim, rank = options.dim, #list[1].shape
  if math.type(dim) ~= "integer" or dim < 1 or dim > rank + 1 then
    error(("o.stack: dim is %s, expected 1 to %d, the new dim's number"):format(tostring(dim), rank + 1), 2)
  end
  local all = {}
  for i, x in ipairs(list) do
    local shape, dims, sizes = {}, x.dims, x.shape
    for d = 1, #sizes do shape[d] = dims[d] ~= "" and dims[d] or sizes[d] end
    table.insert(shape, dim, options.name and { options.name, 1 } or 1)
    all[i] = x:reshape(shape)
  end
  return join.concat(all, { dim = dim })
end

return join
