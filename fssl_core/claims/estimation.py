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


class _Stratum:
    """The values of cells that vary alike between seeds, and the two variances."""

    def __init__(self, values: pd.DataFrame) -> None:
        """``values``: columns cell (from 0), seed, value; one row for each cell and seed."""
        self.cells = values["cell"].nunique()
        self.by_cell = values.groupby("cell")["value"]
        self.means = self.by_cell.mean().to_numpy()
        self.sizes = self.by_cell.size().to_numpy()
        self.values = values

    @cached_property
    def _within(self) -> tuple[float, int]:
        """Variance between the seeds of a cell, over all cells, and its degrees of freedom."""
        residuals = self.values["value"] - self.by_cell.transform("mean")
        freedom = len(self.values) - self.cells
        return (float((residuals**2).sum() / freedom) if freedom else np.nan), freedom

    @cached_property
    def _two_way(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, float, int]:
        """Coefficients of cells and seeds, the inverse of X'X, the projection on its rows, variance and freedom."""
        blocks, names = pd.factorize(self.values["seed"])
        rows = np.arange(len(self.values))
        design = np.zeros((len(rows), self.cells + len(names)))
        design[rows, self.values["cell"]] = 1
        design[rows, self.cells + blocks] = 1
        inverse = np.linalg.pinv(design.T @ design)
        coefficients = inverse @ design.T @ self.values["value"].to_numpy()
        residuals = self.values["value"].to_numpy() - design @ coefficients
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
                rounding = 1e-12 * self.values["value"].abs().max()  # of least squares: runs that agree do so exactly
                return Estimate(*np.where(np.abs(found) < rounding, 0.0, found).tolist(), freedom)
        return self._with_what_seeds_add(weights)

    def _with_what_seeds_add(self, weights: np.ndarray) -> Estimate:
        """A sum of cells whose weights do not cancel what their seeds add.

        With S seeds in each of C cells and weights of sum W and sum of squares Q, its variance is
        (W² seeds / C + (Q − W² / C) noise) / S, where seeds and noise are the mean squares of the two-way analysis.
        """
        value, (within, freedom), (*_, noise, of_noise) = float(weights @ self.means), self._within, self._two_way
        per_value = (weights / self.sizes)[self.values["cell"]]
        own = float((per_value**2).sum())
        common = float((self.values.assign(weight=per_value).groupby("seed")["weight"].sum() ** 2).sum())
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

    def __init__(self, values: pd.DataFrame, step: float = 0.0) -> None:
        """``values``: columns cell, stratum, runs, seed, value; a row for each cell and seed. Without seed: exact.

        Cells are numbered from 0; each lies in one stratum, and strata of the same ``runs`` are evaluations of these.
        """
        self.exact, self.step = "seed" not in values, step
        self.cells = values["cell"].nunique()
        by_cell = values.groupby("cell")
        self.means, self.sizes = by_cell["value"].mean().to_numpy(), by_cell.size().to_numpy()
        self.values = values

    @cached_property
    def _strata(self) -> list[tuple[int, np.ndarray, _Stratum]]:
        """Of each stratum its runs, its cells, ascending, and itself, where they are numbered from 0."""
        strata = []
        for (runs, _), rows in self.values.groupby(["runs", "stratum"]):
            cells = np.unique(rows["cell"])
            strata.append((runs, cells, _Stratum(rows.assign(cell=np.searchsorted(cells, rows["cell"])))))
        return strata

    def estimate(self, weights: np.ndarray) -> Estimate:
        """The contrast of the cells with these weights, one a cell."""
        used = np.flatnonzero(weights)
        if self.exact:
            return Estimate(float(weights @ self.means))
        seeds = int(self.sizes[used].min(initial=len(self.values)))
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
        return self.values.pivot(index="seed", columns="cell", values="value").to_numpy()

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
    def doubt(self) -> str:
        """Why the models behind it cannot decide a claim; empty where they can."""
        return self.cells.doubt(np.flatnonzero(self.weights))


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

    Attributes:
        index: the columns ``by``, a row a cell.
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
        measured = [self.value]
        if self.accuracy is not None:
            accuracies = frame.reindex(columns=[self.accuracy, "untrained", "chance"]).astype(float)
            beaten = accuracies[["untrained", "chance"]].max(axis=1, skipna=False)
            frame = frame.assign(_above=100 * (accuracies[self.accuracy] - beaten))
            measured += ["_above"]
        rows = frame.groupby([*self.by, *repeats], dropna=False, sort=False)[measured].mean().reset_index()
        place = pd.DataFrame({"cell": _numbers(rows, self.by)})
        self.index = rows.loc[~place["cell"].duplicated(), self.by].reset_index(drop=True)
        # By column, a number for the level of each cell; what is missing is a level, too.
        self._levels = {name: pd.factorize(self.index[name], use_na_sentinel=False)[0] for name in self.by}
        place = place.assign(runs=_numbers(rows, self.strata), stratum=_numbers(rows, self.evaluations))
        if not self.exact:  # without seeds nothing says which rows belong together
            place["seed"] = rows["seed"] if repeats else range(len(rows))
        self.design = _Design(place.assign(value=rows[self.value]), self.step)
        if self.accuracy is not None:
            above = place.assign(value=rows["_above"]).dropna(subset="value")
            number, self._with_baseline = pd.factorize(above["cell"])
            self._points_above = _Design(above.assign(cell=number))
            of_cell = self.index["method"].astype(str) if "method" in self.by else ["the model"] * len(self.index)
            self._names = list(of_cell)

    def doubt(self, cells: Iterable[int]) -> str:
        """Why the models of these cells decide nothing; empty where they may.

        They may where they are above chance and above the untrained encoder by more than the interval.
        """
        if self.accuracy is None:
            return ""
        for cell in cells:
            if self._names[cell] in self.failing:
                continue
            if cell not in self._with_baseline:
                return "no untrained model is recorded beside these"
            low = self._points_above.estimate(1.0 * (self._with_baseline == cell)).interval()[0]
            if np.isnan(low):
                return "one seed does not show whether the models learned"
            if low <= 0:
                return f"{self._names[cell]} is not shown to have learned"
        return ""

    def averaged(self, *columns: str) -> "Cells":
        """Means over these columns, run by run, of the levels that all remaining cells have.

        For what one run gives several times: the data sets on which its model is evaluated. A run that lacks one of
        them is left out: its mean would be of other levels than that of the runs beside it.

        Raises:
            NotRun: no level, or no run of any cell, has them all.
        """
        frame = self.frame.merge(self.index)  # of a part only what is in it
        rest = [name for name in self.by if name not in columns]
        parts = self.index[list(columns)].groupby(_numbers(self.index, rest))
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
        mask = pd.Series(True, index=self.index.index)
        for name, level in levels.items():
            if name not in self.index:
                raise NotRun(f"no {name} is recorded")
            mask &= self.index[name].isin(listed(level))
        if not mask.any():
            raise NotRun(f"needs {in_words(levels)}")
        return self._part(self.index[mask])

    def _part(self, index: pd.DataFrame) -> "Cells":
        """These cells alone, over the same variances."""
        part = copy(self)
        part.index = index
        return part

    def mean(self, **levels: Any) -> Quantity:
        """The mean of the cells at these levels, each with the same weight."""
        return self._mean(self.where(**levels).index.index)

    def _mean(self, cells: Sequence[int]) -> Quantity:
        weights = np.zeros(self.design.cells)
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
        first, second = (self.where(**levels).index.index for levels in (one, other))
        others = [name for name in self.by if name not in one]
        shared = [name for name in others if {*self._levels[name][first]} & {*self._levels[name][second]}]
        settings = [*zip(*(self._levels[name] for name in shared), strict=True)] or [()] * self.design.cells
        common = {settings[cell] for cell in first} & {settings[cell] for cell in second}
        if not common:
            raise NotRun(f"needs {in_words(one)} and {in_words(other)} at the same {', '.join(shared)}")
        first, second = ([cell for cell in side if settings[cell] in common] for side in (first, second))
        return self._mean(first) - self._mean(second)

    def levels(self, column: str) -> list:
        """What stands in a column, in ascending order where it can be sorted."""
        levels = self.index[column].dropna().unique().tolist() if column in self.index else []
        return sorted(levels) if all(isinstance(level, int | float) for level in levels) else levels

    def each(self, *columns: str) -> list[tuple[str, "Cells"]]:
        """The cells by these columns (those there are), with the name of each part; all together without columns."""
        columns = [name for name in columns if name in self.by]
        if not columns:
            return [("", self)]
        parts = []
        for key, part in self.index.groupby(columns, dropna=False, sort=False):
            name = ", ".join(level_in_words(column, level) for column, level in zip(columns, key, strict=True))
            parts.append((name, self._part(part)))
        return parts


def _numbers(rows: pd.DataFrame, columns: Sequence[str]) -> np.ndarray:
    """Of each row the number of what it has in those of the columns that there are, from 0 in order of appearance."""
    known = [name for name in columns if name in rows]
    if not known:
        return np.zeros(len(rows), dtype=int)
    return rows.groupby(known, dropna=False, sort=False).ngroup().to_numpy()


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
