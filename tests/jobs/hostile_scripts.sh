#!/usr/bin/env bash
# Scripts that do not end, or that would not say where: each ends in a few seconds with the line at fault.
source "$(dirname "$0")/lib.sh"
failures=0

failed() {
    echo "FAILED $name: $1 in: $(head -c 600 "$name.log")"
    failures=$((failures + 1))
}

# ends CODE NAME WORDS [ARGUMENT...]: NAME.lua from stdin, every word (separated by |) in what it says.
ends() {
    local expected=$1 name=$2 words=$3 code word
    shift 3
    cat > "$name.lua"
    timeout 60 "$orrery" check "$name.lua" "$@" > "$name.log" 2>&1
    code=$?
    [ $code -eq "$expected" ] || { failed "exit code $code, expected $expected"; return; }
    word=$(missing_word "$words" "$(< "$name.log")")
    [ -z "$word" ] || { failed "no \"$word\""; return; }
    echo "$name: $(head -1 "$name.log" | cut -c1-140)"
}
soon=(--set script.timeout_s=1)
late='script timed out: still running after 1 s of processor time|--set script.timeout_s=2'

# Recursion: 200,000 frames are told by both ends.
ends 2 recursion 'recursion.lua:1: stack overflow|more calls|called from recursion.lua:3' << 'LUA'
local function f(n) return 1 + f(n + 1) end

f(1)
LUA
ends 2 recursion_of_two 'called from recursion_of_two.lua:' << 'LUA'
local f
local function g(n) return 1 + f(n) end
f = function(n) return 1 + g(n) end
f(1)
LUA
ends 2 recursion_in_c 'recursion_in_c.lua:1: |C stack overflow' << 'LUA'
local function f(s) return (s:gsub(".", f)) end
f "abc"
LUA
ends 2 recursion_in_handler 'recursion_in_handler.lua:' << 'LUA'
local function bad(e) error(e) end
local ok, why = xpcall(error, bad, "first")
error("xpcall gave " .. tostring(why))
LUA
ends 2 recursion_of_metamethods 'recursion_of_metamethods.lua:|C stack overflow' << 'LUA'
local t = setmetatable({}, {})
getmetatable(t).__index = function(self, key) return self[key .. "x"] end
print(t.x)
LUA

# Counts that one call works off are charged before it begins.
ends 2 move 'move.lua:1: move: 9007199254740992 elements exceed the limit of 1000 million instructions' << 'LUA'
table.move({}, 1, 2^53, 2)
LUA
ends 2 insert 'insert.lua:2: insert: |elements exceed the limit' << 'LUA'
local t = setmetatable({}, { __len = function() return 1 << 53 end })
table.insert(t, 1, 0)
LUA
ends 2 remove 'remove.lua:2: remove: ' << 'LUA'
local t = setmetatable({}, { __len = function() return 1 << 53 end })
table.remove(t, 1)
LUA
ends 2 sort 'sort.lua:2: sort: ' << 'LUA'
local t = setmetatable({}, { __len = function() return (1 << 31) - 2 end, __index = function() return 1 end })
table.sort(t)
LUA
ends 2 concat 'concat.lua:2: concat: ' << 'LUA'
local t = setmetatable({}, { __index = function() return "" end })
table.concat(t, "", 1, 1 << 53)
LUA
ends 2 unpack 'unpack.lua:1: unpack: ' << 'LUA'
table.unpack({}, 1, 1 << 53)
LUA
ends 2 rep 'rep.lua:1: rep: ' << 'LUA'
local s = (""):rep(1 << 53)
LUA
ends 2 many_moves 'many_moves.lua:|million' --set lua.instructions_million=20 << 'LUA'
local t = {}
while true do pcall(table.move, t, 1, 5000000, 2) end
LUA
ends 2 gc 'gc.lua:1: setmetatable: __gc is not supported' << 'LUA'
setmetatable({}, { __gc = function() while true do end end })
LUA
ends 2 format 'format.lua:1: |invalid' << 'LUA'
print(string.format("%99999d", 1))
LUA
ends 2 pack 'pack.lua:1: ' << 'LUA'
print(#string.pack("c2000000000", ""))
LUA

# What no count sees ends by processor time, with the line seen last.
ends 1 pattern "pattern.lua:3: $late" "${soon[@]}" << 'LUA'
local text = ("a"):rep(100000)
local pattern = (".-"):rep(40) .. "b"
print(text:find(pattern))
LUA
ends 1 patterns "patterns.lua:1: $late" "${soon[@]}" << 'LUA'
for word in (("a"):rep(100000)):gmatch((".-"):rep(40) .. "b") do print(word) end
LUA
ends 1 liar "liar.lua:3: $late" "${soon[@]}" << 'LUA'
local n = 0
local t = setmetatable({}, { __len = function() n = n + 1 return n > 1 and 1 << 53 or 1 end })
table.insert(t, 1, 0)
LUA
ends 1 garbage "garbage.lua:3: $late" "${soon[@]}" << 'LUA'
local t = {}
for i = 1, 100 do t[i] = {} for j = 1, 5000 do t[i][j] = {} end end
while true do collectgarbage() end
LUA
ends 1 short_coroutines "short_coroutines.lua:|$late" "${soon[@]}" << 'LUA'
local function nearly() for _ = 1, 4000 do end end
while true do coroutine.wrap(nearly)() end
LUA
ends 2 caught 'still running after 20 million' --set lua.instructions_million=20 << 'LUA'
while true do pcall(coroutine.wrap(function() while true do pcall(function() while true do end end) end end)) end
LUA
ends 2 own_option 'own_option.lua:1: o.options: script.timeout_s is a reserved key' << 'LUA'
require "orrery".options { timeout_s = 3 }
LUA
ends 2 wrong_deadline '--set script.timeout_s=0' --set script.timeout_s=0 << 'LUA'
print "not reached"
LUA

# Any value can be raised; a table is shown, not its address.
ends 2 raised 'raised.lua:1: disk full|raised: { 7, "x", code = 5, message = "disk full", where = { a = 1 } }' << 'LUA'
error { 7, "x", message = "disk full", code = 5, where = { a = 1 } }
LUA
ends 2 raised_with_text 'raised_with_text.lua:1: my own text' << 'LUA'
error(setmetatable({}, { __tostring = function() return "my own text" end }))
LUA
ends 2 raised_flag 'raised_flag.lua:1: false' << 'LUA'
error(false)
LUA
ends 2 raised_itself 'raised_itself.lua:2: { t = { t = { t = { ... } } } }' << 'LUA'
local t = {} t.t = t
error(t)
LUA
[ $failures -eq 0 ] || { echo "0 passed, $failures failed"; exit 1; }
echo "1 passed, 0 failed"
