"""A plan file is read strictly; a mistake is one line with its number and the fix."""

from datetime import date
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.api.plan import sources_of
from penstock.errors import UsageError
from penstock.planning.make_plan import make_plan
from penstock.planning.spec.example_plan import EXAMPLE_PLAN
from penstock.planning.spec.plan_file import parse_plan
from small_plans import PEOPLE, TODAY, TWO_PARTS, plan_of


def test_the_example_that_init_prints_is_a_plan_and_its_comments_name_every_section() -> None:
    plan = plan_of(EXAMPLE_PLAN)
    assert [entry.users for entry in plan.workloads] == [200, 64]
    assert [entry.id for entry in plan.accelerators] == ["h200", "mi325x", "mi355x"]
    for section in ("discounts", "available", "power_cap_kw", "deny", "max_vendor_share", "trace", "growth_per_year"):
        assert section in EXAMPLE_PLAN


def test_the_example_with_every_comment_opened_is_a_plan_too() -> None:
    opened = []
    for line in EXAMPLE_PLAN.splitlines():
        body = line.lstrip().removeprefix("# ")
        key = body.split(":")[0].strip()
        optional = {"step_months", "kv", "think", "power_cap_kw", "deny", "max_vendor_share", "share_of"}
        opened.append(line.replace("# ", "", 1) if line.lstrip().startswith("# ") and key in optional else line)
    plan = plan_of("\n".join(opened))
    assert plan.constraints.max_vendor_share == 0.7
    assert plan.sites[0].power_cap_watts == 400_000
    assert plan.step_months == 3


def test_users_who_wait_as_long_as_the_slo_allows_make_their_rate() -> None:
    text = TWO_PARTS.replace("requests_per_s: 40", "users: 512\n    think: 10s")
    answer = 0.6 * 256 + 0.4 * 512
    assert plan_of(text).workloads[0].peak_requests_per_s == pytest.approx(512 / (1 + 0.05 * (answer - 1) + 10))


def test_a_number_may_carry_its_range_and_source() -> None:
    text = TWO_PARTS + "finance: {discount_rate: {value: 8%, low: 5%, high: 10%, source: the board}}\n"
    rate = plan_of(text).money.discount_rate
    assert (rate.value, rate.low, rate.high, rate.source, rate.given) == (0.08, 0.05, 0.1, "the board", True)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("requests_per_s: 40", "requests_per_s: forty"), "plan.yaml:8: requests_per_s: 'forty' is not a number"),
        (
            ("requests_per_s: 40", "request_per_s: 40"),
            "plan.yaml:8: `request_per_s` is not a key of workloads 1; did you mean `requests_per_s`?",
        ),
        (
            ("requests_per_s: 40", "user: 10"),
            "plan.yaml:8: `user` is not a key of workloads 1; did you mean `users`?",
        ),
        (
            ("workloads:", "workload:"),
            "plan.yaml:5: `workload` is not a key of the plan; did you mean `workloads`?",
        ),
        (("    requests_per_s: 40\n", ""), "needs either `requests_per_s:` or `users:`"),
        (("share: 40%", "share: 30%"), "plan.yaml:9: lengths: the shares add up to 90.0%; they must add up to 100%"),
        (("slo: ttft=1s", "slo: ttft=1"), "plan.yaml:7: slo: '1' is not a time"),
        (("start: 2026-12-01", "start: soon"), "plan.yaml:3: start: 'soon' is not a date; write 2027-06-01"),
        (("acquire: [buy]", "acquire: [steal]"), "plan.yaml:13: acquire 1: 'steal' is not one of buy, rent"),
        (
            ("acquire: [buy]", "aquire: [buy]"),
            "plan.yaml:13: `aquire` is not a key of the plan; did you mean `acquire`?",
        ),
        (("low: 12000, high: 18000", "low: 16000, high: 18000"), "must satisfy low <= value <= high"),
        (
            ("lengths: [{input: 1k, output: 256, share: 60%}, {input: 8k, output: 512, share: 40%}]", "lengths: []"),
            "lengths: the list is empty; add at least one length, such as {input: 1k, output: 256}",
        ),
        (("id: h200,", "identity: h200,"), "`identity` is not a key of accelerators 2; known keys: id, buy_usd"),
        (("id: h200, ", ""), "has no `id`; add `id: ...`"),
        (("tp: [1]}", "tp: [0]}"), "0 is outside 1 to 4096"),
        (("name: two parts", "name: two parts\nname: again"), "plan.yaml:3: name: is written twice"),
        (("name: two parts", "name: [unclosed"), "check indentation and quotes"),
        (("value: 15000", "value: 0"), "low"),
    ],
)
def test_a_mistake_names_its_line_and_the_fix(change: tuple[str, str], complaint: str) -> None:
    with pytest.raises(UsageError) as caught:
        plan_of(TWO_PARTS.replace(*change, 1))
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "# nothing", "- a list", "a: &a [*a]", "[" * 5000, "workloads: {}", "\x00"])
def test_what_is_no_plan_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        plan_of(text)
    assert "\n" not in str(caught.value)


def test_a_file_larger_than_any_plan_is_refused() -> None:
    with pytest.raises(UsageError, match="too many for a plan"):
        plan_of("a" * 2_000_000)


@settings(max_examples=150, deadline=None)
@given(cut=st.integers(0, len(EXAMPLE_PLAN)), junk=st.text(max_size=12))
def test_any_damage_is_a_plan_or_one_line(cut: int, junk: str) -> None:
    complaint = ""
    try:
        parse_plan(EXAMPLE_PLAN[:cut] + junk + EXAMPLE_PLAN[cut:], "plan.yaml", today=TODAY)
    except UsageError as error:
        complaint = str(error)
    assert "\n" not in complaint


def test_the_start_is_today_where_the_file_names_none() -> None:
    text = TWO_PARTS.replace("start: 2026-12-01\n", "")
    assert parse_plan(text, "plan.yaml", today=date(2030, 1, 2)).start == date(2030, 1, 2)


@pytest.mark.parametrize(
    "section", ["finance: {}", "node: {}", "constraints: {}", "sites: [{name: site}]", "stacks: {}", "claims: []"]
)
def test_a_section_left_out_is_a_section_left_empty(section: str) -> None:
    bare = TWO_PARTS.replace(PEOPLE, "")
    assert plan_of(f"{bare}{section}\n") == plan_of(bare)


def test_an_engine_is_one_or_several_and_a_workload_s_own_goes_before_the_plan_s() -> None:
    assert plan_of(TWO_PARTS).workloads[0].engines == ()
    assert plan_of(f"engine: vLLM\n{TWO_PARTS}").workloads[0].engines == ("vllm",)
    own = TWO_PARTS.replace("    slo:", "    engine: [sglang, vllm, sglang]\n    slo:")
    assert plan_of(f"engine: vllm\n{own}").workloads[0].engines == ("sglang", "vllm")
    with pytest.raises(UsageError, match="the list is empty; name an engine"):
        plan_of(f"engine: []\n{TWO_PARTS}")


def test_an_engine_no_accelerator_of_the_plan_runs_is_refused_with_those_that_run() -> None:
    plan = plan_of(f"engine: vlm\n{TWO_PARTS}")
    with pytest.raises(
        UsageError, match=r"chat: no accelerator of the plan runs engine 'vlm'; use one of .*sglang.*vllm"
    ):
        make_plan(plan, sources_of(plan, Path()))


def test_the_first_example_is_the_plan_that_init_writes() -> None:
    first = Path(__file__).parents[3] / "examples" / "plans" / "chat-and-agent.yaml"
    assert first.read_text(encoding="utf-8") == EXAMPLE_PLAN
