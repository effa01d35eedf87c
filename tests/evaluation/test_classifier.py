import pytest
import torch
from torch import nn

from fssl_core.evaluation.classifier import classifier_accuracy
from tests.training.test_split import tiny_data


def test_accuracy_is_the_share_of_test_images_whose_largest_logit_is_right():
    data = tiny_data()

    class Constant(nn.Module):
        def forward(self, images):
            return torch.tensor([0.0, 3.0, 1.0, 2.0]).expand(len(images), 4)

    assert classifier_accuracy(Constant(), data) == pytest.approx((data.test.labels == 1).float().mean().item())
