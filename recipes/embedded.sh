#!/usr/bin/env bash
# Trains an embedded model and puts it into the package: embedded.sh wiki|reviews|news MINUTES. Give it again to train on
# from what is there. reviews and news start from wiki.
# Needs POINTER_DATA (the corpora) and, for the first start of wiki, MINILM (the folder of all-MiniLM-L6-v2).
set -euo pipefail
name=$1 minutes=$2
runs=${RUNS:-runs}
package=$(dirname "$0")/../src/pointer/checkpoints
lines() { xz -dc "$POINTER_DATA/$1.txt.xz" | head -n "$2" || true; }

mkdir -p "$runs"
# The last lines of wiki/train, news/reuters (50,000 each) and yelp/train (12,000) are reserved for the judge of perplexity.
case $name in
  wiki)
    valid=wiki length=64 start=${MINILM:-}
    corpus() { lines wiki/train 450000; }
    about="450,000 sentences of English Wikipedia (CC BY-SA) from two public wikiextractor dumps. Started from all-MiniLM-L6-v2 (Apache-2.0)."
    ;;
  reviews)
    valid=yelp length=128 start=$package/wiki
    corpus() { lines yelp/train 99999; }
    about="99,999 passages of Yelp reviews from public research repositories of review samples (Yelp's terms: research use). Fine-tuned from the embedded model wiki (English Wikipedia, CC BY-SA; all-MiniLM-L6-v2, Apache-2.0)."
    ;;
  news)
    valid=news length=64 start=$package/wiki
    # Reuters is more text of another year and house; the text to be like comes in four times.
    corpus() { lines news/reuters 350000; for _ in 1 2 3 4; do lines news/train 25899; done; }
    about="25,899 sentences of EMNLP 2017 WMT News, four times, and 350,000 of Reuters news 2006-2013 (public financial-news dataset of Ding et al., 2014). Fine-tuned from the embedded model wiki (English Wikipedia, CC BY-SA; all-MiniLM-L6-v2, Apache-2.0)."
    ;;
  *)
    echo "embedded.sh: expected wiki, reviews or news, found $name" >&2
    exit 2
    ;;
esac

[ -f "$runs/$name.txt" ] || corpus > "$runs/$name.txt"
pointer prepare "$runs/$name.txt" --max-length "$length" --skeleton mixed --out "$runs/$name-data"
pointer prepare "$POINTER_DATA/$valid/valid.txt.xz" --max-length "$length" --skeleton mixed --out "$runs/$name-valid"

init=$package/$name
[ -d "$init" ] || init=$start
# A run is named after what its start has seen, so that a killed one goes on and a finished one is followed by the next.
seen=$(python -c "import json; print(json.load(open('$init/config.json')).get('pointer', {}).get('tokens_seen', 0))")
run=$runs/$name-from-$seen
pointer train "$runs/$name-data" --init "$init" --validation "$runs/$name-valid" --minutes "$minutes" --half \
  --about "$about" --out "$run"
rm -rf "${package:?}/$name"
mkdir -p "$package"
cp -r "$run/best" "$package/$name"
