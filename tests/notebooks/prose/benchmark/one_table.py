from scipy.stats import t


def numbers():
    comparisons, degrees_of_freedom = 14, 4
    factor = t.ppf(1 - 0.05 / 2 / comparisons, degrees_of_freedom) / t.ppf(1 - 0.05 / 2, degrees_of_freedom)
    return {"is 2.2: more than twice as wide": factor}
