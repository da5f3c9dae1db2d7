"""From constraints to texts: one insertion a gap and stage, until no gap wants any."""
