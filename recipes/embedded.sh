#!/usr/bin/env bash
# Trains an embedded model and puts it into the package: embedded.sh wiki MINUTES. Give it again to train on from what is there.
# Needs POINTER_DATA (the corpora) and, for the first start of wiki, MINILM (the folder of all-MiniLM-L6-v2).
set -euo pipefail
name=$1 minutes=$2
runs=${RUNS:-runs}
package=$(dirname "$0")/../src/pointer/checkpoints
[ "$name" = wiki ] || { echo "embedded.sh: expected wiki, found $name" >&2; exit 2; }
lines() { xz -dc "$POINTER_DATA/$1.txt.xz" | head -n "$2" || true; }

mkdir -p "$runs"
# The last 50,000 lines are reserved for the judge of perplexity.
[ -f "$runs/wiki.txt" ] || lines wiki/train 450000 > "$runs/wiki.txt"
pointer prepare "$runs/wiki.txt" --skeleton mixed --out "$runs/wiki-data"
pointer prepare "$POINTER_DATA/wiki/valid.txt.xz" --skeleton mixed --out "$runs/wiki-valid"

init=$package/wiki
[ -d "$init" ] || init=$MINILM
# A run is named after what its start has seen, so that a killed one goes on and a finished one is followed by the next.
seen=$(python -c "import json; print(json.load(open('$init/config.json')).get('pointer', {}).get('tokens_seen', 0))")
run=$runs/wiki-from-$seen
pointer train "$runs/wiki-data" --init "$init" --validation "$runs/wiki-valid" --minutes "$minutes" --half \
  --about "450,000 sentences of English Wikipedia (CC BY-SA) from two public wikiextractor dumps. Started from all-MiniLM-L6-v2 (Apache-2.0)." \
  --out "$run"
rm -rf "$package/wiki"
mkdir -p "$package"
cp -r "$run/best" "$package/wiki"
