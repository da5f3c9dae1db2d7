#!/usr/bin/env bash
# What the start, the stages and the size of a model are worth, for equal tokens: ablations.sh reviews|news [OUT [NAME...]]
# Trains on the same texts for TOKENS=1000000 each, one seed, and
# scores what they write from the keywords of the test texts; all of these, or those that are named:
#   wiki         from the embedded model wiki, like the embedded models of the package
#   no-wiki      from all-MiniLM-L6-v2 itself
#   late         from there too, but on the paper's schedule
#   interleaved  from there too, but a gap gets the token in its middle, and not the most important one
#   mini         from scratch, 4 x 256
# Needs POINTER_DATA (the corpora) and MINILM (the folder of all-MiniLM-L6-v2). Goes on where it was interrupted.
set -euo pipefail
name=$1 out=${2:-ablations/$1} tokens=${TOKENS:-1000000} named=" ${*:3} "
wanted() { [ "$named" = "  " ] || [[ "$named" == *" $1 "* ]]; }
source "$(dirname "$0")/corpora.sh"

corpus "$name"
prepared "$name"
if wanted interleaved; then
  pointer prepare "$runs/$name.txt" --max-length "$length" --skeleton mixed --importance none --out "$runs/$name-interleaved-data"
fi
mkdir -p "$out"
[ -f "$out/references.txt" ] || xz -dc "$POINTER_DATA/$folder/test.txt.xz" > "$out/references.txt"
pointer keywords "$out/references.txt" --max "$most" --separator "; " > "$out/keys.txt"

systems=()
try() { # NAME DATA START SETTING...
  wanted "$1" || return 0
  local as=$1 data=$2 start=$3 run=$runs/$name-ablation-$1
  shift 3
  pointer train "$data" --init "$start" --validation "$runs/$name-valid" --tokens "$tokens" --about "$about" --out "$run" "$@"
  pointer generate --model "$run" -f "$out/keys.txt" -o "$out/$as.jsonl"
  systems+=("$as=$out/$as.jsonl")
}
try no-wiki "$runs/$name-data" "$MINILM"
try late "$runs/$name-data" "$MINILM" --schedule paper
try interleaved "$runs/$name-interleaved-data" "$MINILM"
try mini "$runs/$name-data" mini
try wiki "$runs/$name-data" wiki
pointer compare "${systems[@]}" --references "$out/references.txt" --title "$name, $tokens tokens each" --markdown
