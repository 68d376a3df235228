"""The shipped measurements, and the traps of their sources as tests."""

from collections import Counter

import pytest

from penstock.catalog import accelerator_ids, load_measurements, measurement_sources, model_ids

ROWS = load_measurements()


def test_there_are_thousands_of_rows_of_both_vendors() -> None:
    assert len(ROWS) >= 6000
    assert sum(row.accelerator.startswith("mi") for row in ROWS) >= 800
    assert len({row.id for row in ROWS}) == len(ROWS)


def test_every_row_names_things_the_catalog_knows() -> None:
    assert {row.accelerator for row in ROWS} <= set(accelerator_ids())
    assert {row.model for row in ROWS} <= set(model_ids())
    assert {row.source for row in ROWS} == set(measurement_sources())
    assert {row.scenario for row in ROWS} == {"online", "static_batch", "saturated"}


def test_inferencex_lengths_are_what_was_served_not_what_was_asked() -> None:
    # Lengths are drawn from 80 to 100% of the nominal 1,024 and 8,192, so they average nine tenths.
    lengths = {row.input_tokens for row in ROWS if row.source == "inferencex"}
    assert lengths == {921.6, 7372.8}


def test_a_replica_has_as_many_devices_as_ranks_and_never_more_than_a_node() -> None:
    # Rows with tp 8 and ep 8 were filed as 64 devices by two sources; they ran on eight.
    assert max(row.devices for row in ROWS) == 8


def test_no_row_uses_speculative_decoding_or_disaggregation() -> None:
    assert Counter(row.engine for row in ROWS).keys() == {"vllm", "sglang", "trtllm", "atom"}


def test_latency_rows_state_their_load_and_saturated_ones_their_throughput() -> None:
    for row in ROWS:
        if row.scenario == "online":
            assert row.tpot_s is not None
            assert row.concurrency is not None
            assert 1e-3 < row.tpot_s < 1
        else:
            assert row.output_tokens_per_s is not None


@pytest.mark.parametrize("source", measurement_sources().values(), ids=lambda source: source.id)
def test_every_source_says_where_and_under_which_terms(source: object) -> None:
    from penstock.catalog.measurement import MeasurementSource  # noqa: PLC0415

    assert isinstance(source, MeasurementSource)
    assert source.url.startswith("https://")
    assert source.terms
