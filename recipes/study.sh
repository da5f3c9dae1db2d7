#!/usr/bin/env bash
# Studies of what tables.sh made, ready for people to judge: study.sh reviews|news [TABLES [OUT]]
#   pairs     the paper's human evaluation: POINTER beside each rival that wrote all texts and beside people, 400 lists, 5 judges
#   ratings   does a text make sense? 50 texts of every system and of people, one reader
# Then `pointer judge serve OUT/pairs` (a link for each judge), or `pointer judge rate OUT/ratings` (in the terminal), and
# `pointer judge report OUT/...`. Nobody has been asked to judge the pairs.
set -euo pipefail
name=$1 tables=${2:-tables/$1} out=${3:-studies/$1}
mkdir -p "$out"
pointer judge new "$tables/all/pointer-greedy.jsonl" "$tables/all/writer-greedy.jsonl" "$tables/all/nmstg.jsonl" \
  "$tables/all/grid-beam.jsonl" --human "$tables/references.txt" --samples "${SAMPLES:-400}" --judges 5 --out "$out/pairs"
others=()
for file in "$tables"/few/*.jsonl; do
  [ "${file##*/}" = keywords.jsonl ] || others+=("$file")
done
pointer judge new --form ratings "${others[@]}" --human "$tables/references-few.txt" --samples "${READ:-50}" --judges 1 \
  --out "$out/ratings"
