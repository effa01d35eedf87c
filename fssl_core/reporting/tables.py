"""Tables for readers: our numbers beside the paper's, and any table shown plainly."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fssl_core.settings import check_choice

NOT_RUN = "not run"


@dataclass(frozen=True)
class Quantity:
    """One number of ours and the paper's value of it.

    Args:
        name: what it is, with its setting, e.g. ``"linear probe, cut 11, MonAcoSFL"``.
        ours: a value, one per seed, or None when not run. NaNs count as not run.
        paper: the paper's value in the same unit as ours, or None when the paper states none.
        unit: ``"%"`` for fractions, which are shown as percent; any other unit is written as it is.
        protocol: how ours was measured.
        digits: digits after the point.
    """

    name: str
    ours: float | Sequence[float] | None
    paper: float | None = None
    unit: str = ""
    protocol: str = ""
    digits: int = 1


def beside_paper(quantities: Iterable[Quantity], *, profile: str) -> pd.DataFrame:
    """Our values beside the paper's.

    Returns:
        One row per quantity, all text, with the columns quantity, ours (mean ± sample standard deviation over seeds,
        with their number), paper, difference (ours - paper; percent differ by points), protocol, profile.
    """
    rows = []
    for quantity in quantities:
        values = np.atleast_1d(np.array([] if quantity.ours is None else quantity.ours, dtype=float))
        values = values[~np.isnan(values)]
        if len(values) == 0:
            ours = NOT_RUN
        elif len(values) == 1:
            ours = _number(values[0], quantity) + _unit(quantity)
        else:
            spread = _number(values.std(ddof=1), quantity)
            ours = f"{_number(values.mean(), quantity)} ± {spread}{_unit(quantity)} (n={len(values)})"
        paper, difference = "not stated", ""
        if quantity.paper is not None:
            paper = _number(quantity.paper, quantity) + _unit(quantity)
            if len(values):
                unit = " points" if quantity.unit == "%" else _unit(quantity)
                difference = _number(values.mean() - quantity.paper, quantity, "+") + unit
        rows.append([quantity.name, ours, paper, difference, quantity.protocol, profile])
    return pd.DataFrame(rows, columns=["quantity", "ours", "paper", "difference", "protocol", "profile"])


def _number(value: float, quantity: Quantity, sign: str = "") -> str:
    return format(100 * value if quantity.unit == "%" else value, f"{sign},.{quantity.digits}f")


def _unit(quantity: Quantity) -> str:
    return f" {quantity.unit}" if quantity.unit else ""


class Table:
    """A data frame as a notebook shows it: no index, whole texts, wrapped in the browser."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self.frame = frame

    def __repr__(self) -> str:
        return self.frame.to_string(index=False, max_colwidth=60)

    def _repr_html_(self) -> str:
        with pd.option_context("display.max_colwidth", None):  # pandas cuts texts at 50 characters otherwise
            html = self.frame.to_html(index=False, border=0, justify="left", na_rep="")
        return html.replace("<td>", '<td style="text-align: left; white-space: normal; max-width: 26em">')


def show(frame: pd.DataFrame, columns: Sequence[str] | None = None) -> Table:
    """Show a table, or some of its columns, without the index and with long texts wrapped.

    Raises:
        SettingError: if a column does not exist.
    """
    for column in columns or ():
        check_choice("column", column, list(frame.columns))
    return Table(frame if columns is None else frame[list(columns)])
