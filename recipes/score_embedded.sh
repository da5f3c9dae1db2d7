#!/usr/bin/env bash
# Scores the embedded models on the 1,000-line test files, greedily, with YAKE constraints: score_embedded.sh [OUT]
# Prints the paper's columns with intervals and signatures for reviews (Yelp, 7 keywords) and news (4 keywords), and for
# wiki on both, which has seen neither. Needs POINTER_DATA (the corpora). Goes on where it was interrupted.
set -euo pipefail
out=${1:-scores}
embedded=$(dirname "$0")/../src/pointer/checkpoints
mkdir -p "$out"

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
}

score yelp 7 reviews wiki
score news 4 news wiki
