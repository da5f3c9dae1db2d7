"""The loss is the one that was meant, and validation counts what it says."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from prepared import prepared_folder
from stage_rows import texts
from transformers import BertForMaskedLM

from pointer.model import InsertionTransformer
from pointer.prepare.shards import PreparedData
from pointer.prepare.stages import stage_pairs
from pointer.training.objective import gap_logits, gap_loss, stage_counts, stage_metrics
from pointer.training.pairs import Pairs, all_pairs, collate, cut
from pointer.training.settings import Stages


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    return PreparedData.open(prepared_folder(tmp_path_factory.mktemp("prepared"), 50))


def test_the_loss_is_the_cross_entropy_of_transformers_logits_at_the_gaps(data: PreparedData, tmp_path: Path) -> None:
    torch.manual_seed(1)
    model = InsertionTransformer.start("tiny", data.vocabulary).eval()
    model.save_pretrained(tmp_path / "model")
    plain = BertForMaskedLM.from_pretrained(tmp_path / "model").eval()
    rows = data.load().take(np.arange(3))
    pairs = all_pairs(rows, Stages(), np.random.default_rng(0))
    pairs = replace(pairs, weight=np.where(pairs.closing, 4, 1).astype(np.float32))
    expected = 0.0
    noi, start, end = data.vocabulary.noi, data.vocabulary.id("[CLS]"), data.vocabulary.id("[SEP]")
    for ids, stage in texts(rows):
        for x, y in stage_pairs(ids, stage, noi):
            with torch.no_grad():
                logits = plain(torch.tensor([[start, *x.tolist(), end]])).logits[0].double()
            log_probabilities = logits - torch.logsumexp(logits, -1, keepdim=True)
            closing = len(x) == len(ids)
            expected -= sum((4 if closing else 1) * float(log_probabilities[i, label]) for i, label in enumerate(y))
    with torch.no_grad():
        found = float(gap_loss(model, collate(rows, pairs, data.vocabulary)))
    assert found == pytest.approx(expected, rel=1e-5)


def test_padding_does_not_change_what_a_gap_is_worth(data: PreparedData) -> None:
    model = InsertionTransformer.start("tiny", data.vocabulary).eval()
    rows = data.load()
    pairs: Pairs = all_pairs(rows, Stages(), np.random.default_rng(0))[:12]
    with torch.no_grad():
        together = gap_logits(model, collate(rows, pairs, data.vocabulary))[0]
        alone = [gap_logits(model, collate(rows, pairs[i : i + 1], data.vocabulary))[0] for i in range(len(pairs))]
    torch.testing.assert_close(together, torch.cat(alone), atol=1e-5, rtol=1e-5)


def test_validation_counts_are_right(data: PreparedData) -> None:
    model = InsertionTransformer.start("tiny", data.vocabulary).eval()
    with torch.no_grad():  # a model that always says [NOI]
        model.cls.predictions.bias[data.vocabulary.noi] = 100.0
    rows = data.load()
    pairs = all_pairs(rows, Stages(), np.random.default_rng(0))
    stages = int(rows.stage.max()) + 1
    batches = [collate(rows, batch, data.vocabulary) for batch in cut(pairs, 512, np.random.default_rng(0))]
    found = stage_metrics(stage_counts(model, batches, data.vocabulary.noi, stages))
    inserted = int((rows.stage > 0).sum())
    assert found["accuracy"] == 0 and found["noi_recall"] == 1
    assert found["noi_precision"] == pytest.approx(1 - inserted / pairs.gaps, abs=1e-6)
    assert found["stages"]["1"]["noi_precision"] < 1 == found["closing"]["noi_precision"]
