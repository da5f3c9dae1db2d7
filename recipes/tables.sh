#!/usr/bin/env bash
# The paper's tables of quality and speed, for POINTER and the systems it is compared with: tables.sh reviews|news [OUT]
# Trains every system with the same budget (MINUTES=40 of processor time, one thread), lets each write from the keywords of
# the 1,000 test texts (CGMH, which is slow, from the first FEW=100), measures quality, which goes to results/ and from there
# to docs/results.md, and prints speed and texts for the keyword lists of the paper's appendix. Needs POINTER_DATA (the
# corpora) and an idle machine. Goes on where it was interrupted. `tables.sh --check` says where page and results disagree.
set -euo pipefail
here=$(dirname "$0")
if [ "${1:-}" = --check ]; then exec python "$here/results.py" --check; fi
name=$1 out=${2:-tables/$1} minutes=${MINUTES:-40} few=${FEW:-100} project=${PROJECT:-$here/..}
source "$here/corpora.sh"
export OMP_NUM_THREADS=1 # so that a minute of the clock is a minute of the processor, for every system

corpus "$name"
prepared "$name"
mkdir -p "$out/all" "$out/few" "$out/appendix"

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

write() { # KEYS FOLDER NAME ARGUMENT...
  local keys=$1 into=$2 as=$3
  shift 3
  pointer generate --timed -f "$keys" -o "$out/$into/$as.jsonl" "$@"
}
everything() { # KEYS FOLDER
  write "$1" "$2" keywords --system keywords
  write "$1" "$2" nmstg --system nmstg --model "$runs/$name-nmstg" --decoding sample
  write "$1" "$2" autoregressive-greedy --system autoregressive --model "$runs/$name-autoregressive"
  write "$1" "$2" autoregressive-sample --system autoregressive --model "$runs/$name-autoregressive" --decoding sample --top-p 0.9
  write "$1" "$2" grid-beam --system grid-beam --model "$runs/$name-autoregressive"
  write "$1" "$2" pointer-sample --model "$name" --decoding sample --top-k 20
  write "$1" "$2" pointer-beam --model "$name" --decoding beam
  write "$1" "$2" pointer-greedy --model "$name"
}
cgmh() { write "$1" "$2" cgmh --system cgmh --model "$runs/$name-cgmh" --setting candidates="${CANDIDATES:-50}"; }
everything "$out/keys.txt" all
cgmh "$out/keys-few.txt" few
for file in "$out"/all/*.jsonl; do head -n "$few" "$file" > "$out/few/${file##*/}"; done
everything "$here/appendix-$name.txt" appendix
cgmh "$here/appendix-$name.txt" appendix

compare() { # FOLDER REFERENCES
  local others=() file
  for file in "$out/$1"/*.jsonl; do
    [ "${file##*/}" = pointer-greedy.jsonl ] || others+=("$file")
  done
  pointer compare "$out/$1/pointer-greedy.jsonl" "${others[@]}" --references "$2" --json --plot "$out/$1.png" > "$out/$1.json"
  mkdir -p "$project/results"
  cp "$out/$1.json" "$project/results/$name-$1.json"
}
compare all "$out/references.txt"
compare few "$out/references-few.txt"
python "$here/results.py" --root "$project"
python "$here/../benchmarks/systems.py" "$out" "$runs/$name" --plot "$out/speed.png"
