#!/usr/bin/env bash
# `orrery plan --keep mesh` against `orrery plan`: on no mesh is the search of that mesh alone slower than what the
# search of all meshes found there, whatever options the configuration starts with. Here some meshes of a small model;
# ORRERY_LONG: all of three models, and a table.
source "$(dirname "$0")/lib.sh"
command -v python3 > /dev/null || { echo "skipped: python3, which reads JSON, is not here"; exit 77; }
python3 -B "$source_root/tests/jobs/kept_mesh.py" "$orrery" "$source_root" "${ORRERY_LONG:-}" || fail "kept meshes"
echo "1 passed, 0 failed"
