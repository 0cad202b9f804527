#!/bin/sh
# The source fills a network's inputs: it learns, and two ranks train as one does.
# usage: test.sh ORRERY [FOLDER OF PLUGINS]
. "$(dirname "$0")/harness.sh"
for ranks in 1 2; do
    train run$ranks --set mesh.dp=$ranks --set train.sequences_per_step=16 --set train.steps=30
done
agree run1 run2 30 "two ranks do not train as one does"
learns run1 0.5
echo "ok: the loss falls, losses of one and of two ranks agree"
