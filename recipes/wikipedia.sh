#!/usr/bin/env bash
# From extracted Wikipedia text to a pre-trained base model, on as many nodes as there are: docs/scale.md says what to expect.
#   TEXTS="s3://bucket/wiki/*.txt.gz" VALID=s3://bucket/valid.txt STORE=s3://bucket/pointer OUT=/shared/base recipes/wikipedia.sh
# The head node of a Ray cluster prepares (ADDRESS= uses the cores of this machine alone), then all nodes train: give the same command
# there with NODE=1, 2, ... when the head has prepared (NODES, GPUS, HEAD: see torchrun). Options for `pointer train` may follow.
# Each step is skipped once it is done, so the same command goes on after whatever happened.
set -euo pipefail
: "${TEXTS:?the files of the corpus}" "${VALID:?a file of texts to validate on}" "${STORE:?where prepared data goes}" "${OUT:?a folder that all nodes share}" "${ADDRESS=auto}"

if [ "${NODE:-0}" = 0 ]; then
  pointer prepare "$TEXTS" --out "$STORE/data" --layout "${LAYOUT:-lines}" --engine ray ${ADDRESS:+--address "$ADDRESS"}
  pointer prepare "$VALID" --out "$STORE/valid" --layout "${LAYOUT:-lines}"
fi
# Ranks that are started again would look for those that died in a store that they share with torchrun.
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
torchrun --nnodes "${NODES:-1}" --nproc-per-node "${GPUS:-1}" --rdzv-backend c10d --rdzv-endpoint "${HEAD:-localhost:29500}" --max-restarts 3 \
  -m pointer train "$STORE/data" --validation "$STORE/valid" --stream --preset paper --init "${SIZE:-base}" --precision "${PRECISION:-bf16}" \
  --about "${ABOUT:-English Wikipedia (CC BY-SA).}" --out "$OUT" "$@"
