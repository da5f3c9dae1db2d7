#!/usr/bin/env bash
# Makes src/pointer/english: the vocabulary, document frequencies and casing table that come with the package.
# Needs POINTER_DATA (the corpora) and MINILM (the folder of all-MiniLM-L6-v2, for its BERT vocabulary).
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
lines() { xz -dc "$POINTER_DATA/$1.txt.xz" | head -n "$2" || true; }

# The lines reserved for the scorer stay unread. Reviews count twice and the EMNLP news four times, for they are smaller.
{
  lines wiki/train 450000
  lines news/reuters 350000
  for _ in 1 2; do lines yelp/train 99999; done
  for _ in 1 2 3 4; do lines news/train 25899; done
} | pointer vocabulary - --from "$MINILM" --size 10000 --out "$work/vocabulary"

{ lines wiki/train 60000; lines news/reuters 40000; lines yelp/train 20000; } |
  pointer prepare - --vocabulary "$work/vocabulary" --max-length 128 --out "$work/data"

target=$(dirname "$0")/../src/pointer/english
mkdir -p "$target"
cp "$work/vocabulary/"*.json "$work/data/document_frequencies.json.gz" "$work/data/casing.json.gz" "$target"
