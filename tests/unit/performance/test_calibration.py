"""Fitting slowdowns: recovered where they are known, bounded by physics, and the shipped ones are the fitted ones."""

from datetime import date

import numpy as np
import pytest

from examples import deployment
from penstock.benchmark.shipped_rows import believed_pairs, measured_pairs, model_of
from penstock.catalog import load_accelerator, load_efficiencies, load_measurements, load_withdrawn
from penstock.catalog.measurement import Measurement
from penstock.performance.evidence.efficiencies import from_document, to_document
from penstock.performance.evidence.regression import LEAST, Row, Software, calibrate
from penstock.performance.evidence.rows import calibration_rows, first_edition
from penstock.performance.evidence.waits import FIRST, fit_both, waited
from penstock.performance.prediction.stack import stack_of
from penstock.performance.step.work import PARTS, roofline_s

OLD, NEW = Software("online", "0.5.9", date(2026, 1, 1)), Software("online", "0.5.10", date(2026, 2, 1))


def rows(slowdowns: list[float], *, software: float = 1.0, noise: float = 0.0, count: int = 200) -> list[Row]:
    random = np.random.default_rng(7)
    made = []
    for number in range(count):
        physical = random.uniform(1e-3, 2e-2, 6)
        light = np.concatenate([physical, [61, 58, 0, 122, 1]])
        seconds = float(light @ np.array(slowdowns))
        new = number % 2 == 0
        made.append(
            Row(
                light=light,
                seconds=seconds * (software if new else 1.0) * float(np.exp(noise * random.normal())),
                kin=("CDNA 3", "mi300x", "sglang"),
                family="one",
                software=NEW if new else OLD,
                configuration="same",
            )
        )
    return made


TRUE = [1.3, 1.5, 1.2, 2.5, 2.2, 1.8, 40e-6, 30e-6, 0, 5e-6, 2e-3]


def test_known_slowdowns_are_recovered() -> None:
    calibration = calibrate(rows(TRUE, noise=0.02))
    errors = [calibration.seconds(row) / row.seconds - 1 for row in rows(TRUE)]
    assert np.median(np.abs(errors)) < 0.03


def test_a_faster_release_is_a_factor_not_a_slowdown() -> None:
    calibration = calibrate(rows(TRUE, software=0.7))
    _, fitted = calibration.nearest(("CDNA 3", "mi300x", "sglang"))
    gap = fitted.factors.software[NEW] - fitted.factors.software[OLD]
    assert gap == pytest.approx(np.log(0.7), abs=0.05)


def test_no_part_is_ever_faster_than_light() -> None:
    calibration = calibrate(rows([0.2] * 6 + [0, 0, 0, 0, 0]))
    for fitted in calibration.by_kin.values():
        assert (fitted.slowdowns >= LEAST - 1e-12).all()


def test_an_unseen_accelerator_borrows_from_its_architecture() -> None:
    calibration = calibrate(rows(TRUE))
    path, _ = calibration.nearest(("CDNA 3", "mi325x", "sglang"))
    assert path == ("CDNA 3",)
    assert calibration.nearest(("Hopper", "h100", "vllm"))[0] == ()


def test_the_shipped_efficiencies_are_what_the_shipped_measurements_give() -> None:
    pairs = measured_pairs()
    fitted = fit_both([row for _, row in pairs], waited(pairs, model_of, load_accelerator))
    shipped = from_document(load_efficiencies())
    assert shipped.rows == len(pairs)
    for kept, found in ((shipped.calibration, fitted.step), (shipped.first, fitted.first)):
        assert kept.by_kin.keys() == found.by_kin.keys()
        for path, fresh in found.by_kin.items():
            assert kept.by_kin[path].slowdowns == pytest.approx(fresh.slowdowns, rel=1e-3, abs=1e-7)


def test_the_first_edition_is_all_it_was_and_nothing_later() -> None:
    rows = first_edition(load_measurements(), load_withdrawn())
    assert len(rows) == 6712
    assert len({row.id for row in rows}) == 6712
    assert {row.edition for row in rows} == {1}


def test_what_is_withdrawn_is_in_no_other_file_and_says_why() -> None:
    assert not {row.id for row in load_withdrawn()} & {row.id for row in load_measurements()}
    reasons = {"copied", "faster_than_light", "partial_ep", "queued", "split_unstated"}
    assert {row.flag for row in load_withdrawn()} == reasons


def test_no_believed_row_is_faster_than_light() -> None:
    shares = [roofline_s(row.light) / row.seconds for m, row in believed_pairs() if m.scenario == "online"]
    assert max(shares) < 1.3  # with the cache in 16 bits, where the source does not say that it was in 8
    assert len(measured_pairs()) - len(believed_pairs()) >= 150


def test_drafts_disaggregation_and_twins_are_not_fitted() -> None:
    def one(**what: bool) -> Measurement:
        return next(row for row in load_measurements() if what.items() <= _kinds(row).items())

    plain = one(drafted=False, disaggregated=False, twin=False)
    others = [one(drafted=True, disaggregated=False), one(disaggregated=True), one(twin=True, drafted=False)]
    assert [row for row, _ in calibration_rows([plain, *others], model_of, load_accelerator)] == [plain]


def _kinds(row: Measurement) -> dict[str, bool]:
    return {"drafted": bool(row.drafted), "disaggregated": row.scenario == "disaggregated", "twin": bool(row.twin)}


def test_the_document_round_trips() -> None:
    shipped = from_document(load_efficiencies())
    assert to_document(shipped) == load_efficiencies()
    assert set(load_efficiencies()["pools"][0]["slowdowns"]) == set(PARTS)
    assert set(load_efficiencies()["first"][0]["beyond"]) == set(FIRST)


def test_the_newest_serving_release_is_the_one_predicted() -> None:
    shipped = from_document(load_efficiencies())
    for part, engine in (("mi300x", "sglang"), ("h100_sxm", "vllm")):
        stack = stack_of(deployment("deepseek-r1", part, tp=8), engine, shipped)
        seen = shipped.calibration.by_kin[stack.path].factors.software
        assert stack.software is not None
        assert stack.software.scenario == "online"
        assert stack.software.date == max(found.date for found in seen if found.scenario == "online")
