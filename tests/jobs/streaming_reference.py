"""Float64 reference of streaming DiLoCo over islands, for the sum of four tables of logits of the next byte, zeros at
first, each a fragment, under AdamW without decay or clip: prints the loss of island 0 after each step.
Usage: streaming_reference.py ISLANDS EVERY TAU ALPHA STEPS TEXT, with the offsets of each step's samples, a line each,
on standard input."""
import math
import sys

islands, every, tau, alpha, steps, path = *map(int, sys.argv[1:4]), float(sys.argv[4]), int(sys.argv[5]), sys.argv[6]
text = open(path, "rb").read()
rate, beta1, beta2, eps, outer_rate, momentum, length, symbols = 0.05, 0.9, 0.95, 1e-8, 0.7, 0.9, 16, 256
fragments, zeros = 4, [0.0] * symbols


class Island:
    def __init__(self):
        self.tables = [{} for _ in range(fragments)]  # by byte: its row, as are the moments
        self.m, self.v = [{} for _ in range(fragments)], [{} for _ in range(fragments)]

    def step(self, number, offsets):
        """One step of AdamW on the samples at these offsets. Returns the mean loss before it."""
        gradient, loss, count = {}, 0.0, len(offsets) * length
        for offset in offsets:
            for at in range(offset, offset + length):
                row = [sum(xs) for xs in zip(*(table.get(text[at], zeros) for table in self.tables))]
                top = max(row)
                powers = [math.exp(x - top) for x in row]
                total = sum(powers)
                loss += math.log(total) + top - row[text[at + 1]]
                into = gradient.setdefault(text[at], [0.0] * symbols)
                for i, power in enumerate(powers):
                    into[i] += power / total / count
                into[text[at + 1]] -= 1 / count
        for table, ms, vs in zip(self.tables, self.m, self.v):
            for byte in gradient.keys() | table.keys():
                g = gradient.get(byte, zeros)
                m = ms[byte] = [beta1 * a + (1 - beta1) * b for a, b in zip(ms.get(byte, zeros), g)]
                v = vs[byte] = [beta2 * a + (1 - beta2) * b * b for a, b in zip(vs.get(byte, zeros), g)]
                c, d = 1 - beta1 ** number, 1 - beta2 ** number
                table[byte] = [w - rate * a / c / (math.sqrt(b / d) + eps)
                               for w, a, b in zip(table.get(byte, zeros), m, v)]
        return loss / count


every_island = [Island() for _ in range(islands)]
outer, moved, sent = ([{} for _ in range(fragments)] for _ in range(3))
for number in range(1, steps + 1):
    offsets = list(map(int, sys.stdin.readline().split()))
    own = len(offsets) // islands
    losses = [island.step(number, offsets[k * own:(k + 1) * own]) for k, island in enumerate(every_island)]
    print(number, repr(losses[0]))
    for k in range(fragments):
        since = number - tau - (k + 1) * every // fragments
        if since < 0 or since % every:
            continue
        for byte in set().union(sent[k], *(island.tables[k] for island in every_island)):
            away = sent[k].get(byte, zeros)
            speed = moved[k][byte] = [momentum * s + a for s, a in zip(moved[k].get(byte, zeros), away)]
            outer[k][byte] = [w - outer_rate * (a + momentum * s)
                              for w, a, s in zip(outer[k].get(byte, zeros), away, speed)]
            for island in every_island:
                island.tables[k][byte] = [alpha * a + (1 - alpha) * b for a, b in
                                          zip(island.tables[k].get(byte, zeros), outer[k][byte])]
    for k in range(fragments):
        since = number - (k + 1) * every // fragments
        if since < 0 or since % every:
            continue
        tables = [island.tables[k] for island in every_island]
        for byte in set().union(*tables):
            start = outer[k].get(byte, zeros)
            sent[k][byte] = [a - sum(xs) / islands for a, *xs in zip(start, *(t.get(byte, zeros) for t in tables))]
