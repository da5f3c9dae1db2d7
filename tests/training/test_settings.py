"""Settings refuse what cannot be, and say how much of a budget is used and how fast to learn."""

from typing import Any

import pytest

from pointer.errors import UsageError
from pointer.training.settings import TrainingSettings


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"learning_rate": -1}, "learning_rate: expected a number from 0 to 1, found -1"),
        ({"skeleton": "bones"}, 'skeleton: expected prepared, importance, keywords, mixed, found "bones"'),
        ({"closing_share": 0}, "closing_share: expected a number from 0.01 to 1, found 0"),
        ({"keywords": (4, 2)}, "keywords: expected two rising numbers"),
        ({"save_every": 15, "log_every": 10}, "log_every: expected a divisor of save_every"),
        ({"keep_every": 15, "log_every": 10}, "log_every: expected a divisor of keep_every"),
        ({"seed": -1}, "seed: expected a number of at least 0, found -1"),
        ({"steps": None}, "Expected a budget"),
    ],
)
def test_settings_that_cannot_be_name_their_field(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message.replace("(", r"\(")):
        TrainingSettings(**{"steps": 1} | changes)


def test_the_first_budget_used_up_counts_and_the_rate_follows_it() -> None:
    settings = TrainingSettings(learning_rate=1.0, decay="linear", warmup_steps=4, steps=100, minutes=10)
    assert settings.used(step=50, tokens=0, epochs=0, seconds=60) == 0.5
    assert settings.used(step=50, tokens=0, epochs=0, seconds=540) == 0.9
    assert settings.rate(0, 0.0, 4) == pytest.approx(0.2)
    assert settings.rate(50, 0.5, 4) == pytest.approx(0.5)
    assert settings.rate(99, 1.0, 4) == 0
    assert settings.rate(1, 0.1, 1000) == pytest.approx(0.9), "warm-up takes at most a tenth of the budget"


def test_the_paper_preset_is_plain_adam_at_a_constant_rate() -> None:
    paper = TrainingSettings.preset("paper")
    assert {paper.rate(step, used, paper.warmup_steps) for step, used in ((0, 0.0), (10**5, 0.9))} == {3e-5}
    assert paper.weight_decay == 0 and paper.clip is None and paper.patience is not None
    assert TrainingSettings.preset("paper", steps=5).epochs is None, "a budget of one's own replaces the preset's"
