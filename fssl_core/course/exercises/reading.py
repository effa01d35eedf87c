"""Module 10: intervals, baselines and verdicts."""

from typing import Any

import pandas as pd
import torch

from fssl_core.claims.estimation import Cells, Estimate
from fssl_core.claims.rules import Statement, ahead
from fssl_core.claims.verdict import BY_ANSWER
from fssl_core.course.exercise import Wrong, check_word, compare, exercise, numbers, prediction, whole_number

WHO = {  # speaks of a claim: by whether the paper prints numbers of it, and whether something of ours was judged
    (True, True): "both",
    (True, False): "the paper alone",
    (False, True): "our runs alone",
    (False, False): "nobody",
}


@prediction(
    "reading/scratch",
    record=("lwfedssl/table2", "laptop"),
    unit="percent",
    within=6,
    too_low="An encoder that nobody has trained is no blank: random filters keep much of an image, and fine-tuning "
    "trains them, too.",
    too_high="The encoder is untrained: all that is learned is learned from one label in ten.",
)
def scratch(record) -> float:
    """Fine-tuned accuracy of what was never pre-trained."""
    return 100 * record[record["method"] == "Scratch"]["accuracy"].mean()


@exercise(
    "reading/interval",
    pair="Return two numbers: the lower end and the upper end.",
    normal="You used 1.96. With few seeds the spread is uncertain: take Student's t with n - 1 degrees of freedom.",
    no_t="You go one standard error to either side. For 95 % it is Student's t times as far.",
    not_of_mean="That is how far single runs spread. The standard error of their mean is smaller by the root of n.",
    biased="Your spread divides by n. The mean was estimated from the same runs: divide by n - 1.",
    one_sided="Your t leaves 5 % on one side. An interval of 95 % leaves 2.5 % on each.",
    freedom="Your t has n degrees of freedom; one was spent on the mean.",
    order="These are the two ends, the upper one first. Return the lower end first.",
    normal_biased="Your spread divides by n, where the mean was estimated from the same runs, and you used 1.96: take "
    "n - 1, and Student's t.",
)
def interval(answer, generator) -> None:
    from scipy.special import stdtrit

    count = whole_number(5, 8, generator)  # from five on, a cell is judged by its own values
    values = 60 + 4 * torch.randn(count, generator=generator, dtype=torch.float64)
    mean, deviation = values.mean(), values.std()

    def around(factor: float, spread: torch.Tensor, root: float = count**0.5) -> torch.Tensor:
        half = factor * spread / root
        return torch.stack([mean - half, mean + half])

    t = float(stdtrit(count - 1, 0.975))
    compare(
        numbers(answer(values.tolist()), 2, "pair"),
        torch.tensor(_cells({"method": values}).mean(method="method").estimate.interval(), dtype=torch.float64),
        tolerance=1e-5,
        normal=around(1.96, deviation),
        no_t=around(1.0, deviation),
        not_of_mean=around(t, deviation, 1.0),
        biased=around(t, values.std(correction=0)),
        one_sided=around(float(stdtrit(count - 1, 0.95)), deviation),
        freedom=around(float(stdtrit(count, 0.975)), deviation),
        order=around(-t, deviation),
        normal_biased=around(1.96, values.std(correction=0)),
    )


@exercise(
    "reading/paired",
    pair="Return two numbers: the difference, and its standard error.",
    unpaired="You treat both lists as if they had nothing in common. Run i of both has the same seed: the same "
    "division of the data, the same first model. What they share cancels in the difference of a seed.",
    sign="The difference is the second method less the first.",
    not_of_mean="That is the spread of single differences. Of their mean it is smaller by the root of n.",
    biased="Your spread divides by n; divide by n - 1.",
)
def paired(answer, generator) -> None:
    count = 6
    seeds = 5 * torch.randn(count, generator=generator, dtype=torch.float64)
    base, ours = (60 + seeds + torch.randn(2, count, generator=generator, dtype=torch.float64)).unbind()
    ours = ours + 1
    cells = _cells({"base": base, "ours": ours})
    estimate = (cells.mean(method="ours") - cells.mean(method="base")).estimate
    right, differences = torch.tensor([estimate.value, estimate.error], dtype=torch.float64), ours - base

    def with_error(error: torch.Tensor) -> torch.Tensor:
        return torch.stack([right[0], error])

    compare(
        numbers(answer(base.tolist(), ours.tolist()), 2, "pair"),
        right,
        tolerance=1e-6,
        unpaired=with_error(((base.var() + ours.var()) / count).sqrt()),
        sign=torch.stack([-right[0], right[1]]),
        not_of_mean=with_error(differences.std()),
        biased=with_error(differences.std(correction=0) / count**0.5),
    )


@exercise(
    "reading/verdict",
    words="The answer is a word.",
    point="You look at the estimate alone, or at one end of the interval. An interval with zero inside leaves both "
    "answers possible.",
    absence="An interval that holds zero does not contradict the claim: it decides nothing.",
    gate="Models that did not learn decide nothing, whatever the interval.",
    turned="The claim is that the first method is ahead: that the difference is above zero.",
)
def verdict(answer, generator) -> None:
    for value in (3.0, -3.0):
        for spread in (0.5, 6.0):
            for learned in (True, False):
                drawn = torch.randn(6, generator=generator, dtype=torch.float64)
                base = torch.full((6,), 60.0, dtype=torch.float64)
                ours = base + value + spread * (drawn - drawn.mean()) / drawn.std() * 6**0.5 / 2
                untrained = 30.0 if learned else 99.0
                cells = _cells({"base": base, "ours": ours}, untrained=untrained)
                outcome = ahead(cells, "ours", "base")
                low, high = outcome.estimate.interval()
                right = BY_ANSWER[outcome.answer()]
                given = answer(low, high, learned)
                check_word(given, BY_ANSWER.values())
                if given == right:
                    continue
                if not learned:
                    raise Wrong("gate")
                if right == "inconclusive":
                    raise Wrong("absence" if given == "contradicted" and value > 0 else "point")
                raise Wrong("point" if given == "inconclusive" else "turned")


@exercise(
    "reading/learned",
    truth="Return True or False.",
    chance_only="Above chance is not enough: an encoder with random weights is above chance, too.",
    untrained_only="Above the untrained encoder is not enough where that one is below chance.",
    mean_only="The mean is above, but with so few seeds that may be an accident: look at the interval's lower end.",
    too_strict="These models learned: all of the interval is above the better of the two baselines.",
    not_paired="Take the difference to the untrained model seed by seed, then its interval.",
    interval="The mean is above, but its interval of 95 % holds zero. It goes t standard errors to either side.",
    no_root="That is how far single runs spread. The standard error of their mean is smaller by the root of n.",
)
def learned(answer, generator) -> None:
    cases = {  # accuracy, spread, untrained: what goes wrong in each
        "chance_only": (30.0, 0.5, 38.0),
        "untrained_only": (8.0, 0.3, 5.0),
        "mean_only": (42.0, 9.0, 38.0),
        "interval": (42.0, 3.8, 38.0),  # 1.96 standard errors are not enough, nor one spread
        "not_paired": (42.0, 0.5, 38.0),
        "too_strict": (60.0, 1.0, 38.0),
        "no_root": (60.0, 10.0, 38.0),
    }
    chance = 10.0
    for mistake, (accuracy, spread, base) in cases.items():
        noise = torch.randn(2, 5, generator=generator, dtype=torch.float64)
        noise = (noise - noise.mean(1, keepdim=True)) / noise.std(1, keepdim=True)
        together = 8.0 if mistake == "not_paired" else 0.0  # what a seed adds to both
        untrained = base + together * noise[0]
        trained = accuracy + together * noise[0] + spread * noise[1]
        cells = _cells({"ours": trained}, untrained=untrained, chance=chance)
        right = not cells.mean(method="ours").doubt
        given = _truth(answer(trained.tolist(), untrained.tolist(), chance))
        if not isinstance(given, bool):
            raise Wrong("truth")
        if given is not right:
            raise Wrong(mistake)


@exercise(
    "reading/equivalent",
    truth="Return True (the same), False (not the same) or the text open. Nothing else.",
    not_significant="That zero lies in the interval is the absence of a proof, not the proof of an absence. "
    "The whole interval has to lie within the margin.",
    point="You look at the middle of the interval alone.",
    difference="A difference may be sure and still too small to matter: it is the margin that counts, not zero.",
    one_end="The interval has two ends, and the margin two sides.",
    open="Where a part of the interval lies within the margin and a part outside, both answers are possible: open.",
)
def same(answer, generator) -> None:
    from scipy.special import stdtrit

    margin, freedom = 2.0, 10
    shift = torch.rand((), generator=generator).item() / 4
    intervals = [(-9, 4), (0.4, 1.5), (-1, 3), (-6, -3), (-3, -1), (-1.2, 0.9), (3, 5)]
    intervals = [(low + shift, high + shift) for low, high in intervals]

    def right(low: float, high: float) -> bool | None:
        error = (high - low) / 2 / float(stdtrit(freedom, 0.975))
        return Statement("", Estimate((low + high) / 2, error, freedom), -margin, margin).answer()

    mistakes = {
        "not_significant": lambda low, high: low < 0 < high,
        "point": lambda low, high: abs(low + high) / 2 <= margin,
        "difference": lambda low, high: right(low, high) if low < 0 < high else False,
        "one_end": lambda low, high: high <= margin,
        "open": lambda low, high: right(low, high) is True,
    }
    given = [_truth(answer(low, high, margin)) for low, high in intervals]
    if any(not (isinstance(one, bool) or one == "open") for one in given):
        raise Wrong("truth")
    for hint, rule in ({"": right} | mistakes).items():
        if given == ["open" if (one := rule(low, high)) is None else one for low, high in intervals]:
            if hint:
                raise Wrong(hint)
            return
    raise Wrong("other")


@exercise(
    "reading/speaks",
    words="The answer is one of four texts.",
    itself="The paper's table satisfies the paper's sentence, and nothing of ours was judged: that is the paper "
    "compared with itself.",
    inconclusive="Inconclusive is no verdict, but something was run: our runs speak, if not clearly.",
    silent="The paper prints no number of this: paper_consistent is None, which is not False.",
    nobody="The paper prints nothing, and nothing was run.",
    inconsistent="The paper's numbers speak against its sentence: that is an answer of the paper, too.",
)
def speaks(answer, generator) -> None:
    for consistent in (True, False, None):
        for ours in ("not run", "inconclusive", "reproduced", "contradicted"):
            right = WHO[consistent is not None, ours != "not run"]
            given = answer(consistent, ours)
            check_word(given, WHO.values())
            if given == right:
                continue
            if right == "the paper alone":
                raise Wrong("itself" if consistent else "inconsistent")
            if right == "nobody":
                raise Wrong("nobody")
            if ours == "inconclusive" and given in ("the paper alone", "nobody"):
                raise Wrong("inconclusive")
            raise Wrong("silent" if consistent is None else "inconsistent" if consistent is False else "itself")


def _truth(given: Any) -> Any:
    """NumPy's and PyTorch's True as Python's."""
    return given.item() if hasattr(given, "item") else given


def _cells(
    values: dict[str, torch.Tensor], untrained: torch.Tensor | float | None = None, chance: float = 10.0
) -> Cells:
    """Runs in percent, by method; with ``untrained`` the gate for models that did not learn looks at them."""
    rows = [(method, seed, points) for method, row in values.items() for seed, points in enumerate(row.tolist())]
    frame = pd.DataFrame(rows, columns=["method", "seed", "points"])
    frame = frame.assign(accuracy=frame["points"] / 100, chance=chance / 100)
    if untrained is None:
        return Cells(frame, "points", ["method"])
    beside = untrained.tolist() * len(values) if isinstance(untrained, torch.Tensor) else untrained
    frame["untrained"] = pd.Series(beside, index=frame.index) / 100
    return Cells(frame, "points", ["method"], accuracy="accuracy")
