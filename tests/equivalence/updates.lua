--- Optimizers as a user writes them, from the library's ops alone. Shapes: a param [..., R, C].
local o = require "orrery"

local function sign(x) return x:greater(0):cast "f32" - x:less(0):cast "f32" end

--- An optimizer of one param after the other: step(update, p, g, lr) gets the mean gradient.
local function each(step)
  return function(lr)
    return function(update)
      local scale = 1 / update:count()
      for p in update:params() do step(update, p, p:grad() * scale, lr) end
    end
  end
end

--- Lion (Chen et al. 2023): a step of one size, in the direction of the momentum.
local lion = each(function(update, p, g, lr)
  local m = update:state(p, "m")
  update:set(p, p - (sign(m * 0.9 + g * 0.1) + p * 0.1) * lr)
  update:set(m, m * 0.99 + g * 0.01)
end)

--- The step of Nesterov's momentum: the gradient, and the momentum that it leads to.
local function ahead(update, p, g, beta)
  local m = update:state(p, "m")
  local next_m = m * beta + g
  update:set(m, next_m)
  return g + next_m * beta
end

--- x / |x| with its singular values brought near 1 by five steps of a polynomial.
local function orthogonal(x)
  local wide = x.shape[1] <= x.shape[2]
  x = x / (x:sumsq():sqrt() + 1e-7)
  for _ = 1, 5 do
    local a = wide and x:matmul(x, { trans_b = true }) or x:matmul(x, { trans_a = true })
    local b = a * -4.7750 + a:matmul(a) * 2.0315
    x = x * 3.4445 + (wide and b:matmul(x) or x:matmul(b))
  end
  return x
end

--- Muon (Jordan et al. 2024): matrices take orthogonal steps, everything else plain ones.
local muon = each(function(update, p, g, lr)
  local step = ahead(update, p, g, 0.95)
  update:set(p, p - (#p.shape == 2 and orthogonal(step) or step) * lr)
end)

--- Stochastic gradient descent with Nesterov's momentum.
local nesterov = each(function(update, p, g, lr) update:set(p, p - ahead(update, p, g, 0.9) * lr) end)

--- AdamW without the fused op.
local function adamw(lr)
  return function(update)
    local scale, step = 1 / update:count(), o.step()
    local first, second = 1 - o.constant(0.9):pow(step), 1 - o.constant(0.95):pow(step)
    for p in update:params() do
      local g, m, v = p:grad() * scale, update:state(p, "m"), update:state(p, "v")
      local next_m, next_v = m * 0.9 + g * 0.1, v * 0.95 + g:square() * 0.05
      update:set(m, next_m)
      update:set(v, next_v)
      update:set(p, p - ((next_m / first) / ((next_v / second):sqrt() + 1e-8) + p * 0.1) * lr)
    end
  end
end

local function mean(x, dim)
  return x:sum { dims = { dim }, keep = true } / x.shape[dim]
end

--- As Adafactor (Shazeer and Stern 2018): the second moment of a matrix is that of its rows times that of its columns,
--- and a step's root mean square is at most 1.
local adafactor = each(function(update, p, g, lr)
  local v = update:state(p, "v")
  local square = g:square() + 1e-30
  if #p.shape == 2 then
    local rows = mean(square, 2)
    square = rows * mean(square, 1) / mean(rows, 1)
  end
  local next_v = v * 0.9 + square * 0.1
  update:set(v, next_v)
  local step = g / next_v:sqrt()
  local count = 1
  for _, size in ipairs(p.shape) do count = count * size end
  update:set(p, p - step * (lr / (step:sumsq() / count):sqrt():maximum(1)))
end)

--- RMSprop (Tieleman and Hinton 2012) of gradients whose global norm is at most 1.
local function rmsprop(lr)
  return function(update)
    local total
    for p in update:params() do
      local square = p:grad():sumsq()
      total = total and total + square or square
    end
    local norm = total:sqrt() / update:count()
    local scale = 1 / (update:count() * norm:maximum(1))
    for p in update:params() do
      local g, v = p:grad() * scale, update:state(p, "v")
      local next_v = v * 0.9 + g:square() * 0.1
      update:set(v, next_v)
      update:set(p, p - g / (next_v:sqrt() + 1e-8) * lr)
    end
    update:result("grad_norm", norm)
  end
end

return { rmsprop = rmsprop, lion = lion, muon = muon, nesterov = nesterov, adamw = adamw, adafactor = adafactor }
