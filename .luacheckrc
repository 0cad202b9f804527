std = "lua54"
max_line_length = 120
include_files = { "scripts/**/*.lua", "tests/**/*.lua", ".luacheckrc" }
exclude_files = { "build*/**" }
files["scripts/*/meta.lua"] = { ignore = { "212", "211", "241", "631" } }  -- declarations without bodies
