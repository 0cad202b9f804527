--- The codec sundial: each element as one of 15 levels, in 4 bits, and for each 128 elements a scale of 16 bits.
--- Change encode, decode and what the codec says of them: block and bound.
local o = require "orrery"

local block, bits = 128, 4
o.codec {
  name = "sundial",
  block = block,       -- elements along a row that have codes of their own
  bound = 1.005,       -- the largest ||x - decode(encode(x))|| / ||x||
  activations = true,  -- params and activations may be sent so, too
  -- x [.., n] -> codes: two elements in a byte, u8 [.., ceil(n / 2)], and scales, bf16 [.., ceil(n / block)].
  encode = function(x, add)
    local levels, scales = add("quantize", { x }, { dtype = "i8", block = block, bits = bits })
    return { (add("pack", { levels }, { bits = bits })), scales }
  end,
  -- The codes -> what they stand for, f32 of the shape [.., n].
  decode = function(codes, shape, add)
    local levels = add("unpack", { codes[1] }, { bits = bits, size = shape[#shape] })
    return (add("dequantize", { levels, codes[2] }, { block = block, bits = bits }))
  end,
}
return "sundial"  -- for strategies: codec = require "sundial"
