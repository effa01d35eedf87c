"""Estimates with intervals from the runs behind a table or a figure.

The rows of a table fall into *cells*: the runs that differ in their seed alone. A claim speaks of *contrasts*, sums
of cell means with weights, such as L-DAWA less FedAvg. How sure we are of one depends on what varies between seeds:

- Five seeds or more in every cell of a contrast, the same ones: the contrast is computed for each seed, and its
  interval is that of Student's t over these values. Nothing is assumed of other cells.
- Fewer seeds: a value is the cell's mean, plus what its seed adds to all cells, plus noise whose variance is the same
  in all cells of a *stratum*; it is estimated from the residuals of all of these together, with their degrees of
  freedom (a two-way analysis of variance). A contrast whose weights do not sum to zero (one accuracy, say) keeps what
  seeds add, the same in all its cells: its variance is a sum of the mean squares of seeds and of noise, with
  Satterthwaite's degrees of freedom. Strata are tasks, which are data, their division and an objective: Barlow Twins
  varies ten times as much as SimCLR, and one per cent of the labels more than all of them. A contrast over several
  strata has the sum of their variances, and Welch and Satterthwaite's degrees of freedom; where they are evaluations of
  the same runs it has the sum of their errors instead, as if these went up and down together.
- One seed in a cell of the contrast: no interval, and so no decision, whatever the noise of other cells.
- Of a measure that moves in steps, such as rounds, no error is below that of rounding to a step: three seeds that
  agree do not show a difference to be that and no other.

Values that come from one run, such as the rounds of a curve or the data sets and shares of labels on which one model
is evaluated, are no repetitions: reduce them to one number a run first (:meth:`Cells.averaged`).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from fssl_core.errors import FsslError

LEVEL = 0.95  # of every interval that is shown
OWN_SEEDS = 5  # from so many on, a contrast is judged by its own values alone


class NotRun(FsslError):
    """The results lack cells of which a claim speaks; the message says which."""


@dataclass(frozen=True)
class Estimate:
    """A number with its standard error.

    Args:
        value: in the unit of the cells.
        error: standard error; 0 of what is exact, nan where nothing repeats.
        freedom: degrees of freedom of the error.
        seeds: the fewest behind one of the means; 0 of what is exact.
    """

    value: float
    error: float = 0.0
    freedom: float = np.inf
    seeds: int = 0

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """The two-sided confidence interval; nan where there is none."""
        if self.error == 0:
            return self.value, self.value
        from scipy.special import stdtrit  # half a second, which a notebook without claims need not wait

        half = float(stdtrit(self.freedom, (1 + level) / 2)) * self.error
        return self.value - half, self.value + half

    def level_above_zero(self) -> float:
        """The highest level of an interval that lies above zero; 0 where none does. There has to be an interval."""
        if self.error == 0:
            return float(self.value > 0)
        from scipy.special import stdtr

        return max(0.0, 2 * float(stdtr(self.freedom, self.value / self.error)) - 1)


class _Stratum:
    """The values of cells that vary alike between seeds, and the two variances."""

    def __init__(self, cell: np.ndarray, seed: np.ndarray, value: np.ndarray) -> None:
        """``[N]`` each, one for each cell and seed, which are numbered from 0."""
        self.cell, self.seed, self.value = cell, seed, value
        self.means, self.sizes = _means(cell, value), np.bincount(cell)

    @cached_property
    def _within(self) -> tuple[float, int]:
        """Variance between the seeds of a cell, over all cells, and its degrees of freedom."""
        residuals = self.value - self.means[self.cell]
        freedom = len(self.value) - len(self.sizes)
        return (float((residuals**2).sum() / freedom) if freedom else np.nan), freedom

    @cached_property
    def _two_way(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, float, int]:
        """Coefficients of cells and seeds, the inverse of X'X, the projection on its rows, variance and freedom."""
        rows, cells = np.arange(len(self.value)), len(self.sizes)
        design = np.zeros((len(rows), cells + self.seed.max() + 1))
        design[rows, self.cell] = 1
        design[rows, cells + self.seed] = 1
        inverse = np.linalg.pinv(design.T @ design)
        coefficients = inverse @ design.T @ self.value
        residuals = self.value - design @ coefficients
        freedom = len(rows) - int(np.linalg.matrix_rank(design))
        variance = float(residuals @ residuals / freedom) if freedom else np.nan
        return coefficients, inverse, inverse @ (design.T @ design), variance, freedom

    def estimate(self, weights: np.ndarray) -> Estimate:
        """The contrast of the cells with these weights, one a cell."""
        if abs(weights.sum()) < 1e-9:
            coefficients, inverse, projection, variance, freedom = self._two_way
            full = np.concatenate([weights, np.zeros(len(coefficients) - len(weights))])
            if np.allclose(projection @ full, full, atol=1e-8):  # else its cells share no seed, and are not paired
                found = np.array([full @ coefficients, np.sqrt(variance * (full @ inverse @ full))])
                rounding = 1e-12 * np.abs(self.value).max()  # of least squares: runs that agree do so exactly
                return Estimate(*np.where(np.abs(found) < rounding, 0.0, found).tolist(), freedom)
        return self._with_what_seeds_add(weights)

    def _with_what_seeds_add(self, weights: np.ndarray) -> Estimate:
        """A sum of cells whose weights do not cancel what their seeds add.

        With S seeds in each of C cells and weights of sum W and sum of squares Q, its variance is
        (W² seeds / C + (Q − W² / C) noise) / S, where seeds and noise are the mean squares of the two-way analysis.
        """
        value, (within, freedom), (*_, noise, of_noise) = float(weights @ self.means), self._within, self._two_way
        per_value = (weights / self.sizes)[self.cell]
        own = float((per_value**2).sum())
        common = float((np.bincount(self.seed, per_value) ** 2).sum())
        if not of_noise:  # a single cell, or cells without a seed in common: the two cannot be told apart
            return Estimate(value, float(np.sqrt(max(own, common) * within)), freedom)
        of_seeds = freedom - of_noise
        seeds = max(within * freedom - noise * of_noise, 0.0) / of_seeds  # rounding may leave less than nothing
        common *= of_seeds / freedom
        parts = np.array([common * seeds, max(own - common, 0.0) * noise])
        variance, freedom = _welch_satterthwaite(parts, np.array([of_seeds, of_noise]))
        return Estimate(value, float(np.sqrt(variance)), freedom)


def _welch_satterthwaite(variances: np.ndarray, freedoms: np.ndarray) -> tuple[float, float]:
    """The sum of independent variances, and its degrees of freedom."""
    total = float(variances.sum())
    freedom = 1 / ((variances / total) ** 2 / freedoms).sum() if total > 0 else freedoms.min()
    return total, float(freedom)


class _Design:
    """The values of all cells with their seeds, stratum by stratum."""

    def __init__(self, values: Mapping[str, np.ndarray], step: float = 0.0) -> None:
        """``values``: cell, stratum, runs, seed, value; ``[N]`` each, one for each cell and seed. Without seed: exact.

        All but the values are numbered from 0; each cell lies in one stratum, and strata of the same ``runs`` are
        evaluations of these.
        """
        self.values, self.step, self.exact = values, step, "seed" not in values
        self.means, self.sizes = _means(values["cell"], values["value"]), np.bincount(values["cell"])

    @cached_property
    def _strata(self) -> list[tuple[int, np.ndarray, _Stratum]]:
        """Of each stratum its runs, its cells, ascending, and itself, where they are numbered from 0."""
        cell, runs, stratum, seed, value = (self.values[of] for of in ("cell", "runs", "stratum", "seed", "value"))
        strata = []
        for of_runs, number in sorted({*zip(runs.tolist(), stratum.tolist(), strict=True)}):
            rows = (runs == of_runs) & (stratum == number)
            (cells, own), (_, seeds) = (np.unique(column[rows], return_inverse=True) for column in (cell, seed))
            strata.append((of_runs, cells, _Stratum(own, seeds, value[rows])))
        return strata

    def estimate(self, weights: np.ndarray) -> Estimate:
        """The contrast of the cells with these weights, one a cell."""
        used = np.flatnonzero(weights)
        if self.exact:
            return Estimate(float(weights @ self.means))
        seeds = int(self.sizes[used].min(initial=len(self.values["value"])))
        if seeds < 2:
            return Estimate(float(weights @ self.means), np.nan, np.nan, seeds)
        rounding = self.step / np.sqrt(12) * np.sqrt((weights[used] ** 2 / self.sizes[used]).sum())
        if (per_seed := self._per_seed(weights, used)) is not None and len(per_seed) >= OWN_SEEDS:
            error = max(per_seed.std(ddof=1) / np.sqrt(len(per_seed)), rounding)
            return Estimate(float(per_seed.mean()), float(error), len(per_seed) - 1, seeds)
        parts: dict[int, list[Estimate]] = {}
        for runs, cells, stratum in self._strata:
            if weights[cells].any():
                parts.setdefault(runs, []).append(stratum.estimate(weights[cells]))
        value = sum(part.value for of_runs in parts.values() for part in of_runs)
        variances = np.array([sum(part.error for part in of_runs) ** 2 for of_runs in parts.values()])
        freedoms = np.array([min(part.freedom for part in of_runs) for of_runs in parts.values()], dtype=float)
        total, freedom = _welch_satterthwaite(variances, freedoms)
        return Estimate(value, float(max(np.sqrt(total), rounding)), freedom, seeds)

    @cached_property
    def _by_seed(self) -> np.ndarray:
        """``[seeds, cells]``, nan where a cell lacks a seed."""
        seed = self.values["seed"]
        table = np.full((seed.max() + 1, len(self.sizes)), np.nan)
        table[seed, self.values["cell"]] = self.values["value"]
        return table

    def _per_seed(self, weights: np.ndarray, used: np.ndarray) -> np.ndarray | None:
        """The contrast seed by seed; None where a cell has other seeds than another."""
        table = self._by_seed[:, used]
        table = table[~np.isnan(table).all(axis=1)]
        return None if np.isnan(table).any() else table @ weights[used]


class Quantity:
    """A contrast of cells: a mean over some of them, and sums, differences and multiples of those."""

    def __init__(self, cells: "Cells", weights: np.ndarray) -> None:
        self.cells, self.weights = cells, weights

    def __sub__(self, other: "Quantity") -> "Quantity":
        return Quantity(self.cells, self.weights - other.weights)

    def __add__(self, other: "Quantity") -> "Quantity":
        return Quantity(self.cells, self.weights + other.weights)

    def __mul__(self, factor: float) -> "Quantity":
        return Quantity(self.cells, self.weights * factor)

    __rmul__ = __mul__

    @cached_property
    def estimate(self) -> Estimate:
        return self.cells.design.estimate(self.weights)

    @cached_property
    def _learning(self) -> tuple[str, float]:
        return self.cells.learning(np.flatnonzero(self.weights))

    @property
    def doubt(self) -> str:
        """Why the models behind it cannot decide a claim; empty where they can."""
        return self._learning[0]

    @property
    def learned(self) -> float:
        """The highest level at which they can."""
        return self._learning[1]


@dataclass(eq=False, repr=False)
class Cells:
    """The runs behind a table, or its printed cells, as claims see them.

    Args:
        frame: a row a run, or a printed cell.
        value: the column that is compared.
        by: columns that tell cells apart; those that the frame lacks are left out.
        unit: of the value, for readers: ``"points"``, ``"bytes"``.
        label: what all values have in common, for readers: ``"linear probe"``.
        exact: nothing varies between seeds: printed cells, counts, closed forms.
        step: between two values that a run can have, such as a round; 0 where any is possible.
        accuracy: column with the models' accuracy (a fraction), which stands beside the columns ``untrained`` and
            ``chance`` (fractions): cells whose models are not shown to have learned decide nothing.
            None: no model is trained.
        failing: methods of which the claim says that they fail, so that they need not have learned.
        strata: columns of ``by`` whose levels vary unequally between seeds.
        evaluations: such columns whose levels the same runs have.
    """

    frame: pd.DataFrame
    value: str
    by: Sequence[str]
    _: KW_ONLY
    unit: str = "points"
    label: str = ""
    exact: bool = False
    step: float = 0.0
    accuracy: str | None = None
    failing: Sequence[str] = ()
    strata: Sequence[str] = ()
    evaluations: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.value not in self.frame or self.frame[self.value].isna().all():
            raise NotRun(f"no {self.value} is recorded")
        self.by = [name for name in self.by if name in self.frame]
        self.frame = frame = self.frame.dropna(subset=self.value)
        repeats = [] if self.exact or "seed" not in frame else ["seed"]
        run = _numbers(frame, [*self.by, *repeats])  # evaluated more than once, at what tells no cells apart
        rows = _firsts(frame, run)
        place = {"cell": _numbers(rows, self.by)}
        index = _firsts(rows, place["cell"])
        # By column, a number for the level of each cell, and the levels; what is missing is a level, too.
        self._levels = {name: pd.factorize(index[name], use_na_sentinel=False) for name in self.by}
        self.cells = np.arange(len(index))
        place |= {"runs": _numbers(rows, self.strata), "stratum": _numbers(rows, self.evaluations)}
        if not self.exact:  # without seeds nothing says which rows belong together
            place["seed"] = pd.factorize(rows["seed"], sort=True)[0] if repeats else np.arange(len(rows))
        self.design = _Design(place | {"value": _means(run, frame[self.value].to_numpy(float))}, self.step)
        if self.accuracy is not None:
            measured = frame.reindex(columns=[self.accuracy, "untrained", "chance"]).to_numpy(float)
            above = _means(run, 100 * (measured[:, 0] - measured[:, 1:].max(axis=1)))
            place = {name: numbers[~np.isnan(above)] for name, numbers in place.items()}
            place["cell"], self._with_baseline = pd.factorize(place["cell"])
            self._points_above = _Design(place | {"value": above[~np.isnan(above)]})
            self._names = [*index["method"].astype(str)] if "method" in self.by else ["the model"] * len(index)

    @property
    def index(self) -> pd.DataFrame:
        """The columns ``by``, a row a cell."""
        return pd.DataFrame({name: levels.take(codes[self.cells]) for name, (codes, levels) in self._levels.items()})

    def learning(self, cells: Iterable[int]) -> tuple[str, float]:
        """Why the models of these cells decide nothing, empty where they may; and the highest level at which they may.

        They may where they are above chance and above the untrained encoder by more than the interval.
        """
        surest = 1.0
        for cell in cells if self.accuracy is not None else ():
            if self._names[cell] in self.failing:
                continue
            if cell not in self._with_baseline:
                return "no untrained model is recorded beside these", 0.0
            gain = self._points_above.estimate(1.0 * (self._with_baseline == cell))
            low = gain.interval()[0]
            if np.isnan(low):
                return "one seed does not show whether the models learned", 0.0
            surest = min(surest, gain.level_above_zero())
            if low <= 0:
                return f"{self._names[cell]} is not shown to have learned", surest
        return "", surest

    def averaged(self, *columns: str) -> "Cells":
        """Means over these columns, run by run, of the levels that all remaining cells have.

        For what one run gives several times: the data sets on which its model is evaluated. A run that lacks one of
        them is left out: its mean would be of other levels than that of the runs beside it.

        Raises:
            NotRun: no level, or no run of any cell, has them all.
        """
        index = self.index
        frame = self.frame.merge(index)  # of a part only what is in it
        rest = [name for name in self.by if name not in columns]
        parts = index[list(columns)].groupby(_numbers(index, rest))
        common = set.intersection(*(set(part.itertuples(index=False, name=None)) for _, part in parts))
        if not common:
            raise NotRun(f"no {', '.join(columns)} that all of them have")
        levels = pd.Series([*frame[list(columns)].itertuples(index=False, name=None)], index=frame.index)
        frame, levels = frame[levels.isin(common)], levels[levels.isin(common)]
        runs = _numbers(frame, rest if self.exact else [*rest, "seed"])
        kept = frame[levels.groupby(runs).transform("nunique") == len(common)]
        if kept.empty:
            raise NotRun(f"no run with every {', '.join(columns)}")
        return replace(self, frame=kept, by=rest)

    def where(self, **levels: Any) -> "Cells":
        """The cells at these levels, one value or a list each, over the same variances.

        Raises:
            NotRun: there is none.
        """
        mask = np.full(len(self.cells), True)
        for name, level in levels.items():
            if name not in self._levels:
                raise NotRun(f"no {name} is recorded")
            codes, known = self._levels[name]
            mask &= known.isin(listed(level))[codes[self.cells]]
        if not mask.any():
            raise NotRun(f"needs {in_words(levels)}")
        return self._part(self.cells[mask])

    def _part(self, cells: np.ndarray) -> "Cells":
        """These cells alone, over the same variances."""
        part = copy(self)
        part.cells = cells
        return part

    def mean(self, **levels: Any) -> Quantity:
        """The mean of the cells at these levels, each with the same weight."""
        return self._mean(self.where(**levels).cells)

    def _mean(self, cells: Sequence[int]) -> Quantity:
        weights = np.zeros(len(self.design.sizes))
        weights[cells] = 1 / len(cells)
        return Quantity(self, weights)

    def difference(self, one: Mapping[str, Any], other: Mapping[str, Any]) -> Quantity:
        """The mean of the cells at these levels less that of those at others, where both sides were run alike.

        What one side alone was run at, another partition say, would be taken for a difference between them. A column in
        which the sides have nothing in common, as a cut that averaging does not have, is a part of what they are.

        Args:
            one, other: levels of the same columns, as :meth:`where` takes them.

        Raises:
            NotRun: a side is missing, or the sides have no cells alike.
        """
        first, second = (self.where(**levels).cells for levels in (one, other))
        codes = {name: self._levels[name][0] for name in self.by if name not in one}
        shared = {name: of for name, of in codes.items() if {*of[first]} & {*of[second]}}
        settings = [*zip(*shared.values(), strict=True)] or [()] * len(self.design.sizes)
        common = {settings[cell] for cell in first} & {settings[cell] for cell in second}
        if not common:
            raise NotRun(f"needs {in_words(one)} and {in_words(other)} at the same {', '.join(shared)}")
        first, second = ([cell for cell in side if settings[cell] in common] for side in (first, second))
        return self._mean(first) - self._mean(second)

    def levels(self, column: str) -> list:
        """What stands in a column, in ascending order where it can be sorted."""
        if column not in self._levels:
            return []
        codes, known = self._levels[column]
        levels = known.take(pd.unique(codes[self.cells])).dropna().tolist()
        return sorted(levels) if all(isinstance(level, int | float) for level in levels) else levels

    def each(self, *columns: str) -> list[tuple[str, "Cells"]]:
        """The cells by these columns (those there are), with the name of each part; all together without columns."""
        known = [(name, *self._levels[name]) for name in columns if name in self.by]
        words = [[level_in_words(name, level) for level in levels.tolist()] for name, _, levels in known]
        parts: dict[tuple[int, ...], list[int]] = {}
        for cell in self.cells:
            parts.setdefault(tuple(codes[cell] for _, codes, _ in known), []).append(cell)
        return [
            (", ".join(of[number] for of, number in zip(words, key, strict=True)), self._part(np.array(cells)))
            for key, cells in parts.items()
        ]


def _numbers(rows: pd.DataFrame, columns: Sequence[str]) -> np.ndarray:
    """Of each row the number of what it has in those of the columns that there are, from 0 in order of appearance."""
    numbers = np.zeros(len(rows), dtype=int)
    for name in columns:
        if name in rows:
            codes, levels = pd.factorize(rows[name], use_na_sentinel=False)
            numbers = pd.factorize(numbers * len(levels) + codes)[0]
    return numbers


def _firsts(rows: pd.DataFrame, numbers: np.ndarray) -> pd.DataFrame:
    """The first row of each number, from 0 on."""
    return rows.iloc[np.unique(numbers, return_index=True)[1]]


def _means(groups: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Of each group, numbered from 0, the mean of its values that are known; nan where none is."""
    known = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        return np.bincount(groups, np.where(known, values, 0)) / np.bincount(groups, known)


def rounded(value: float) -> float:
    """To nine digits: the same for numbers that differ in their last bits alone, which are the machine's."""
    return float(f"{value:.9g}")


def level_in_words(column: str, level: Any) -> str:
    """``"SimCLR"``, but ``"cut 3"``: a number needs its name."""
    if isinstance(level, str):
        return level
    number = f"{level:g}" if isinstance(level, int | float) else str(level)
    return f"{column.replace('_', ' ')} {number}"


def listed(levels: Any) -> Collection:
    """One level as a list of it; several as they are."""
    return levels if isinstance(levels, list | tuple | set) else [levels]


def in_words(levels: Mapping[str, Any]) -> str:
    """``"method L-DAWA, alpha 0.1 or 0.6"``."""
    return ", ".join(
        f"{name.replace('_', ' ')} {' or '.join(map(str, listed(level)))}" for name, level in levels.items()
    )
