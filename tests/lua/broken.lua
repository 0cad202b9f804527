local function f()
  error("on purpose")
end
f()
