"""What a claim can say of cells, as a handful of comparators, and how answers are joined.

A :class:`Statement` is one quantity and the region in which the claim wants it: a difference above zero, a ratio from
200 to 400. The answer is True where the whole interval lies inside, False where the whole interval lies outside, and
None, undecided, else. Most claims join several: "in every column", "at least one of four variants".

Joined answers keep the error of the whole at that of one interval. That *all* of k statements hold is concluded where
each does at the usual level (an intersection-union test), that it is not so where one fails at the level for k of
them (Bonferroni); of *any* the other way round; a number in between takes the stricter level both ways. What was not
run cannot fail by chance, so that it is none of the k. At the same level it has to be shown that the models have
learned: of many that have not, one may seem to.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from math import inf, isnan, nan
from typing import Any

from fssl_core.claims.estimation import LEVEL, Cells, Estimate, NotRun, Quantity, level_in_words, listed, rounded

Answer = bool | None


@dataclass(frozen=True)
class Statement:
    """A quantity, and where the claim wants it.

    Args:
        name: of the quantity: ``"L-DAWA − FedAvg, SimCLR"``.
        estimate: of it.
        low, high: the region. A bound of it belongs to it unless ``strict``.
        unit: of the quantity.
        strict: whether the bounds are outside.
        doubt: why it decides nothing whatever its interval; empty where it may.
        label: what all values behind it have in common, such as a protocol.
        learned: the highest level at which the models behind it are shown to have learned; it decides nothing above.
    """

    name: str
    estimate: Estimate
    low: float = -inf
    high: float = inf
    unit: str = ""
    strict: bool = False
    doubt: str = ""
    label: str = ""
    learned: float = 1.0

    def answer(self, level: float = LEVEL) -> Answer:
        if self.doubt or level > self.learned:
            return None
        low, high = self.estimate.interval(level)
        if isnan(low):
            return None
        if self.strict:
            inside, outside = self.low < low and high < self.high, high <= self.low or low >= self.high
        else:
            inside, outside = self.low <= low and high <= self.high, high < self.low or low > self.high
        return True if inside else False if outside else None

    def slack(self) -> float:
        """How far inside the region the estimate lies, in standard errors where it has one; negative outside."""
        room = min(self.estimate.value - self.low, self.high - self.estimate.value)
        return room / self.estimate.error if self.estimate.error > 0 else room

    def leaves(self) -> list["Statement"]:
        return [self]

    def deciding(self, level: float = LEVEL) -> "tuple[Statement, float]":
        return self, level


@dataclass(frozen=True)
class Joined:
    """Statements that hold together where ``needed`` of them do, and do not where ``failing`` of them do not."""

    parts: tuple["Statement | Joined", ...]
    needed: int
    failing: int

    def answer(self, level: float = LEVEL) -> Answer:
        levels = self._levels(level)
        if sum(part.answer(levels[True]) is True for part in self.parts) >= self.needed:
            return True
        failed = sum(part.answer(levels[False]) is False for part in self.parts)
        return False if failed >= self.failing else None

    def _levels(self, level: float) -> dict[Answer, float]:
        """At which each part has to answer, for the whole to answer so at this level."""
        run = sum(any(not isnan(leaf.estimate.value) for leaf in part.leaves()) for part in self.parts)
        each = 1 - (1 - level) / max(run, 1)
        to_hold = level if self.needed == len(self.parts) else each
        to_fail = level if self.failing == len(self.parts) else each
        return {True: to_hold, False: to_fail, None: level}

    def slack(self) -> float:
        """Of the last part that has to hold, of those that are known; nan where these alone can decide nothing."""
        known = sorted((slack for part in self.parts if not isnan(slack := part.slack())), reverse=True)
        return nan if len(known) < min(self.needed, self.failing) else known[min(self.needed, len(known)) - 1]

    def leaves(self) -> list[Statement]:
        return [leaf for part in self.parts for leaf in part.leaves()]

    def deciding(self, level: float = LEVEL) -> tuple[Statement, float]:
        """The statement on which the answer hangs, the weakest of those that must hold or fail; and its level."""
        answer, levels = self.answer(level), self._levels(level)

        def at(part: Outcome) -> float:
            return levels[part.answer(level) if answer is None else answer]

        # Open is also what is sure alone and not at the level for the whole; where measures disagree nothing is.
        of_it = [part for part in self.parts if part.answer(at(part)) is answer] or list(self.parts)
        if answer:  # a cost beside an accuracy is sure: the doubt is elsewhere
            of_it = [part for part in of_it if any(leaf.estimate.error for leaf in part.leaves())] or of_it
        weakest_first = self.failing < len(self.parts) if answer is False else self.needed == len(self.parts)
        found = weakest(of_it) if weakest_first else max(of_it, key=_rounded_slack)
        return found.deciding(at(found))


def _rounded_slack(part: "Statement | Joined") -> float:
    """What is unknown decides last."""
    slack = part.slack()
    return inf if isnan(slack) else rounded(slack)


def weakest(parts: "Iterable[Statement | Joined]") -> "Statement | Joined":
    """The one that holds least surely, or fails most surely."""
    return min(parts, key=_rounded_slack)


Outcome = Statement | Joined


def every(parts: Iterable[Outcome]) -> Outcome:
    """All of them hold.

    Raises:
        NotRun: there is none.
    """
    return share(parts, 1.0)


def any_of(parts: Iterable[Outcome]) -> Outcome:
    """At least one of them holds."""
    return share(parts, 0.0)


def agreed(parts: Iterable[Outcome]) -> Outcome:
    """Measures of one thing: it holds where by all of them, and does not where by none of them."""
    parts = tuple(parts)
    return Joined(parts, len(parts), len(parts))


def opposite(outcome: Outcome, deciding: Statement) -> Statement | None:
    """What decides by another measure of the same thing, where that answers the opposite; see :func:`agreed`."""
    if isinstance(outcome, Statement) or all(leaf is not deciding for leaf in outcome.leaves()):
        return None
    for part in outcome.parts:
        if found := opposite(part, deciding):
            return found
    against = [part for part in outcome.parts if {part.answer(), deciding.answer()} == {True, False}]
    is_agreed = outcome.needed == outcome.failing == len(outcome.parts)
    return weakest(against).deciding()[0] if is_agreed and against else None


def unknown(what: str) -> Statement:
    """A part of a claim for which nothing was run: with it the whole can fail, and not hold."""
    return Statement(what, Estimate(nan, nan), doubt=f"needs {what}")


def doubted(outcome: Outcome, doubt: str) -> Outcome:
    """The same, which decides nothing, for this reason."""
    if isinstance(outcome, Joined):
        return replace(outcome, parts=tuple(doubted(part, doubt) for part in outcome.parts))
    return replace(outcome, doubt=doubt)


def with_each(cells: Cells, column: str, levels: Sequence, rule: Callable[[Cells], Outcome]) -> Outcome:
    """What a rule finds at each of these levels of a column; one that was not run leaves open what holds of all."""
    return every(at_each(cells, column, levels, rule))


def at_each(cells: Cells, column: str, levels: Sequence, rule: Callable[[Cells], Outcome]) -> list[Outcome]:
    """The parts of :func:`with_each`, to be joined in another way: first those that were run; none where none was."""
    ran = [level for level in levels if level in cells.levels(column)]
    absent = [unknown(level_in_words(column, level)) for level in levels if level not in ran]
    return [*(rule(cells.where(**{column: level})) for level in ran), *(absent if ran else [])]


def share(parts: Iterable[Outcome], least: float) -> Outcome:
    """At least this share of them holds."""
    parts = tuple(parts)
    if not parts:
        raise NotRun("nothing to compare")
    needed = max(1, -int(-least * len(parts) // 1))
    return parts[0] if len(parts) == 1 else Joined(parts, needed, len(parts) - needed + 1)


# ------------------------------------------------------------------------------------------------------- comparators


def within(
    cells: Cells, quantity: Quantity, name: str, low: float = -inf, high: float = inf, *, strict: bool = False
) -> Statement:
    """A quantity lies in a region; all other comparators come down to this."""
    estimate, doubt, learned = quantity.estimate, quantity.doubt, quantity.learned
    return Statement(name, estimate, low, high, cells.unit, strict, doubt, cells.label, learned)


def ahead(
    cells: Cells,
    winners: str | Sequence[str],
    losers: str | Sequence[str],
    *,
    each: Sequence[str] = (),
    by: float = 0.0,
    upto: float = inf,
    column: str = "method",
) -> Outcome:
    """Every winner is above every loser, by more than ``by``, at most ``upto``, in each part that has both.

    Args:
        winners, losers: levels of ``column``; one that no part has leaves open what holds of all.
        each: columns; the claim is about each combination of their levels.
    """
    pairs = [*product(listed(winners), listed(losers))]
    statements = _differences(cells, column, pairs, each, low=by, high=upto, strict=by == 0)
    absent = _absent(cells, column, winners, losers)
    return _all(statements, f"{_or(winners)} and {_or(losers)} side by side", absent)


def best(cells: Cells, candidates: str | Sequence[str], rivals: Sequence[str], *, each: Sequence[str] = ()) -> Outcome:
    """In each part one of the candidates is ahead of all rivals there are; what was not run leaves that open."""
    parts = []
    for _, part in cells.each(*each):
        have = part.levels("method")
        against = [rival for rival in rivals if rival in have]
        those = [candidate for candidate in listed(candidates) if candidate in have]
        if those and against:
            lacking = [unknown(one) for one in listed(candidates) if one not in have]
            parts.append(any_of([*(ahead(part, one, against, each=each) for one in those), *lacking]))
    if not parts:
        raise NotRun(f"needs {_or(candidates)} beside {_or(rivals)}")
    return every([*parts, *_absent(cells, "method", rivals)])


def ordered(
    cells: Cells, along: str, levels: Sequence | None = None, *, each: Sequence[str] = (), slack: float | None = None
) -> Outcome:
    """Values rise from level to level of a column (give ``levels`` in another order for a fall).

    Args:
        slack: by how much a step may fall; None: it has to rise.
    """
    low = 0.0 if slack is None else 0.0 - slack
    steps = []
    for where, part in cells.each(*each):
        have = part.levels(along)
        wanted = [level for level in (have if levels is None else levels) if level in have]
        steps += [_difference(part, along, b, a, where, low=low, strict=slack is None) for a, b in pairwise(wanted)]
    return _all(steps, f"two levels of {along.replace('_', ' ')}")


def equivalent(
    cells: Cells, one: str, other: str, margin: float, *, each: Sequence[str] = (), column: str = "method"
) -> Outcome:
    """Two methods differ by at most a margin, in each part: an equivalence test, not the absence of a difference."""
    statements = _differences(cells, column, [(one, other)], each, low=-margin, high=margin)
    return _all(statements, f"{one} and {other} side by side")


def across(
    cells: Cells, column: str, start: Any, end: Any, *, low: float = -inf, high: float = inf, each: Sequence[str] = ()
) -> Outcome:
    """The change from one level of a column to another lies in a region, in each part that has both levels."""
    changes = _differences(cells, column, [(end, start)], each, low=low, high=high, strict=0.0 in (low, high))
    return _all(changes, f"{column.replace('_', ' ')} {start} and {end}")


def fact(
    name: str, value: float, low: float = -inf, high: float = inf, unit: str = "", *, strict: bool = False
) -> Statement:
    """A number without uncertainty, a count or a closed form, lies in a region. ``low == high``: it is that number."""
    return Statement(name, Estimate(float(value)), low, high, unit, strict)


# ----------------------------------------------------------------------------------------------------------- helpers


def _differences(
    cells: Cells, column: str, pairs: Sequence[tuple[Any, Any]], each: Sequence[str], **region: float
) -> list[Statement]:
    """Of each pair of levels the first less the second, in each part that has both; ``region`` as of :func:`within`."""
    statements = []
    for where, part in cells.each(*each):
        have = {*part.levels(column)}
        statements += [
            _difference(part, column, one, other, where, **region) for one, other in pairs if {one, other} <= have
        ]
    return statements


def _difference(part: Cells, column: str, one: Any, other: Any, where: str, **region: float) -> Statement:
    name = f"{level_in_words(column, one)} − {level_in_words(column, other)}"
    name = f"{name}, {where}" if where else name
    try:
        quantity = part.difference({column: one}, {column: other})
    except NotRun:  # each side was, at settings of its own
        return unknown(f"{name} at the same settings")
    return within(part, quantity, name, **region)


def _all(statements: Sequence[Statement], needs: str, absent: Sequence[Statement] = ()) -> Outcome:
    """All of these hold, of which at least one must have been run."""
    if all(isnan(statement.estimate.value) for statement in statements):
        raise NotRun(f"needs {needs}")
    return every([*statements, *absent])


def _absent(cells: Cells, column: str, *names: str | Sequence[str]) -> list[Statement]:
    """Of these levels, those that nothing was run at."""
    have = cells.levels(column)
    return [unknown(name) for several in names for name in listed(several) if name not in have]


def _or(names: str | Sequence) -> str:
    return " or ".join(map(str, listed(names)))
