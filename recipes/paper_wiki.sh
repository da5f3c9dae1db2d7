#!/usr/bin/env bash
# The paper's pre-training on Wikipedia, on 8 GPUs: paper_wiki.sh base|large WIKI_FILES...
# Continues where it was interrupted. Runs go to RUNS (runs/ if not set).
set -euo pipefail
size=$1 && shift
runs=${RUNS:-runs}
pointer prepare "$@" --vocabulary "bert-$size-uncased" --max-length 64 --out "$runs/data-wiki-$size"

# The large model (24 layers of 1024) pays with half the batch and a second computation of its activations.
if [ "$size" = large ]; then memory=(--batch-tokens 8192 --accumulate 2 --gradient-checkpointing)
else memory=(--batch-tokens 16384); fi
accelerate launch --multi_gpu --num_processes 8 --mixed_precision fp16 -m pointer train "$runs/data-wiki-$size" \
  --init "bert-$size-uncased" --out "$runs/wiki-$size" --preset paper --epochs 4 --patience 3 --precision fp16 \
  "${memory[@]}" --evaluate-every 2000 --save-every 1000 --validation-rows 3000 \
  --about "English Wikipedia (CC BY-SA)."
