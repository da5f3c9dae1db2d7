#!/usr/bin/env bash
# Trains an embedded model and puts it into the package: embedded.sh everyday|wiki|reviews|news --minutes 60, or another
# budget or setting of `pointer train`. Give it again to train on from what is there. All but wiki start from wiki.
# Needs POINTER_DATA (the corpora) and, for the first start of wiki, MINILM (the folder of all-MiniLM-L6-v2).
set -euo pipefail
name=$1
shift
package=$(dirname "$0")/../src/pointer/checkpoints
source "$(dirname "$0")/corpora.sh"

corpus "$name"
start=$package/wiki origin="Fine-tuned from the embedded model wiki (English Wikipedia, CC BY-SA; all-MiniLM-L6-v2, Apache-2.0)."
[ "$name" != wiki ] || start=${MINILM:-} origin="Started from all-MiniLM-L6-v2 (Apache-2.0)."
prepared "$name"

init=$package/$name
[ -d "$init" ] || init=$start
# A run is named after what its start has seen, so that a killed one goes on and a finished one is followed by the next.
seen=$(python -c "import json; print(json.load(open('$init/config.json')).get('pointer', {}).get('tokens_seen', 0))")
run=$runs/$name-from-$seen
# The seed too: each run reads the texts in another order, or all would read the same first texts.
# (The last run of news had --closing-share 0.5 and words taken out of closing pairs, which is no longer an option.)
pointer train "$runs/$name-data" --init "$init" --validation "$runs/$name-valid" --half --seed "$seen" \
  --about "$about $origin" --out "$run" "$@"
rm -rf "${package:?}/$name"
mkdir -p "$package"
pointer export "$run/best" "$package/$name" --int8  # small, and fast without PyTorch
sed -i "s/$name-from-$seen/$name/g" "$package/$name/README.md"
