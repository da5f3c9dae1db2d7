# The corpora of the embedded models and of the systems beside them, for other recipes: `source corpora.sh; corpus NAME`.
# Needs POINTER_DATA (the corpora). Folders of prepared data are made once, in $runs.
runs=${RUNS:-runs}
recipes=$(dirname "${BASH_SOURCE[0]}")
lines() { xz -dc "$POINTER_DATA/$1.txt.xz" | head -n "$2" || true; }
captions() { xz -dc "$POINTER_DATA/commongen/$1.jsonl.xz" | python -c 'import json, sys
for line in sys.stdin:
    print("\n".join(json.loads(line)["texts"]))'; }

# What the writer writes for some words of each of the texts that it is given (distil.py): written STYLE LISTS < TEXTS
written() {
  [ -f "$runs/$1-people.txt" ] || cat > "$runs/$1-people.txt"
  python "$recipes/distil.py" lists "$runs/$1-people.txt" "$2" "$runs/$1-lists.txt"
  pointer generate -f "$runs/$1-lists.txt" -o "$runs/$1-drafts.jsonl" --model writer --style "$1"
  python "$recipes/distil.py" texts "$runs/$1-drafts.jsonl" /dev/stdout
}

# Sets `texts` (what to train on), `valid` (to validate on), `folder` (of the corpus), `length` (tokens of a text), `most`
# (keywords of a test text) and `about` (for cards).
# The last lines of wiki/train, news/reuters (50,000 each) and yelp/train (12,000) are reserved for the scorer of perplexity.
corpus() {
  valid() { lines "$folder/valid" 10000; }
  case $1 in
    everyday) # needs `pointer fetch smollm2` and what writer.sh needs
      folder=commongen length=64 most=5
      texts() {
        [ -d "$runs/writer-texts" ] || python "$recipes/writer_texts.py" "$runs/writer-texts" >&2
        { captions train; cat "$runs/writer-texts/everyday.txt"; } | written everyday 32000
      }
      valid() { captions valid; }
      about="What the model writer wrote for words of 32,000 sentences: captions of CommonGen (Lin et al., 2020; MIT licence), examples of WordNet 3.0 (Princeton University, WordNet licence), short sentences of Yelp reviews (Yelp's terms: research use)."
      ;;
    wiki)
      folder=wiki length=64 most=4
      texts() { lines wiki/train 450000; }
      about="450,000 sentences of English Wikipedia (CC BY-SA) from two public wikiextractor dumps."
      ;;
    reviews)
      folder=yelp length=128 most=7
      texts() { lines yelp/train 99999; }
      about="99,999 passages of Yelp reviews from public research repositories of review samples (Yelp's terms: research use)."
      ;;
    news)
      folder=news length=64 most=4
      # Reuters is more text of another year and house; the text to be like comes in four times.
      texts() { lines news/reuters 350000; for _ in 1 2 3 4; do lines news/train 25899; done; }
      about="25,899 sentences of EMNLP 2017 WMT News, four times, and 350,000 of Reuters news 2006-2013 (public financial-news dataset of Ding et al., 2014)."
      ;;
    *)
      echo "${0##*/}: expected everyday, wiki, reviews or news, found $1" >&2
      exit 2
      ;;
  esac
}

# Makes $runs/NAME-data and $runs/NAME-valid, unless they are there.
prepared() {
  mkdir -p "$runs"
  [ -f "$runs/$1.txt" ] || texts > "$runs/$1.txt"
  pointer prepare "$runs/$1.txt" --max-length "$length" --skeleton mixed --out "$runs/$1-data"
  [ -f "$runs/$1-valid.txt" ] || valid > "$runs/$1-valid.txt"
  pointer prepare "$runs/$1-valid.txt" --max-length "$length" --skeleton mixed --out "$runs/$1-valid"
}
