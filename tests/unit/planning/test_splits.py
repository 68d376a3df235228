"""An accelerator is offered the splits people run on it, and no others."""

from dataclasses import replace

import pytest

from examples import model
from penstock.catalog import load_accelerator
from penstock.fleet import Parallelism
from penstock.performance.shipped.shipped_drafts import own_drafts
from penstock.planning.candidates.deployment_options import WorkloadOnAccelerator, options_of
from penstock.planning.candidates.replica_capacity import Option
from penstock.planning.candidates.splits import linked_devices, splits_of, stages_of
from penstock.planning.spec.plan_types import AcceleratorPlan
from small_plans import TWO_PARTS, plan_of

CHAT = plan_of(TWO_PARTS).workloads[0]


def splits(name: str, on: str) -> set[str]:
    return {str(split) for split in splits_of(model(name), load_accelerator(on))}


def options(name: str, on: str, *, tp: tuple[int, ...] = (), mtp: bool = True) -> list[Option]:
    accelerator = load_accelerator(on)
    placing = WorkloadOnAccelerator(
        workload=replace(CHAT, model=name, mtp=mtp),
        accelerator=accelerator,
        planned=AcceleratorPlan(id=accelerator.id, tp=tp),
        drafts_of=own_drafts,
    )
    return options_of(model(name), placing, ("sglang", "vllm"))[0]


@pytest.mark.parametrize("on", ["h200", "mi355x", "b200"])
def test_a_dense_model_is_split_by_tensors_within_a_node_and_no_other_way(on: str) -> None:
    assert splits("llama-3.1-70b", on) == {"tp1", "tp2", "tp4", "tp8"}


def test_a_mixture_no_device_holds_is_also_spread_by_experts_in_a_node_and_over_two_or_four() -> None:
    tensor, whole = {"tp1", "tp2", "tp4", "tp8"}, {"tp2 ep", "tp4 ep", "tp8 ep"}
    ranks = {f"tp1 dp{count} ep" for count in (2, 4, 8, 2 * 8, 4 * 8)}
    assert splits("deepseek-r1", "mi355x") == tensor | whole | ranks


def test_a_mixture_that_one_device_holds_stays_in_a_node() -> None:
    assert max(split.devices for split in splits_of(model("gpt-oss-20b"), load_accelerator("h100"))) == 8


def test_a_rack_that_links_like_a_node_takes_tensors_to_16_and_experts_to_64() -> None:
    gb200 = load_accelerator("gb200")
    assert linked_devices(gb200) == 72
    found = splits_of(model("deepseek-r1"), gb200)
    assert max(split.tp for split in found) == 16
    assert max(split.dp for split in found) == 64
    assert all(split.expert_parallel for split in found if split.dp > 1)


def test_cards_in_slots_do_not_exchange_experts_between_machines() -> None:
    assert max(split.devices for split in splits_of(model("gpt-oss-120b"), load_accelerator("rtx_4090"))) == 8


def test_stages_are_for_models_that_nothing_linked_holds() -> None:
    """Llama 405B in bf16 is 812 GB: more than 8 x 80 GB, less than 8 x 141 GB."""
    assert {str(option.deployment.parallelism) for option in options("llama-3.1-405b", "h100")} == {
        "tp8 pp2",
        "tp8 pp4",
    }
    assert all(option.deployment.parallelism.pp == 1 for option in options("llama-3.1-405b", "h200"))
    assert stages_of(load_accelerator("h100")) == (Parallelism(tp=8, pp=2), Parallelism(tp=8, pp=4))


def test_a_plan_that_names_tensor_ranks_gets_those_alone() -> None:
    assert {str(option.deployment.parallelism) for option in options("deepseek-r1", "mi355x", tp=(8,))} == {"tp8"}


def test_ids_name_the_split_and_the_drafts_and_are_one_for_all_engines() -> None:
    found = options("deepseek-r1", "mi355x", tp=(8,))
    assert {option.id for option in found} == {"chat mi355x tp8 fp8", "chat mi355x tp8 mtp3 fp8"}
    assert len(found) == 2 * 2


def test_a_checkpoint_with_draft_layers_is_offered_with_and_without_drafts() -> None:
    for option in options("deepseek-r1", "mi355x"):
        assert option.deployment.speculative == (option.speculation is not None)
    assert any(option.speculation for option in options("deepseek-r1", "mi355x"))
    assert not any(option.speculation for option in options("deepseek-r1", "mi355x", mtp=False))
    assert not any(option.speculation for option in options("llama-3.1-70b", "mi355x"))


def test_stages_do_not_draft() -> None:
    """DeepSeek-R1 in bf16 weights is 1.3 TB: no node of H100s holds it."""
    placing = WorkloadOnAccelerator(
        workload=replace(CHAT, model="deepseek-r1", weights=("bf16",)),
        accelerator=load_accelerator("h100"),
        planned=AcceleratorPlan(id="h100_sxm"),
        drafts_of=own_drafts,
    )
    found, _ = options_of(model("deepseek-r1"), placing, ("vllm",))
    staged = [option for option in found if option.deployment.parallelism.pp > 1]
    assert staged
    assert not any(option.speculation for option in staged)


@pytest.mark.parametrize("on", ["h100", "h200", "mi300x", "mi325x"])
def test_gpt_oss_is_offered_in_its_own_format_where_engines_widen_it(on: str) -> None:
    found = options("gpt-oss-120b", on)
    assert {option.weights for option in found} == {"mxfp4"}
    assert {1, 2, 4, 8} <= {option.deployment.parallelism.tp for option in found}
