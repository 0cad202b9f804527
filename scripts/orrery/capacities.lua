--- capacities(first, last) -> `first`, those of 1, 1.25, 1.5, 2, 3, 4, 6 ... between `first` and `last`, and `last`.
return function(first, last)
  local list, size, other = { first }, 1, 1.25
  while size < last * 0.98 do                                       -- one a little smaller than the last saves nothing
    if size > first then list[#list + 1] = size end
    size, other = other, size == 1 and 1.5 or size == 1.25 and 2 or size == 1.5 and 3 or 2 * size
  end
  if last > first * (1 + 1e-5) then list[#list + 1] = last end
  return list
end
