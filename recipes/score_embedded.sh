#!/usr/bin/env bash
# Scores the embedded models on the 1,000-line test files, greedily, with YAKE constraints: score_embedded.sh [OUT]
# Prints the paper's columns with intervals and signatures for reviews (Yelp, 7 keywords) and news (4 keywords), and for
# wiki on both, which has seen neither; the figures go to results/, where those of the cards have to be found
# (`tables.sh --check`). Needs POINTER_DATA (the corpora). Goes on where it was interrupted.
set -euo pipefail
out=${1:-scores}
project=$(dirname "$0")/..
embedded=$project/src/pointer/checkpoints
mkdir -p "$out" "$project/results"

score() { # CORPUS KEYWORDS MODEL...
  local corpus=$1 most=$2 systems=() model
  shift 2
  [ -f "$out/$corpus.txt" ] || xz -dc "$POINTER_DATA/$corpus/test.txt.xz" > "$out/$corpus.txt"
  pointer keywords "$out/$corpus.txt" --max "$most" --separator "; " > "$out/$corpus.keys"
  for model in "$@"; do
    [ -d "$embedded/$model" ] || continue
    pointer generate --model "$model" -f "$out/$corpus.keys" -o "$out/$corpus-$model.jsonl"
    systems+=("$model=$out/$corpus-$model.jsonl")
  done
  pointer compare "${systems[@]}" --references "$out/$corpus.txt" --title "$corpus" --markdown --examples 10 \
    --plot "$out/$corpus.png"
  echo
  pointer compare "${systems[@]}" --references "$out/$corpus.txt" --json > "$out/$corpus.json"
  cp "$out/$corpus.json" "$project/results/embedded-$corpus.json"
}

score yelp 7 reviews wiki
score news 4 news wiki
