GREY = "the exercise's own run, with `colour = False`"
NOT_RECORDED = {
    "Layer 1 falls to 0.44 for both photographs": GREY,
    "layer 17 stays at 0.5": GREY,
    "layer 1 has 0.32 and layer 17 has 0.10": GREY,
}


def numbers():
    return {}
