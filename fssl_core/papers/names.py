"""The names and the unit of memory that the papers print."""

import pandas as pd

MIB = 2**20  # bytes

MEDICAL = ("PathMNIST", "BloodMNIST", "DermaMNIST", "OrganAMNIST", "PneumoniaMNIST")
DATASETS = {
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "imagenet12": "ImageNet-12",
    "tiny-imagenet-200": "Tiny ImageNet",
    "caltech-101": "Caltech-101",
    "coco": "COCO",
    **{f"medmnist/{name.lower()}{split}": name for name in MEDICAL for split in ("", ":val")},
}
LOOK_ALIKES = ("cifar10", "cifar100")  # of which other files go by the same name


def printed_name(dataset: str, official: bool) -> str:
    """``"CIFAR-10"``, or ``"CIFAR-10 subset"`` where the files of that name are not the official ones.

    A name that no paper prints, such as ``"scattered-digits"``, stays as it is.
    """
    return DATASETS.get(dataset, dataset) + (" subset" if dataset in LOOK_ALIKES and not official else "")


PRINTED = {  # our name: the name in the papers' tables
    "dataset": DATASETS,
    "eval_dataset": DATASETS,
    "architecture": {f"resnet{depth}": f"ResNet-{depth}" for depth in (10, 18, 34, 50)}
    | {"resnet18-imagenet": "ResNet-18", "vit-tiny": "ViT-Tiny", "vgg16": "VGG-16-BN"}
    | {f"{name}-modular": printed for name, printed in (("resnet18", "ResNet-18"), ("vgg16", "VGG-16-BN"))},
    "partition": {"iid": "IID", "non_iid_class": "non-IID"},
}


def as_printed(frame: pd.DataFrame) -> pd.DataFrame:
    """Runs, or a paper's cells, under one set of names, so that they can be matched and drawn together.

    Data sets and architectures get their printed names, partitions become "IID" and "non-IID", and MocoSFL gets its
    cut: ``"MocoSFL-3"``. A name that no paper prints, such as ``"scattered-digits"``, stays, and so matches no cell;
    and runs on files under the name of CIFAR that are not the official ones are marked and match none either.

    Args:
        frame: with any of the columns dataset, eval_dataset, architecture, partition, method with cut_layer, and
            official_data.
    """
    frame = frame.copy()
    if "official_data" in frame:  # of a folder of images nothing can tell
        for column in frame.columns.intersection(["dataset", "eval_dataset"]):
            look_alike = frame[column].isin(LOOK_ALIKES) & ~frame["official_data"].astype(bool)
            frame.loc[look_alike, column] = [printed_name(name, False) for name in frame.loc[look_alike, column]]
    for column, names in PRINTED.items():
        if column in frame:
            frame[column] = frame[column].replace(names)
    if "partition" in frame:
        frame["partition"] = frame["partition"].str.replace(r"^classes:\d+$", "non-IID", regex=True)
    if "method" in frame and "cut_layer" in frame:
        split = frame["method"] == "MocoSFL"
        cuts = frame.loc[split, "cut_layer"].astype(int).astype(str)
        frame.loc[split, "method"] = "MocoSFL-" + cuts
    return frame
