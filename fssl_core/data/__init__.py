"""What a client holds and sees: image sets on the device, their partition among clients, and augmented views."""

from fssl_core.data.datasets import Dataset, ImageSet, load_dataset

__all__ = ["Dataset", "ImageSet", "load_dataset"]
