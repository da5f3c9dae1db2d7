#!/usr/bin/env bash
# The paper's tables of quality and speed, for POINTER and the systems it is compared with: tables.sh reviews|news [OUT]
# Trains every system with the same budget (MINUTES=40 of processor time, one thread), lets each write from the keywords of
# the 1,000 test texts, and measures quality and speed, in batches and one text at a time. CGMH and the best of eight drafts
# of the writer, which are slow, write for the first FEW=100; for these, perplexity is also measured under SmolLM2, which
# judges some texts a second. All of it, and texts for the keyword lists of the paper's appendix, goes to results/ and from
# there to docs/results.md and docs/results-texts.md. Needs POINTER_DATA (the corpora) and an idle machine; with
# METEOR_JAR=meteor-1.5.jar it measures that METEOR, too. Goes on where it was interrupted. `tables.sh --check` says where
# pages and results disagree.
set -euo pipefail
here=$(dirname "$0")
if [ "${1:-}" = --check ]; then exec python "$here/results.py" --check; fi
name=$1 out=${2:-tables/$1} minutes=${MINUTES:-40} few=${FEW:-100} project=${PROJECT:-$here/..}
source "$here/corpora.sh"
export OMP_NUM_THREADS=1 # so that a minute of the clock is a minute of the processor, for every system

pointer fetch smollm2
corpus "$name"
prepared "$name"
mkdir -p "$out/all" "$out/few" "$out/alone" "$out/appendix" "$project/results"

fit() { # SYSTEM SETTING...
  local system=$1
  shift
  pointer train "$runs/$name-data" --system "$system" --validation "$runs/$name-valid" --minutes "$minutes" \
    --about "$about" --out "$runs/$name-$system" "$@"
}
# Sizes for this budget; the paper's are 117 million parameters (autoregressive), 300 hidden units and 50,000 words (cgmh),
# and 1,024 hidden units (nmstg).
fit autoregressive --setting layers=4 --setting width=256 --setting heads=4
fit cgmh --setting hidden=300
fit nmstg --setting hidden=512
# How fast POINTER is trained; what it writes with is the embedded model.
pointer train "$runs/$name-data" --init wiki --validation "$runs/$name-valid" --steps "${STEPS:-60}" --validation-rows 50 \
  --out "$runs/$name-pointer" > /dev/null

[ -f "$out/references.txt" ] || xz -dc "$POINTER_DATA/$folder/test.txt.xz" > "$out/references.txt"
pointer keywords "$out/references.txt" --max "$most" --separator "; " > "$out/keys.txt"
head -n "$few" "$out/references.txt" > "$out/references-few.txt"
head -n "$few" "$out/keys.txt" > "$out/keys-few.txt"
head -n 20 "$out/keys.txt" > "$out/keys-alone.txt"

write() { # KEYS FOLDER NAME ARGUMENT...
  local keys=$1 into=$2 as=$3
  shift 3
  pointer generate --timed --threads 1 -f "$keys" -o "$out/$into/$as.jsonl" "$@"
}
everything() { # KEYS FOLDER ARGUMENT...
  local given=("$1" "$2") more=("${@:3}")
  write "${given[@]}" keywords --system keywords "${more[@]}"
  write "${given[@]}" nmstg --system nmstg --model "$runs/$name-nmstg" --decoding sample "${more[@]}"
  write "${given[@]}" autoregressive-greedy --system autoregressive --model "$runs/$name-autoregressive" "${more[@]}"
  write "${given[@]}" autoregressive-sample --system autoregressive --model "$runs/$name-autoregressive" --decoding sample \
    --top-p 0.9 "${more[@]}"
  write "${given[@]}" grid-beam --system grid-beam --model "$runs/$name-autoregressive" "${more[@]}"
  write "${given[@]}" pointer-sample --model "$name" --decoding sample --top-k 20 "${more[@]}"
  write "${given[@]}" pointer-beam --model "$name" --decoding beam "${more[@]}"
  write "${given[@]}" pointer-greedy --model "$name" "${more[@]}"
  write "${given[@]}" writer-greedy --model writer --style "$name" "${more[@]}"
}
cgmh() { write "$1" "$2" cgmh --system cgmh --model "$runs/$name-cgmh" --setting candidates="${CANDIDATES:-20}"; }
everything "$out/keys.txt" all
cgmh "$out/keys-few.txt" few
write "$out/keys-few.txt" few writer-best-of-8 --model writer --style "$name" --best-of 8
for file in "$out"/all/*.jsonl; do head -n "$few" "$file" > "$out/few/${file##*/}"; done
everything "$out/keys-alone.txt" alone --batch-size 1
everything "$here/appendix-$name.txt" appendix
cgmh "$here/appendix-$name.txt" appendix

compare() { # FOLDER REFERENCES ARGUMENT...
  local files=("$out/$1/pointer-greedy.jsonl") file
  for file in "$out/$1"/*.jsonl; do
    [ "${file##*/}" = pointer-greedy.jsonl ] || files+=("$file")
  done
  pointer compare "${files[@]}" --references "$2" ${METEOR_JAR:+--meteor-jar "$METEOR_JAR"} --json \
    --plot "$project/docs/results-$name-$1.png" --lm embedded "${@:3}" > "$out/$1.json"
  cp "$out/$1.json" "$project/results/$name-$1.json"
}
compare all "$out/references.txt"
compare few "$out/references-few.txt" --lm smollm2 # the writer is built on it, and its row says so
python "$here/../benchmarks/systems.py" "$out" "$runs/$name" --results "$project/results/$name" --plot "$project/docs/speed-$name.png"
python "$here/results.py" --root "$project"
