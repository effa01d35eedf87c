# Answers to the exercises of 10_reading.ipynb: of each the right one, and wrong ones with the hint that they get.

# %% set-up
from statistics import mean, pstdev, stdev, variance

from scipy.stats import t


# %% reading/interval
def interval(values):
    half = t.ppf(0.975, len(values) - 1) * stdev(values) / len(values) ** 0.5
    return mean(values) - half, mean(values) + half


# %% reading/interval: normal
def interval(values):
    half = 1.96 * stdev(values) / len(values) ** 0.5
    return mean(values) - half, mean(values) + half


# %% reading/interval: no_t
def interval(values):
    half = stdev(values) / len(values) ** 0.5
    return mean(values) - half, mean(values) + half


# %% reading/interval: not_of_mean
def interval(values):
    half = t.ppf(0.975, len(values) - 1) * stdev(values)
    return mean(values) - half, mean(values) + half


# %% reading/interval: biased
def interval(values):
    half = t.ppf(0.975, len(values) - 1) * pstdev(values) / len(values) ** 0.5
    return mean(values) - half, mean(values) + half


# %% reading/interval: one_sided
def interval(values):
    half = t.ppf(0.95, len(values) - 1) * stdev(values) / len(values) ** 0.5
    return mean(values) - half, mean(values) + half


# %% reading/interval: freedom
def interval(values):
    half = t.ppf(0.975, len(values)) * stdev(values) / len(values) ** 0.5
    return mean(values) - half, mean(values) + half


# %% reading/interval: pair
def interval(values):
    return t.ppf(0.975, len(values) - 1) * stdev(values) / len(values) ** 0.5


# %% reading/paired
def paired(first, second):
    differences = [b - a for a, b in zip(first, second, strict=True)]
    return mean(differences), stdev(differences) / len(differences) ** 0.5


# %% reading/paired: unpaired
def paired(first, second):
    error = ((variance(first) + variance(second)) / len(first)) ** 0.5
    return mean(second) - mean(first), error


# %% reading/paired: sign
def paired(first, second):
    differences = [a - b for a, b in zip(first, second, strict=True)]
    return mean(differences), stdev(differences) / len(differences) ** 0.5


# %% reading/paired: not_of_mean
def paired(first, second):
    differences = [b - a for a, b in zip(first, second, strict=True)]
    return mean(differences), stdev(differences)


# %% reading/paired: biased
def paired(first, second):
    differences = [b - a for a, b in zip(first, second, strict=True)]
    return mean(differences), pstdev(differences) / len(differences) ** 0.5


# %% reading/paired: pair
def paired(first, second):
    return mean(second) - mean(first)


# %% reading/scratch
guess = 40


# %% reading/scratch: too_low
guess = 10


# %% reading/scratch: too_high
guess = 80


# %% reading/scratch: unit
guess = 0.4


# %% reading/learned
def learned(accuracies, untrained, chance):
    above = [ours - max(base, chance) for ours, base in zip(accuracies, untrained, strict=True)]
    half = t.ppf(0.975, len(above) - 1) * stdev(above) / len(above) ** 0.5
    return bool(mean(above) - half > 0)


# %% reading/learned: chance_only
def learned(accuracies, untrained, chance):
    above = [ours - chance for ours in accuracies]
    half = t.ppf(0.975, len(above) - 1) * stdev(above) / len(above) ** 0.5
    return bool(mean(above) - half > 0)


# %% reading/learned: untrained_only
def learned(accuracies, untrained, chance):
    above = [ours - base for ours, base in zip(accuracies, untrained, strict=True)]
    half = t.ppf(0.975, len(above) - 1) * stdev(above) / len(above) ** 0.5
    return bool(mean(above) - half > 0)


# %% reading/learned: mean_only
def learned(accuracies, untrained, chance):
    return mean(accuracies) > max(mean(untrained), chance)


# %% reading/learned: not_paired
def learned(accuracies, untrained, chance):
    half = t.ppf(0.975, len(accuracies) - 1) * stdev(accuracies) / len(accuracies) ** 0.5
    return bool(mean(accuracies) - half > max(mean(untrained), chance))


# %% reading/learned: too_strict
def learned(accuracies, untrained, chance):
    above = [ours - max(base, chance) for ours, base in zip(accuracies, untrained, strict=True)]
    return 3 < mean(above) < 10 and stdev(above) < 2


# %% reading/learned: interval
def learned(accuracies, untrained, chance):
    above = [ours - max(base, chance) for ours, base in zip(accuracies, untrained, strict=True)]
    return mean(above) - 1.96 * stdev(above) / len(above) ** 0.5 > 0


# %% reading/learned: interval
def learned(accuracies, untrained, chance):
    above = [ours - max(base, chance) for ours, base in zip(accuracies, untrained, strict=True)]
    return mean(above) - stdev(above) > 0


# %% reading/learned: no_root
def learned(accuracies, untrained, chance):
    above = [ours - max(base, chance) for ours, base in zip(accuracies, untrained, strict=True)]
    return bool(mean(above) - t.ppf(0.975, len(above) - 1) * stdev(above) > 0)


# %% reading/learned: truth
def learned(accuracies, untrained, chance):
    return mean(accuracies) - max(mean(untrained), chance)


# %% reading/verdict
def verdict(low, high, learned):
    if not learned or low <= 0 <= high:
        return "inconclusive"
    return "reproduced" if low > 0 else "contradicted"


# %% reading/verdict: point
def verdict(low, high, learned):
    if not learned:
        return "inconclusive"
    return "reproduced" if low + high > 0 else "contradicted"


# %% reading/verdict: absence
def verdict(low, high, learned):
    if not learned:
        return "inconclusive"
    return "reproduced" if low > 0 else "contradicted"


# %% reading/verdict: gate
def verdict(low, high, learned):
    if low <= 0 <= high:
        return "inconclusive"
    return "reproduced" if low > 0 else "contradicted"


# %% reading/verdict: turned
def verdict(low, high, learned):
    if not learned or low <= 0 <= high:
        return "inconclusive"
    return "contradicted" if low > 0 else "reproduced"


# %% reading/verdict: words
def verdict(low, high, learned):
    return learned and low > 0


# %% reading/equivalent
def same(low, high, margin):
    if -margin <= low and high <= margin:
        return True
    return False if high < -margin or low > margin else "open"


# %% reading/equivalent: not_significant
def same(low, high, margin):
    return low < 0 < high


# %% reading/equivalent: point
def same(low, high, margin):
    return abs(low + high) / 2 <= margin


# %% reading/equivalent: difference
def same(low, high, margin):
    if not low < 0 < high:
        return False
    return True if -margin <= low and high <= margin else "open"


# %% reading/equivalent: one_end
def same(low, high, margin):
    return high <= margin


# %% reading/equivalent: open
def same(low, high, margin):
    return -margin <= low and high <= margin


# %% reading/equivalent: truth
def same(low, high, margin):
    return "the same" if -margin <= low and high <= margin else "open"


# %% reading/speaks
def speaks(paper_consistent, ours):
    if ours == "not run":
        return "nobody" if paper_consistent is None else "the paper alone"
    return "our runs alone" if paper_consistent is None else "both"


# %% reading/speaks: itself
def speaks(paper_consistent, ours):
    if paper_consistent:
        return "both"
    if ours == "not run":
        return "nobody" if paper_consistent is None else "the paper alone"
    return "our runs alone" if paper_consistent is None else "both"


# %% reading/speaks: inconclusive
def speaks(paper_consistent, ours):
    if ours in ("not run", "inconclusive"):
        return "nobody" if paper_consistent is None else "the paper alone"
    return "our runs alone" if paper_consistent is None else "both"


# %% reading/speaks: inconsistent
def speaks(paper_consistent, ours):
    if ours == "not run":
        return "the paper alone" if paper_consistent else "nobody"
    return "both" if paper_consistent else "our runs alone"


# %% reading/speaks: silent
def speaks(paper_consistent, ours):
    if ours == "not run":
        return "nobody" if paper_consistent is None else "the paper alone"
    return "both"


# %% reading/speaks: nobody
def speaks(paper_consistent, ours):
    if ours == "not run":
        return "the paper alone"
    return "our runs alone" if paper_consistent is None else "both"


# %% reading/speaks: words
def speaks(paper_consistent, ours):
    return "the paper" if paper_consistent else "nobody"
