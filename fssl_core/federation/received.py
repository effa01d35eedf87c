"""What a member of a federation sends is looked at before anybody computes with it."""

from collections.abc import Mapping

from torch import Tensor

LARGEST = 1e6  # no value that training gives is larger; sums of squares of such values are still finite
LONGEST = 2.0**53  # but for a count of batches: it grows with every step, and is exact up to there


def unusable(tensors: Mapping[str, Tensor]) -> str:
    """Why nobody should go on computing with these tensors, none of which is empty; an empty text if one can.

    One value that is not finite, or so large that a sum overflows, would spread to the models of all, and so would the
    root of a variance below zero. This says nothing about values that are wrong and of a usual size.
    """
    for name, value in tensors.items():
        most = LONGEST if name.endswith("num_batches_tracked") else LARGEST
        low, high = value.aminmax()  # NaN where one value is
        if not (low >= -most and high <= most):
            return f"values in {name[:100]!r} that are not finite or beyond {most:g}"
        if name.endswith("running_var") and low < 0:
            return f"a variance below zero in {name[:100]!r}"
    return ""
