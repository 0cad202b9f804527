#!/bin/sh
# liborrery.so exports what ORRERY_API marks, plugins export one symbol, nobody links a plugin, none needs a newer glibc
# than the wheel promises.
# usage: symbols.sh BUILD
set -eu
build=$1 bad=0
exported() { nm -D --defined-only "$1" | awk '{print $3}' | sed 's/@.*//' | grep -v '^orrery_plugin$' || true; }

own=$(exported "$build/liborrery.so")
[ -n "$own" ] || { echo "liborrery.so exports nothing"; exit 1; }
foreign=$(echo "$own" | grep -vE '^_Z(N|NK|TIN|TSN|TVN)6orrery' || true)
[ -z "$foreign" ] || { echo "liborrery.so exports what is not ours:"; echo "$foreign" | c++filt; bad=1; }
# A verb of core must not leave: plugins would come to depend on it.
for verb in 6sha256 9parse_json 9propagate 5lower 4text8quote; do
    if echo "$own" | grep -q "^_ZN6orrery$verb"; then echo "liborrery.so exports a verb of core: $verb"; bad=1; fi
done

for plugin in "$build"/plugins/liborrery_*.so; do
    nm -D --defined-only "$plugin" | grep -q ' orrery_plugin$' || { echo "$plugin: no orrery_plugin"; bad=1; }
    # weak ones are templates of the standard library, which the loader merges
    more=$(nm -D --defined-only "$plugin" | grep -vE ' orrery_(plugin|device_address)$' |
        awk '$2 ~ /[TDBR]/ {print $3}')
    [ -z "$more" ] || { echo "$plugin exports more than plugins do:"; echo "$more" | c++filt | head -5; bad=1; }
done
for file in "$build"/liborrery.so "$build"/orrery "$build"/plugins/*.so; do
    [ -e "$file" ] || continue
    if readelf -d "$file" | grep -q 'NEEDED.*liborrery_'; then echo "$file links a plugin"; bad=1; fi
done
# What the wheel promises (scripts/wheel); compilers of newer systems than Debian 12 choose newer symbols by themselves.
if ldd --version | grep -q ' 2\.36$'; then
    for file in "$build"/liborrery.so "$build"/orrery "$build"/plugins/*.so; do
        newest=$(readelf -V --wide "$file" | grep -oE 'GLIBC_2\.[0-9]+' | sort -uV | tail -n 1)
        [ "${newest#GLIBC_2.}" -le 34 ] || { echo "$file takes a symbol of $newest, the wheel is for 2.34"; bad=1; }
    done
fi
exit $bad
