#!/usr/bin/env bash
# The paper's fine-tuning on EMNLP 2017 WMT News, on 8 GPUs, after paper_wiki.sh: paper_news.sh base|large
# Needs POINTER_DATA (the corpora). Continues where it was interrupted. Runs go to RUNS (runs/ if not set).
set -euo pipefail
exec "$(dirname "$0")/paper_tune.sh" "$1" news 64 "EMNLP 2017 WMT News."
