#!/usr/bin/env bash
# A schedule that the checker passes ends on every transport: one rank sends 40 micro-batches before its first receive.
source "$(dirname "$0")/lib.sh"
cp "$source_root/scripts/gpt.lua" gpt.lua
cat > deep.lua << 'END'
return function(_, m)
  local first, second = {}, {}
  for i = 0, m - 1 do
    first[i + 1], first[m + i + 1] = "F" .. i, "B" .. i
    second[i + 1] = "F" .. i .. " B" .. i
  end
  return { table.concat(first, " "), table.concat(second, " ") }
end
END
deep() {
    $orrery "$1" gpt.lua --set run.folder="$2" --set run.transport="$2" --set run.timeout_s=10 --set mesh.pp=2 \
        --set script.pipeline=deep --set script.layers=2 --set script.embed=32 --set script.heads=2 \
        --set data.path=text.txt --set data.tokens_per_sequence=16 --set train.sequences_per_step=40 \
        --set train.microbatches=40 --set train.steps=2 > "$2.log" 2>&1
}
for transport in shm gloo ucx; do
    [ -e "$(dirname "$orrery")/plugins/liborrery_transport_$transport.so" ] || continue
    deep check $transport || { cat $transport.log; fail "$transport: the plan is refused"; }
    deep run $transport || { cat $transport.log; fail "$transport: the plan was passed, but does not end"; }
    steps_done $transport 2 || fail "$transport: no steps"
done
echo "1 passed, 0 failed"
