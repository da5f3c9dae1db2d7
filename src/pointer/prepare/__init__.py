"""Corpus to stage schedules: importance, stages, shards. Never imports torch."""
