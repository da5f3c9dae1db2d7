#!/usr/bin/env bash
# The paper's fine-tuning on Yelp reviews, on 8 GPUs, after paper_wiki.sh: paper_yelp.sh base|large
# Needs POINTER_DATA (the corpora). Continues where it was interrupted. Runs go to RUNS (runs/ if not set).
set -euo pipefail
exec "$(dirname "$0")/paper_tune.sh" "$1" yelp 128 "Yelp reviews (Yelp's terms: research use)."
