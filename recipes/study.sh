#!/usr/bin/env bash
# Studies of what tables.sh made: study.sh new|report reviews|news [TABLES [OUT]]
# new      draws them, ready to be judged:
#          pairs    the paper's human evaluation: POINTER beside each rival that wrote all texts and beside people, 400 lists,
#                   5 judges. Nobody has been asked yet.
#          ratings  does a text make sense? 50 texts of every system and of people, READERS=2
#          Then `pointer judge serve OUT/pairs` (a link for each judge), or `pointer judge rate OUT/ratings --judge 1`.
# report   counts the ratings, for results/ and docs/results.md.
set -euo pipefail
here=$(dirname "$0")
step=$1 name=$2 tables=${3:-tables/$2} out=${4:-studies/$2} project=${PROJECT:-$here/..}
# People's texts as the systems write theirs, so that no spacing gives them away.
written() {
  python -c 'import sys; from pointer.writing import as_written
for line in sys.stdin:
    print(as_written(line.strip()))' < "$tables/$1.txt" > "$out/$1.txt"
}
case $step in
  new)
    mkdir -p "$out"
    written references
    written references-few
    pointer judge new "$tables/all/pointer-greedy.jsonl" "$tables/all/writer-greedy.jsonl" "$tables/all/nmstg.jsonl" \
      "$tables/all/grid-beam.jsonl" --human "$out/references.txt" --samples "${SAMPLES:-400}" --judges 5 --out "$out/pairs"
    systems=()
    for file in "$tables"/few/*.jsonl; do
      [ "${file##*/}" = keywords.jsonl ] || systems+=("$file")
    done
    pointer judge new --form ratings "${systems[@]}" --human "$out/references-few.txt" --samples "${READ:-50}" \
      --judges "${READERS:-2}" --out "$out/ratings"
    ;;
  report)
    pointer judge report "$out/ratings" --json > "$project/results/$name-ratings.json"
    python "$here/results.py" --root "$project"
    ;;
  *) echo "study.sh: expected new or report, found $step" >&2 && exit 2 ;;
esac
