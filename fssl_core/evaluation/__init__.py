"""How good a representation is: kNN, probes on all labels or a few, transfer, and fine-tuning.

Beside these: loss landscapes, client identifiability, saliency maps, clusters of features, what a layer still shows of
its input, and batch norm's running statistics measured anew.
"""
