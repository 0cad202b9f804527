"""Published folders, for the job tests that compare them: no package is needed.

    published_folders.py same A B         the same tensors: names, types, shapes, bytes, whatever files they lie in
    published_folders.py keys FOLDER FILE.json KEY=VALUE ...    what a file of JSON says; VALUE is JSON
    published_folders.py types FOLDER TYPE COUNT                so many tensors, all of that type, in files marked pt
"""
import glob
import json
import os
import struct
import sys


def tensors(folder):
    found = {}
    for path in sorted(glob.glob(os.path.join(folder, "model*.safetensors"))):
        with open(path, "rb") as file:
            data = file.read()
        length, = struct.unpack("<Q", data[:8])
        header = json.loads(data[8:8 + length])
        if header.pop("__metadata__", {}).get("format") != "pt":
            sys.exit(f"{path}: its metadata has no format = pt")
        for name, entry in header.items():
            if name in found:
                sys.exit(f"{path}: {name} is there twice")
            begin, end = entry["data_offsets"]
            found[name] = (entry["dtype"], entry["shape"], data[8 + length + begin:8 + length + end], path)
    index = os.path.join(folder, "model.safetensors.index.json")
    if os.path.exists(index):
        with open(index) as file:
            places = json.load(file)["weight_map"]
        if places != {name: os.path.basename(entry[3]) for name, entry in found.items()}:
            sys.exit(f"{index} does not say where the tensors are")
    elif len({entry[3] for entry in found.values()}) != 1:
        sys.exit(f"{folder} has several files, and no index")
    return found


def same(a, b):
    first, second = tensors(a), tensors(b)
    if first.keys() != second.keys():
        sys.exit(f"other tensors: {sorted(first.keys() ^ second.keys())}")
    for name in first:
        for part, what in enumerate(["type", "shape", "bytes"]):
            if first[name][part] != second[name][part]:
                sys.exit(f"{name}: another {what}: {first[name][:2]} and {second[name][:2]}")
    print(len(first), "tensors are the same")


def keys(folder, name, *wanted):
    with open(os.path.join(folder, name)) as file:
        said = json.load(file)
    for one in wanted:
        key, value = one.split("=", 1)
        if key not in said or said[key] != json.loads(value):
            sys.exit(f"{folder}/{name}: {key} is {json.dumps(said.get(key, 'not there'))}, expected {value}")


def types(folder, dtype, count):
    found = tensors(folder)
    other = [name for name, entry in found.items() if entry[0] != dtype]
    if other or len(found) != int(count):
        sys.exit(f"{folder}: {len(found)} tensors, not {dtype}: {other}")


if __name__ == "__main__":
    dict(same=same, keys=keys, types=types)[sys.argv[1]](*sys.argv[2:])
