"""Evaluation: what systems wrote, beside what people wrote, in numbers that carry their signatures."""
