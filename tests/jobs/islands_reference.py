"""Float64 reference of methods over islands, for a table of logits of the next byte, zeros at first, under AdamW
without decay or clip: prints the loss of island 0 after each step.
Usage: islands_reference.py METHOD ISLANDS EVERY STEPS TEXT [MASK], with the offsets of samples, a line a step,
on standard input. MASK: a bit for each byte of the text, set for those that are no targets."""
import math
import sys

method, islands, every, steps, path = sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5]
text = open(path, "rb").read()
mask = open(sys.argv[6], "rb").read() if len(sys.argv) > 6 else bytes(len(text) // 8 + 1)
rate, beta1, beta2, eps, outer_rate, momentum, length, symbols = 0.05, 0.9, 0.95, 1e-8, 0.7, 0.9, 16, 256


class Island:
    def __init__(self):
        self.w, self.m, self.v = {}, {}, {}
        self.count = 0  # of the round

    def row(self, table, byte):
        return table.setdefault(byte, [0.0] * symbols)

    def step(self, number, offsets):
        """One step of AdamW on the samples at these offsets, none without targets. Returns the mean loss before it."""
        gradient, loss, count = {}, 0.0, 0
        for offset in offsets:
            for at in range(offset, offset + length):
                if mask[(at + 1) // 8] >> (at + 1) % 8 & 1:
                    continue
                row = self.row(self.w, text[at])
                top = max(row)
                powers = [math.exp(x - top) for x in row]
                total = sum(powers)
                loss += math.log(total) + top - row[text[at + 1]]
                into = gradient.setdefault(text[at], [0.0] * symbols)
                for i, power in enumerate(powers):
                    into[i] += power / total
                into[text[at + 1]] -= 1
                count += 1
        self.count += count
        if count == 0:
            return math.nan
        for byte in self.w:
            rows = [self.row(table, byte) for table in (self.w, self.m, self.v)]
            for i in range(symbols):
                g = gradient[byte][i] / count if byte in gradient else 0.0
                rows[1][i] = beta1 * rows[1][i] + (1 - beta1) * g
                rows[2][i] = beta2 * rows[2][i] + (1 - beta2) * g * g
                m, v = rows[1][i] / (1 - beta1 ** number), rows[2][i] / (1 - beta2 ** number)
                rows[0][i] -= rate * m / (math.sqrt(v) + eps)
        return loss / count


def mean(tables, byte, weights=(1, 1, 1)):
    rows = [table.get(byte, [0.0] * symbols) for table in tables]
    return [sum(x * by for x, by in zip(numbers, weights)) / sum(weights) for numbers in zip(*rows)]


every_island = [Island() for _ in range(islands)]
outer, moved = {}, {}
for number in range(1, steps + 1):
    offsets = list(map(int, sys.stdin.readline().split()))
    own = len(offsets) // islands
    losses = [island.step(number, offsets[k * own:(k + 1) * own]) for k, island in enumerate(every_island)]
    print(number, repr(losses[0]))
    if number % every:
        continue
    tables = [dict(island.w) for island in every_island]
    for byte in sorted(set().union(*tables)):
        if method == "gossip":
            ring = [[tables[(k + by) % islands] for by in (-1, 0, 1)] for k in range(islands)]
            for island, near in zip(every_island, ring):
                island.w[byte] = mean(near, byte)
            continue
        new = mean(tables, byte, [island.count for island in every_island])
        if method == "diloco":
            start, speed = outer.get(byte, [0.0] * symbols), moved.get(byte, [0.0] * symbols)
            away = [a - b for a, b in zip(start, new)]
            moved[byte] = [momentum * s + a for s, a in zip(speed, away)]
            new = [a - outer_rate * (d + momentum * s) for a, d, s in zip(start, away, moved[byte])]
            outer[byte] = new
        for island in every_island:
            island.w[byte] = list(new)
    for island in every_island:
        island.count = 0
