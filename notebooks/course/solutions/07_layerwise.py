# Answers to the exercises of 07_layerwise.ipynb: of each the right one, and wrong ones with the hint that they get.

# %% layerwise/progressive
guess = 3


# %% layerwise/progressive: too_low
guess = -6


# %% layerwise/progressive: too_high
guess = 15


# %% layerwise/progressive: unit
guess = 0.04


# %% layerwise/units
def units(kind, stage, count):
    if kind == "end-to-end":
        return [], list(range(count))
    if kind == "progressive":
        return [], list(range(stage))
    return list(range(stage - 1)), [stage - 1]


# %% layerwise/units: shifted
def units(kind, stage, count):
    if kind == "end-to-end":
        return [], list(range(1, count + 1))
    if kind == "progressive":
        return [], list(range(1, stage + 1))
    return list(range(1, stage)), [stage]


# %% layerwise/units: swapped
def units(kind, stage, count):
    if kind == "end-to-end":
        return list(range(count)), []
    if kind == "progressive":
        return list(range(stage)), []
    return [stage - 1], list(range(stage - 1))


# %% layerwise/units: progressive
def units(kind, stage, count):
    if kind == "end-to-end":
        return [], list(range(count))
    return list(range(stage - 1)), [stage - 1]


# %% layerwise/units: layer_wise
def units(kind, stage, count):
    if kind == "end-to-end":
        return [], list(range(count))
    if kind == "progressive":
        return [], list(range(stage))
    return [], [stage - 1]


# %% layerwise/units: later
def units(kind, stage, count):
    if kind == "end-to-end":
        return [], list(range(count))
    active = list(range(stage)) if kind == "progressive" else [stage - 1]
    return [unit for unit in range(count) if unit not in active], active


# %% layerwise/units: end_to_end
def units(kind, stage, count):
    if kind == "layer-wise":
        return list(range(stage - 1)), [stage - 1]
    return [], list(range(stage))


# %% layerwise/units: pair
def units(kind, stage, count):
    return list(range(count))


# %% layerwise/computation
def computation(frozen, trained):
    return sum(frozen) + 3 * sum(trained)


# %% layerwise/computation: two_passes
def computation(frozen, trained):
    return sum(frozen) + 2 * sum(trained)


# %% layerwise/computation: one_pass
def computation(frozen, trained):
    return sum(frozen) + sum(trained)


# %% layerwise/computation: frozen_free
def computation(frozen, trained):
    return 3 * sum(trained)


# %% layerwise/computation: frozen_trained
def computation(frozen, trained):
    return 3 * sum(frozen + trained)


# %% layerwise/ratio
def ratio(count):
    layer_wise = sum(3 + (stage - 1) for stage in range(1, count + 1))
    return layer_wise / (count * 3 * count)


# %% layerwise/ratio: new_only
def ratio(count):
    return 1 / count


# %% layerwise/ratio: percent
def ratio(count):
    layer_wise = sum(3 + (stage - 1) for stage in range(1, count + 1))
    return 100 * layer_wise / (count * 3 * count)


# %% layerwise/ratio: progressive
def ratio(count):
    return sum(range(1, count + 1)) / count**2


# %% layerwise/ratio: last_stage
def ratio(count):
    return (3 + count - 1) / (3 * count)


# %% layerwise/ratio: inverse
def ratio(count):
    layer_wise = sum(3 + (stage - 1) for stage in range(1, count + 1))
    return count * 3 * count / layer_wise


# %% layerwise/traffic
def traffic(kind, stage, sizes, heads):
    sent = sizes[stage - 1] if kind == "layer-wise" else sum(sizes[:stage])
    return 2 * 4 * (sent + heads)


# %% layerwise/traffic: one_way
def traffic(kind, stage, sizes, heads):
    sent = sizes[stage - 1] if kind == "layer-wise" else sum(sizes[:stage])
    return 4 * (sent + heads)


# %% layerwise/traffic: unit
def traffic(kind, stage, sizes, heads):
    sent = sizes[stage - 1] if kind == "layer-wise" else sum(sizes[:stage])
    return 2 * 4 * (sent + heads) / 2**20


# %% layerwise/traffic: values
def traffic(kind, stage, sizes, heads):
    sent = sizes[stage - 1] if kind == "layer-wise" else sum(sizes[:stage])
    return 2 * (sent + heads)


# %% layerwise/traffic: values_one_way
def traffic(kind, stage, sizes, heads):
    return (sizes[stage - 1] if kind == "layer-wise" else sum(sizes[:stage])) + heads


# %% layerwise/traffic: no_heads
def traffic(kind, stage, sizes, heads):
    sent = sizes[stage - 1] if kind == "layer-wise" else sum(sizes[:stage])
    return 2 * 4 * sent


# %% layerwise/traffic: all_present
def traffic(kind, stage, sizes, heads):
    return 2 * 4 * (sum(sizes[:stage]) + heads)


# %% layerwise/traffic: new_only
def traffic(kind, stage, sizes, heads):
    return 2 * 4 * (sizes[stage - 1] + heads)


# %% layerwise/peak
def peak(kind, kept):
    return max(kept) if kind == "layer-wise" else sum(kept)


# %% layerwise/peak: first_stage
def peak(kind, kept):
    return kept[0] if kind == "layer-wise" else sum(kept)


# %% layerwise/peak: last_stage
def peak(kind, kept):
    return kept[-1] if kind == "layer-wise" else sum(kept)


# %% layerwise/peak: all_units
def peak(kind, kept):
    return sum(kept)


# %% layerwise/peak: mean
def peak(kind, kept):
    return sum(kept) / len(kept) if kind == "layer-wise" else sum(kept)


# %% layerwise/peak: largest
def peak(kind, kept):
    return sum(kept) if kind == "end-to-end" else max(kept)
