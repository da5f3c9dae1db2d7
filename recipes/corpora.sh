# The corpora of the embedded models and of the systems beside them, for other recipes: `source corpora.sh; corpus NAME`.
# Needs POINTER_DATA (the corpora). Folders of prepared data are made once, in $runs.
runs=${RUNS:-runs}
lines() { xz -dc "$POINTER_DATA/$1.txt.xz" | head -n "$2" || true; }

# Sets `texts` (what to train on), `folder` (of the corpus), `length` (tokens of a text), `most` (keywords of a test text)
# and `about` (for cards).
# The last lines of wiki/train, news/reuters (50,000 each) and yelp/train (12,000) are reserved for the scorer of perplexity.
corpus() {
  case $1 in
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
      echo "${0##*/}: expected wiki, reviews or news, found $1" >&2
      exit 2
      ;;
  esac
}

# Makes $runs/NAME-data and $runs/NAME-valid, unless they are there.
prepared() {
  mkdir -p "$runs"
  [ -f "$runs/$1.txt" ] || texts > "$runs/$1.txt"
  pointer prepare "$runs/$1.txt" --max-length "$length" --skeleton mixed --out "$runs/$1-data"
  pointer prepare "$POINTER_DATA/$folder/valid.txt.xz" --max-length "$length" --skeleton mixed --out "$runs/$1-valid"
}
