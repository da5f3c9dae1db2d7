"""Work in threads: in order, without waiting for itself, and given up when nobody waits for it."""

from threading import Event

import pytest

from pointer.runtime import Unwanted, check_wanted, side_by_side, spare_threads


class Model:
    side_by_side = 2


def test_answers_come_in_order_also_of_tasks_that_have_tasks_of_their_own() -> None:
    def inner(number: int) -> int:
        return number + 1

    def outer(number: int) -> tuple[int, list[int]]:
        return spare_threads(Model), list(side_by_side(inner, [number] * 3, Model))

    assert list(side_by_side(outer, range(9), Model)) == [(1, [number + 1] * 3) for number in range(9)]
    assert spare_threads(Model) == 2
    assert list(side_by_side(inner, range(3), "a model that says nothing")) == [1, 2, 3]


def test_what_nobody_waits_for_is_given_up_at_its_next_pass() -> None:
    has_given_up = Event()

    def work(number: int) -> None:
        if number == 0:
            raise ValueError("damaged")
        try:
            while True:
                check_wanted()
        except Unwanted:
            has_given_up.set()
            raise

    with pytest.raises(ValueError, match="damaged"):
        list(side_by_side(work, range(2), Model))
    assert has_given_up.wait(timeout=60)
    check_wanted()  # out here somebody waits
