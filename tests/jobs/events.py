"""Reads TensorBoard's event files by the format's definition, and holds them against metrics.jsonl.

    python3 events.py [--killed] FOLDER...    of runs; says what differs and ends with 1

Every number of every line must be there once for its step, equal in f32, and nothing else may be there. --killed: the
last record may have no line, and the last line may be cut, as a kill between the two leaves it until the next start.
"""
import json
import math
import pathlib
import struct
import sys

TABLE = []
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    TABLE.append(byte)
TAGS = {"loss": "loss_metrics/global_avg_loss", "grad_norm": "grad_norm", "lr": "lr", "tok/s": "tok/s",
        "samples/s": "samples/s",
        "TFLOP/s": "TFLOP/s", "MFU": "MFU", "MFU_nominal": "MFU_nominal", "memory": "memory",
        "loss_scale": "loss_scale", "skipped": "skipped",
        "time": "time", "seconds": "time_metrics/end_to_end(s)", "tokens": "n_tokens_seen", "samples": "samples",
        "data_share": "time_shares/data", "communication_share": "time_shares/communication",
        "waiting_share": "time_shares/waiting", "checkpoint_seconds": "checkpoint_seconds",
        "MFU_full": "MFU_full"}


def masked(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 255] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(path):
    """The contents of each record; ends at one that is cut."""
    data = path.read_bytes()
    at = 0
    while at + 12 <= len(data):
        size, check = struct.unpack_from("<QI", data, at)
        assert check == masked(data[at:at + 8]), f"{path}: checksum of the length at {at}"
        if at + 16 + size > len(data):
            return
        body = data[at + 12:at + 12 + size]
        assert struct.unpack_from("<I", data, at + 12 + size)[0] == masked(body), f"{path}: checksum at {at}"
        yield body
        at += 16 + size


def fields(data):
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        wire = key & 7
        if wire == 0:
            yield key >> 3, varint()
            continue
        size = {1: 8, 5: 4}.get(wire) or varint()
        yield key >> 3, data[at:at + size]
        at += size


def scalars(folder):
    """{tag: {step: [f32, ...]}}; a start takes back what came before of its step and later."""
    found = {}
    for path in sorted(folder.glob("*tfevents*")):
        for number, body in enumerate(records(path)):
            event = dict(fields(body))
            step = event.get(2, 0)
            if number == 0:
                assert event[3] == b"brain.Event:2", path
            if 7 in event and dict(fields(event[7])).get(1) == 1:
                for steps in found.values():
                    for old in [s for s in steps if s >= step]:
                        del steps[old]
            for _, value in fields(event.get(5, b"")):
                parts = dict(fields(value))
                number_of = struct.unpack("<f", parts[2])[0]
                found.setdefault(parts[1].decode(), {}).setdefault(step, []).append(number_of)
    return found


def f32(value):
    return math.nan if value is None else struct.unpack("<f", struct.pack("<f", value))[0]


def told(folder, killed=False):
    """The same from metrics.jsonl."""
    found = {}
    for line in (folder / "metrics.jsonl").read_text().splitlines(True):
        if killed and not line.endswith("\n"):
            continue
        line = json.loads(line)
        evaluated = "eval_loss" in line
        for key, value in line.items():
            if key == "step" or (evaluated and key == "time"):
                continue
            if evaluated:
                tag = "validation_metrics/loss" if key == "eval_loss" else "evaluations/" + key
            else:
                tag = TAGS.get(key, "results/" + key)
            for i, one in enumerate(value if isinstance(value, list) else [value]):
                name = f"{tag}/{i}" if isinstance(value, list) else tag
                found.setdefault(name, {}).setdefault(line["step"], []).append(f32(one))
    return found


def same(one, other):
    return len(one) == len(other) == 1 and (one == other or (math.isnan(one[0]) and not math.isfinite(other[0])))


def main():
    bad = 0
    killed = sys.argv[1] == "--killed"
    for name in sys.argv[1 + killed:]:
        folder = pathlib.Path(name)
        lines, events = told(folder, killed), scalars(folder / "tensorboard")
        newest = max((step for steps in events.values() for step in steps), default=0)
        pairs = {(tag, step) for found in (lines, events) for tag, steps in found.items() for step in steps}
        for tag, step in sorted(pairs):
            one, other = lines.get(tag, {}).get(step, []), events.get(tag, {}).get(step, [])
            if killed and step == newest and not one and len(other) == 1:
                continue
            if not same(one, other):
                print(f"{name}: {tag} of step {step}: metrics.jsonl {one}, event files {other}")
                bad = 1
        print(f"{name}: {len(pairs)} numbers, {len(list((folder / 'tensorboard').iterdir()))} event files")
    return bad


if __name__ == "__main__":
    sys.exit(main())
