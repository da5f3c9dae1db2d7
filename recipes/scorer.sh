#!/usr/bin/env bash
# Makes src/pointer/evaluation/scorer: the n-gram model that scorers perplexity when no other scorer is named.
# Needs POINTER_DATA (the corpora). Reads the lines that are reserved for the scorer, and no others.
set -euo pipefail
reserved() { xz -dc "$POINTER_DATA/$1.txt.xz" | tail -n "$2"; }

{ reserved wiki/train 50000; reserved news/reuters 50000; reserved yelp/train 12000; } |
  python -m pointer.evaluation.ngram - --order 4 --prune 0 0 1 --out "$(dirname "$0")/../src/pointer/evaluation/scorer"
