"""Module 7: layer-wise and progressive training, and what they cost a client."""

import torch

from fssl_core.costs.layerwise import epoch_macs
from fssl_core.costs.layerwise import round_bytes as counted_bytes
from fssl_core.costs.parts import Encoder, Model, Part
from fssl_core.course.exercise import Wrong, as_number, compare, exercise, other_units, parts, prediction, whole_number
from fssl_core.federation.schedule import KINDS, Stage, schedule


@prediction(
    "layerwise/progressive",
    record=("lwfedssl/table2", "laptop"),
    unit="points",
    within=3,
    too_low="It computes and sends less, and yet it does not lose here. In each stage everything there is is trained, "
    "and what is added later starts behind layers that work already.",
    too_high="The right side of zero, perhaps, but it is no other class of method.",
)
def progressive(record) -> float:
    """Prog-FedSSL less FedSimCLR, fine-tuned."""
    rows = record[(record["ssl_method"] == "SimCLR") & (record["protocol"] == "fine-tuning")]
    mean = rows.groupby("method")["accuracy"].mean()
    return 100 * (mean["Prog-FedSSL"] - mean["FedSimCLR"])


@exercise(
    "layerwise/units",
    pair="Return two lists of numbers of units: the frozen ones, and the trained ones.",
    swapped="The other way round: first the frozen units, then the trained ones.",
    shifted="One off: stages count from 1, units from 0.",
    progressive="Progressive training freezes nothing: it trains all units that are there.",
    layer_wise="Layer-wise training trains the unit that the stage adds, and runs the earlier ones forward only.",
    later="Units of later stages are not there yet: they are neither frozen nor trained.",
    end_to_end="End-to-end training has one stage, in which all units are trained.",
)
def units(answer, generator) -> None:
    count = whole_number(3, 7, generator)
    for kind in KINDS:
        stages = schedule(kind, count, rounds=count)
        stage = stages[-1] if len(stages) == 1 else stages[whole_number(1, count, generator)]
        given = parts(answer(kind, stage.number, count), 2, "pair")
        try:
            frozen, active = (sorted(int(unit) for unit in part) for part in given)
        except (TypeError, ValueError) as error:
            raise Wrong("pair") from error
        if [frozen, active] == [list(stage.frozen), list(stage.active)]:
            continue
        if [active, frozen] == [list(stage.frozen), list(stage.active)]:
            raise Wrong("swapped")
        if max([*frozen, *active], default=0) >= count or [unit - 1 for unit in active] == list(stage.active):
            raise Wrong("shifted")
        if kind != "end-to-end" and max([*frozen, *active], default=0) > stage.present[-1]:
            raise Wrong("later")
        raise Wrong(kind.replace("-", "_"))


@exercise(
    "layerwise/computation",
    two_passes="The backward pass costs as much as two forward passes: one for the gradient of what came in, one for "
    "that of the weights.",
    one_pass="That is the forward pass alone.",
    frozen_free="A frozen unit is not trained, but every image still passes through it.",
    frozen_trained="You count frozen units like trained ones.",
)
def computation(answer, generator) -> None:
    stages = schedule("layer-wise", 5, rounds=5)
    stage = stages[whole_number(1, 5, generator)]
    sizes = torch.randint(1, 100, (5,), generator=generator).tolist()
    model = Model(Encoder(Part(), tuple(Part(macs=size) for size in sizes), Part(), 1), Part(), Part())
    frozen, active = ([sizes[unit] for unit in units] for units in (stage.frozen, stage.active))
    compare(
        answer(frozen, active),
        float(epoch_macs(stage, model)),
        two_passes=float(sum(frozen) + 2 * sum(active)),
        one_pass=float(sum(frozen) + sum(active)),
        frozen_free=float(3 * sum(active)),
        frozen_trained=float(3 * sum(frozen) + 3 * sum(active)),
    )


@exercise(
    "layerwise/ratio",
    new_only="You count the unit that is trained only. In stage s there are s - 1 others, which run forward.",
    progressive="That is the ratio of progressive training.",
    last_stage="That is the ratio in the last stage. Earlier stages are cheaper: take the mean over all of them.",
    inverse="That is how many times cheaper it is; asked for is the part that is left.",
    percent="Expected is a fraction.",
)
def ratio(answer, generator) -> None:
    count = whole_number(3, 20, generator)
    model = Model(Encoder(Part(), (Part(macs=1),) * count, Part(), 1), Part(), Part())

    def of(kind: str) -> float:
        stages = schedule(kind, count, rounds=count)
        return sum(stage.rounds * epoch_macs(stage, model) for stage in stages)

    whole = of("end-to-end")
    compare(
        answer(count),
        of("layer-wise") / whole,
        tolerance=1e-3,
        new_only=1 / count,
        progressive=of("progressive") / whole,
        last_stage=(count + 2) / (3 * count),
        inverse=whole / of("layer-wise"),
        percent=100 * of("layer-wise") / whole,
    )


@exercise(
    "layerwise/traffic",
    one_way="A client receives and sends: count both directions.",
    values="You count values. How many bytes has a float32?",
    values_one_way="You count values, and one direction. A float32 has four bytes, and a client receives and sends.",
    no_heads="The heads are trained in every stage, so they are sent in every round.",
    all_present="Layer-wise, units that are finished are not sent again.",
    new_only="Progressive training changes all units that are there, so all of them are sent.",
)
def traffic(answer, generator) -> None:
    count = 5
    sizes = torch.randint(1, 1000, (count,), generator=generator).tolist()
    heads = whole_number(1, 1000, generator)
    model = Model(Encoder(Part(), tuple(Part(size) for size in sizes), Part(), 1), Part(heads), Part())
    for kind in ("layer-wise", "progressive"):
        stage = schedule(kind, count, rounds=count)[whole_number(1, count, generator)]
        right = counted_bytes(stage, model).total
        present, new = sum(sizes[: stage.number]), sizes[stage.number - 1]
        other = {"all_present": present} if kind == "layer-wise" else {"new_only": new}
        compare(
            answer(kind, stage.number, sizes, heads),
            float(right),
            tolerance=1e-6,
            one_way=right / 2,
            values=right / 4,
            values_one_way=right / 8,
            no_heads=float(right - 8 * heads),
            unit=other_units(right),
            **{hint: 8.0 * (values + heads) for hint, values in other.items()},
        )


@exercise(
    "layerwise/peak",
    first_stage="You take the first stage. It need not be the largest: look at all of them.",
    last_stage="You take the last stage. In a ResNet the first stage has the largest maps: where is the peak?",
    all_units="That is what end-to-end training keeps. Layer-wise, one unit is trained at a time.",
    mean="You take a mean. What does not fit once does not fit.",
    largest="Progressive training trains everything that is there: what does its last stage keep?",
)
def peak(answer, generator) -> None:
    kept = (torch.rand(4, generator=generator) * torch.tensor([4.0, 8, 2, 1]) + torch.tensor([3.0, 9, 2, 1])).tolist()

    def of(stage: Stage) -> float:
        return sum(kept[unit] for unit in stage.active)

    for kind in KINDS:
        right = max(of(stage) for stage in schedule(kind, 4, rounds=4))
        wrong = {"first_stage": kept[0], "last_stage": kept[-1], "mean": sum(kept) / 4}
        mistakes = wrong | ({"all_units": sum(kept)} if kind == "layer-wise" else {"largest": max(kept)})
        compare(as_number(answer(kind, kept)), right, **mistakes)
