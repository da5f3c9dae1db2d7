#!/usr/bin/env bash
# What the start, the stages and the size of a model are worth, for equal tokens: ablations.sh reviews|news [OUT]
# Trains on the same texts for TOKENS=1000000 each, one seed, and scores what they write from the keywords of the test texts:
#   wiki         from the embedded model wiki, like the embedded models of the package
#   no-wiki      from all-MiniLM-L6-v2 itself
#   interleaved  from there too, but stages take out every second word, and not the least important ones
#   mini         from scratch, 4 x 256
# Needs POINTER_DATA (the corpora) and MINILM (the folder of all-MiniLM-L6-v2). Goes on where it was interrupted.
set -euo pipefail
name=$1 out=${2:-ablations/$1} tokens=${TOKENS:-1000000}
source "$(dirname "$0")/corpora.sh"

corpus "$name"
prepared "$name"
pointer prepare "$runs/$name.txt" --max-length "$length" --skeleton mixed --importance none --out "$runs/$name-interleaved-data"
mkdir -p "$out"
[ -f "$out/references.txt" ] || xz -dc "$POINTER_DATA/$folder/test.txt.xz" > "$out/references.txt"
pointer keywords "$out/references.txt" --max "$most" --separator "; " > "$out/keys.txt"

systems=()
try() { # NAME DATA START
  pointer train "$2" --init "$3" --validation "$runs/$name-valid" --tokens "$tokens" --about "$about" --out "$runs/$name-ablation-$1"
  pointer generate --model "$runs/$name-ablation-$1" -f "$out/keys.txt" -o "$out/$1.jsonl"
  systems+=("$1=$out/$1.jsonl")
}
try wiki "$runs/$name-data" wiki
try no-wiki "$runs/$name-data" "$MINILM"
try interleaved "$runs/$name-interleaved-data" "$MINILM"
try mini "$runs/$name-data" mini
pointer compare "${systems[@]}" --references "$out/references.txt" --title "$name, $tokens tokens each" --markdown
