#!/usr/bin/env bash
# What paper_news.sh and paper_yelp.sh share: paper_tune.sh base|large DOMAIN MAX_LENGTH ABOUT
set -euo pipefail
size=$1 domain=$2 max_length=$3 about=$4
runs=${RUNS:-runs}
for part in train valid; do
  pointer prepare "$POINTER_DATA/$domain/$part.txt.xz" --vocabulary "bert-$size-uncased" --max-length "$max_length" \
    --out "$runs/data-$domain-$part-$size"
done

if [ "$size" = large ]; then memory=(--batch-tokens 4096 --gradient-checkpointing)
else memory=(--batch-tokens 4096); fi
accelerate launch --multi_gpu --num_processes 8 --mixed_precision fp16 -m pointer train \
  "$runs/data-$domain-train-$size" --validation "$runs/data-$domain-valid-$size" \
  --init "$runs/wiki-$size" --out "$runs/$domain-$size" --preset paper --epochs 10 --patience 3 --precision fp16 \
  "${memory[@]}" --evaluate-every 500 --save-every 500 --validation-rows 2000 --about "$about"
