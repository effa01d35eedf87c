import pytest
import torch
from sklearn.metrics import accuracy_score, f1_score, precision_score, recall_score

from fssl_core.errors import DataError, SettingError
from fssl_core.evaluation.metrics import classification_metrics, confusion_matrix, mean_over_batches
from fssl_core.random import generator


def scikit_learn(predictions, labels):
    """Precision, recall and F1 as scikit-learn averages them, recall also over the true classes only."""
    predictions, labels = predictions.numpy(), labels.numpy()
    macro = {"average": "macro", "zero_division": 0}
    return [
        accuracy_score(labels, predictions),
        *(score(labels, predictions, **macro) for score in (precision_score, recall_score, f1_score)),
        recall_score(labels, predictions, labels=sorted(set(labels.tolist())), **macro),
    ]


def some(count=200, true=5, predicted=5, seed=0):
    rng = generator(seed, "classes")
    labels = torch.randint(0, true, (count,), generator=rng)
    guesses = torch.randint(0, predicted, (count,), generator=rng)
    return torch.where(torch.rand(count, generator=rng) < 0.6, labels, guesses), labels


@pytest.mark.parametrize(
    ("true", "predicted"),
    [(5, 5), (5, 3), (3, 5), (1, 5)],
    ids=["all occur", "two are predicted less", "two are never true", "one is true"],
)
def test_metrics_equal_scikit_learns(true, predicted):
    predictions, labels = some(true=true, predicted=predicted)
    predictions, labels = predictions + 1, labels + 1  # classes 0 and 6 are neither true nor predicted
    metrics = classification_metrics(predictions, labels, classes=7)
    assert list(vars(metrics).values()) == pytest.approx(scikit_learn(predictions, labels), abs=1e-12)
    assert (metrics.recall == pytest.approx(metrics.mean_per_class_accuracy)) == (predicted <= true)


def test_a_class_that_is_never_predicted_has_precision_zero():
    predictions, labels = torch.tensor([0, 0, 0, 1]), torch.tensor([0, 0, 2, 1])
    metrics = classification_metrics(predictions, labels, classes=3)
    assert metrics.precision == pytest.approx((2 / 3 + 1 + 0) / 3)
    assert metrics.recall == metrics.mean_per_class_accuracy == pytest.approx((1 + 1 + 0) / 3)
    assert metrics.f1 == pytest.approx((4 / 5 + 1 + 0) / 3)
    assert metrics.accuracy == 3 / 4


def test_means_over_batches_leave_out_classes_that_a_batch_lacks():
    predictions, labels = some(count=57, true=9, predicted=9)
    expected = torch.tensor(
        [scikit_learn(predictions[i : i + 10], labels[i : i + 10]) for i in range(0, 57, 10)], dtype=torch.float64
    ).mean(0)
    by_batch = mean_over_batches(predictions, labels, 9, batch=10)
    assert list(vars(by_batch).values()) == pytest.approx(expected.tolist(), abs=1e-12)
    whole = classification_metrics(predictions, labels, 9)
    assert vars(mean_over_batches(predictions, labels, 9, batch=57)) == pytest.approx(vars(whole), abs=1e-12)
    assert abs(by_batch.recall - whole.recall) > 0.01


def test_rows_of_the_confusion_matrix_are_true_classes():
    counts = confusion_matrix(torch.tensor([1, 1, 0, 2]), torch.tensor([0, 0, 0, 2]), 3)
    assert counts.tolist() == [[1, 2, 0], [0, 0, 0], [0, 0, 1]]


def test_what_is_not_a_prediction_for_each_label_is_refused():
    y = torch.tensor([0, 1, 2])
    for predictions, labels, message in [
        (y[:2], y, r"one prediction for each label \[N\] with N > 0, got \[2\] predictions and \[3\] labels"),
        (y[:0], y[:0], r"with N > 0, got \[0\] predictions"),
        (y + 1, y, r"Predictions span 1 to 3: expected 0 to 2\."),
        (y, y - 1, r"Labels span -1 to 1: expected 0 to 2\."),
    ]:
        with pytest.raises(DataError, match=message):
            classification_metrics(predictions, labels, 3)
    with pytest.raises(SettingError, match="batch=0 cannot be used"):
        mean_over_batches(y, y, 3, batch=0)
