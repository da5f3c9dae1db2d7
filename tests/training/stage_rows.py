"""Rows as the tests of training read them."""

from pointer.prepare.shards import Rows


def texts(rows: Rows) -> list[tuple[list[int], list[int]]]:
    ends = zip(rows.offsets[:-1], rows.offsets[1:], strict=True)
    return [(rows.ids[a:b].tolist(), rows.stage[a:b].tolist()) for a, b in ends]
