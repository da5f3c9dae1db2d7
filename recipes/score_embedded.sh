#!/usr/bin/env bash
# Scores the embedded models on the 1,000-line test files, greedily, with YAKE constraints: score_embedded.sh [OUT]
# The paper's columns for reviews (Yelp, 7 keywords) and news (4 keywords), for wiki on both, which has seen neither, and for the
# writer; and the first ten validation texts of each small model. Perplexity is that of the n-gram scorer and that of SmolLM2
# (half an hour; LM= leaves it out); with METEOR_JAR=meteor-1.5.jar there is that METEOR, too. All goes to results/ and from
# there into the cards. Needs POINTER_DATA (the corpora). Goes on where it was interrupted.
set -euo pipefail
here=$(dirname "$0")
out=${1:-scores} lm=${LM-smollm2} project=${PROJECT:-$here/..}
mkdir -p "$out" "$project/results"
pointer fetch smollm2

keys() { # CORPUS PART KEYWORDS LINES
  [ -f "$out/$1-$2.txt" ] || { xz -dc "$POINTER_DATA/$1/$2.txt.xz" || true; } | head -n "$4" > "$out/$1-$2.txt"
  pointer keywords "$out/$1-$2.txt" --max "$3" --separator "; " > "$out/$1-$2.keys"
}
write() { # MODEL CORPUS PART ARGUMENT...
  pointer generate --model "$1" -f "$out/$2-$3.keys" -o "$out/$2-$3-$1.jsonl" "${@:4}"
}
score() { # CORPUS KEYWORDS STYLE MODEL...
  local corpus=$1 most=$2 style=$3 systems=() model
  shift 3
  keys "$corpus" test "$most" 1000
  for model in "$@"; do
    write "$model" "$corpus" test
    systems+=("$model=$out/$corpus-test-$model.jsonl")
  done
  write writer "$corpus" test --style "$style"
  pointer compare "${systems[@]}" "writer=$out/$corpus-test-writer.jsonl" --references "$out/$corpus-test.txt" \
    ${METEOR_JAR:+--meteor-jar "$METEOR_JAR"} --lm embedded ${lm:+--lm "$lm"} --json > "$out/$corpus.json"
  cp "$out/$corpus.json" "$project/results/embedded-$corpus.json"
}
samples() { # CORPUS KEYWORDS MODEL
  keys "$1" valid "$2" 10
  write "$3" "$1" valid
  python - "$out/$1-valid-$3.jsonl" > "$project/results/samples-$3.md" << 'PYTHON'
import json, sys
print("| constraints | text |\n| --- | --- |")
for line in open(sys.argv[1], encoding="utf-8"):
    one = json.loads(line)
    print(f"| {', '.join(one['constraints'])} | {one['text']} |")
PYTHON
}

score yelp 7 reviews reviews wiki
score news 4 news news wiki
samples yelp 7 reviews
samples news 4 news
samples wiki 4 wiki
python "$here/results.py" --root "$project"
for model in reviews news wiki; do pointer verify "$project/src/pointer/checkpoints/$model" --write; done # their cards changed
