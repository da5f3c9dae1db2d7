#!/usr/bin/env bash
# What start, schedule and search are worth for equal tokens, the paper end to end among them:
#   ablations.sh reviews|news [order [OUT]]
# trains on the same texts for TOKENS=3000000 each, one seed, and lets each write from the keywords of the test texts:
#   ours      from the embedded model wiki, like the embedded models of the package
#   paper     the paper's schedule and skeletons, all gaps of a stage open, all closing pairs; decoded as the paper does
#   balanced  the token in the middle of a gap first: the Insertion Transformer's balanced tree, the paper's interleaved masking
#   uniform   any token of a gap first: the Insertion Transformer's other order
# Beams, gap by gap as in the paper and in two rounds, are slow, so they write for the first FEW=200.
#   ablations.sh reviews|news start [OUT]
# asks what pre-training on Wikipedia is worth: `ours` beside `no-wiki`, from all-MiniLM-L6-v2 itself (MINILM, its folder).
# What is measured goes to results/ and from there to docs/results.md. Needs POINTER_DATA (the corpora).
# PRECISION=bf16 trains faster where the processor can. Goes on where it was interrupted.
set -euo pipefail
here=$(dirname "$0")
name=$1 part=${2:-order} out=${3:-ablations/$1/${2:-order}} tokens=${TOKENS:-3000000} few=${FEW:-200}
project=${PROJECT:-$here/..}
case $part in order | start) ;; *) echo "ablations.sh: expected order or start, found $part" >&2 && exit 2 ;; esac
source "$here/corpora.sh"

[ -n "${LM:-}" ] || pointer fetch smollm2
corpus "$name"
prepared "$name"
mkdir -p "$out/all" "$out/few" "$project/results"
[ -f "$out/references.txt" ] || xz -dc "$POINTER_DATA/$folder/test.txt.xz" > "$out/references.txt"
pointer keywords "$out/references.txt" --max "$most" --separator "; " > "$out/keys.txt"
for file in references keys; do head -n "$few" "$out/$file.txt" > "$out/$file-few.txt"; done

fit() { # NAME START SETTING...
  local run=$runs/$name-ablation-$1-$tokens start=$2
  shift 2
  pointer train "$runs/$name-data" --init "$start" --validation "$runs/$name-valid" --tokens "$tokens" --half \
    --precision "${PRECISION:-no}" --about "$about" --out "$run" "$@"
  [ -d "$run/int8" ] || pointer export "$run/best" "$run/int8" --int8 # what the package ships is int8 too
}
write() { # KEYS FOLDER AS MODEL ARGUMENT...
  local keys=$1 into=$2 as=$3 model=$runs/$name-ablation-$4-$tokens/int8
  shift 4
  pointer generate --timed --threads 1 --model "$model" -f "$out/$keys.txt" -o "$out/$into/$as.jsonl" "$@"
}
compare() { # FOLDER FIRST REFERENCES AS
  local files=("$out/$1/$2.jsonl") file
  for file in "$out/$1"/*.jsonl; do
    [ "${file##*/}" = "$2.jsonl" ] || files+=("$file")
  done
  pointer compare "${files[@]}" --references "$out/$3.txt" --lm "${LM:-smollm2}" --json > "$project/results/$name-$4.json"
}

fit ours wiki
write keys all ours ours
if [ "$part" = start ]; then
  fit no-wiki "$MINILM"
  write keys all no-wiki no-wiki
  compare all ours references start
else
  fit paper wiki --schedule paper --skeleton importance --begun-share 0 --closing-share 1
  write keys all paper paper --preset paper
  fit balanced wiki --schedule balanced
  write keys all balanced balanced
  fit uniform wiki --schedule uniform
  write keys all uniform uniform
  compare all ours references order

  for as in paper ours; do head -n "$few" "$out/all/$as.jsonl" > "$out/few/$as-greedy.jsonl"; done
  write keys-few few paper-beam paper --preset paper --decoding beam
  write keys-few few ours-beam ours --decoding beam
  write keys-few few ours-beam-exact ours --decoding beam --rounds 0
  compare few ours-greedy references-few beams
fi
python "$here/results.py" --root "$project"
