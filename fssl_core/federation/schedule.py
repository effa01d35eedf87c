"""Which part of an encoder is trained, frozen and sent in which round: end-to-end, layer-wise, progressive.

Tun et al., "LW-FedSSL: Resource-efficient Layer-wise Federated Self-supervised Learning", arXiv:2401.11647, Section 3,
Table 1, Algorithms 1 and 3. An encoder is a stack of units ``[L_1, ..., L_S]``, the blocks of a transformer or the
stages of a ResNet. LW-FedSSL adds and trains a few of them in each stage of the training and freezes all earlier ones;
Prog-FedSSL adds as many and trains all that are there. Units are numbered from 0 here: ``L_1`` is unit 0.

What is no unit follows two rules, which the paper does not write and its traffic and FLOPs imply:

- what stands before the first unit, a patch projection or a stem, belongs to unit 0: it is trained, frozen and sent
  with it,
- what stands after the last one, a final norm and the heads, is trained and sent, down and up, in every round.

Values that nobody trains, such as a fixed table of positions, are sent along where a sub-model is sent as a whole.
"""

from dataclasses import dataclass

from fssl_core.errors import SettingError
from fssl_core.settings import check_choice, check_range

KINDS = ("end-to-end", "layer-wise", "progressive")


@dataclass(frozen=True)
class Stage:
    """What holds in all rounds of one stage.

    Args:
        number: ``s``, from 1.
        rounds: ``R_s``.
        new: units that the stage adds; none end-to-end, whose only stage starts with the whole encoder.
        active: units that are trained.
        whole_down: the server sends the whole sub-model ``F_s`` in each round; else its trained part.
        whole_up: the same for what a client sends.
        dropped: units that a client leaves out, at random among those of earlier stages (depth dropout).
    """

    number: int
    rounds: int
    new: range
    active: range
    whole_down: bool
    whole_up: bool
    dropped: int = 0

    @property
    def present(self) -> range:
        """Units of ``F_s``."""
        return range(self.active.stop)

    @property
    def frozen(self) -> range:
        """Units that a client runs forward only."""
        return range(self.active.start)

    @property
    def earlier(self) -> range:
        """Units that earlier stages have added."""
        return range(self.new.start)

    @property
    def exchanged_down(self) -> range:
        """Units that a client receives in each round, before ``dropped`` of the earlier ones are left out."""
        return self.present if self.whole_down else self.active

    @property
    def exchanged_up(self) -> range:
        """Units that a client sends in each round, before ``dropped`` of the earlier ones are left out."""
        return self.present if self.whole_up else self.active


def schedule(
    kind: str,
    units: int,
    *,
    rounds: int,
    stages: int | None = None,
    worst_case: bool = False,
    most_units: int | None = None,
) -> list[Stage]:
    """The stages of a training, in order.

    Args:
        kind: one of ``KINDS``.
        units: of the encoder: 12 blocks of ViT-Tiny, 4 stages of a ResNet.
        rounds: ``R``, of the whole training; the same number in each stage.
        stages: ``S``; one for each unit unless given. End-to-end training has one.
        worst_case: clients fetch the whole sub-model in every round, as those must that missed a round (Section 4.3).
            It makes a difference for layer-wise training only.
        most_units: depth dropout (Section 4.6): a client uses at most so many units, the new ones and some of the
            earlier ones. 6 gives the resources of Table 6, whose text states no number.

    Raises:
        SettingError: an unknown kind, or numbers that do not divide evenly.
    """
    check_choice("kind", kind, KINDS)
    check_range("units", units, low=1)
    if stages is None:
        stages = 1 if kind == "end-to-end" else units
    if kind == "end-to-end" and stages != 1:
        raise SettingError("stages", stages, "1, or nothing, for end-to-end training")
    if stages < 1 or units % stages:
        raise SettingError("stages", stages, f"a divisor of units={units}")
    if rounds < 1 or rounds % stages:
        raise SettingError("rounds", rounds, f"a positive multiple of stages={stages}")
    each = units // stages
    if most_units is not None and (kind == "end-to-end" or most_units < each):
        raise SettingError(
            "most_units", most_units, f"None for end-to-end training, else at least {each}, the new units"
        )

    layer_wise = kind == "layer-wise"
    result = []
    for number in range(1, stages + 1):
        new = range((number - 1) * each, number * each)
        result.append(
            Stage(
                number,
                rounds // stages,
                new=range(0) if kind == "end-to-end" else new,
                active=new if layer_wise else range(new.stop),
                whole_down=not layer_wise or worst_case,
                whole_up=not layer_wise,
                dropped=0 if most_units is None else max(0, new.stop - most_units),
            )
        )
    return result


def by_round(stages: list[Stage]) -> list[Stage]:
    """The stage of each round, the first round first."""
    return [stage for stage in stages for _ in range(stage.rounds)]
