"""A fleet file reads back as the fleet it was written from; a mistake in one is one line with its number."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import UsageError
from penstock.fleet.deployment import Parallelism
from penstock.fleet.fleet_file import read_fleet, write_fleet
from penstock.fleet.pools import Fleet, NodeGroup, Pool, PoolEngine, Route
from penstock.workload.slo import Slo

LETTERS = st.characters(exclude_categories=("C", "Z"))
WORDS = st.builds("{}{}{}".format, LETTERS, st.text(LETTERS | st.just(" "), max_size=12), LETTERS)
COUNTS = st.integers(1, 10**6)
RANKS = st.integers(1, 4096)
RATES = st.floats(1e-9, 1e9)
SLOS = st.builds(
    Slo,
    ttft_s=st.none() | RATES,
    tpot_s=st.none() | RATES,
    e2e_s=RATES,
    attainment_fraction=st.floats(0.01, 1.0),
)
SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "max_num_seqs": st.integers(1, 4096),
        "max_model_len": st.integers(1, 10**6),
        "gpu_memory_utilization": st.floats(0.01, 1.0),
        "enable_prefix_caching": st.booleans(),
    },
)
SPLITS = st.builds(Parallelism, tp=RANKS, pp=RANKS, dp=RANKS, expert_parallel=st.booleans())
ENGINES = st.builds(PoolEngine, name=WORDS, version=WORDS | st.just("0.31"), settings=SETTINGS)


@st.composite
def pools(draw: st.DrawFn) -> list[Pool]:
    names = draw(st.lists(WORDS, min_size=1, max_size=4, unique=True))
    split = draw(st.booleans()) and len(names) > 1
    found = []
    for number, name in enumerate(names):
        replicas = draw(st.integers(1, 3))
        found.append(
            Pool(
                name=name,
                model="one model" if split else draw(WORDS),
                adapters=draw(st.just(()) | st.just((f"adapter {number}", f"other adapter {number}"))),
                weights=draw(WORDS),
                kv=draw(WORDS),
                accelerator=draw(WORDS),
                vendor=draw(WORDS),
                site=draw(WORDS),
                replicas=replicas,
                split=draw(SPLITS),
                drafted_tokens=draw(st.integers(0, 4)),
                engine=draw(ENGINES),
                role=("prefill" if number == 0 else "decode") if split else "both",
                feeds=names[1] if split and len(names) == 2 and number == 0 else None,
                kv_bytes_per_s=draw(st.none() | st.integers(1, 900).map(lambda gb: gb * 1e9))
                if split and number == 0
                else None,
                usd_per_hour=draw(st.none() | st.floats(0, 1e6)),
                elastic=draw(st.booleans()),
                endpoints=tuple(f"10.0.{number}.{place}:8000" for place in range(draw(st.integers(0, replicas)))),
            )
        )
    return found


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    made = draw(pools())
    fed = {pool.feeds for pool in made}
    names = [pool.name for pool in made if pool.name not in fed]
    sent = draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    sites = draw(st.lists(WORDS, max_size=3, unique=True))
    lengths = draw(st.lists(st.tuples(COUNTS, COUNTS), max_size=3, unique=True))
    return Fleet(
        name=draw(WORDS),
        note=draw(st.none() | WORDS),
        nodes=tuple(
            NodeGroup(accelerator="part", site=site, nodes=3, spare_nodes=draw(st.integers(0, 3))) for site in sites
        ),
        pools=tuple(made),
        routes=tuple(
            Route(
                workload="chat",
                input_tokens=inputs,
                output_tokens=outputs,
                slo=draw(SLOS),
                peak_requests_per_s=draw(RATES),
                weights=dict.fromkeys(sent, 1 / len(sent)),
            )
            for inputs, outputs in lengths
        ),
    )


@settings(max_examples=150, deadline=None)
@given(fleets())
def test_what_is_written_reads_back_equal(fleet: Fleet) -> None:
    assert read_fleet(write_fleet(fleet), "fleet.yaml") == fleet


FILE = """version: 1
name: small
nodes: [{accelerator: mi300x, site: main, nodes: 1, spare_nodes: 0}]
pools:
  - name: one
    model: llama-3.1-8b
    weights: bf16
    kv: bf16
    accelerator: mi300x
    vendor: amd
    site: main
    replicas: 2
    split: {tp: 1, pp: 1, dp: 1, ep: false}
    engine: {name: vllm, version: '0.31', settings: {max_num_seqs: 256}}
    role: both
    usd_per_hour: 2.5
    endpoints: [10.0.0.1:8000]
routes:
  - workload: chat
    input_tokens: 1024
    output_tokens: 256
    slo: {ttft_s: 1, tpot_s: 0.05, attainment_fraction: 0.95}
    peak_requests_per_s: 3
    weights: {one: 1}
"""
SECOND = FILE[FILE.index("  - name: one") : FILE.index("routes:")]


def test_a_file_by_hand_is_a_fleet() -> None:
    (pool,) = read_fleet(FILE, "fleet.yaml").pools
    assert pool.endpoints == ("10.0.0.1:8000",)
    assert pool.engine.settings == {"max_num_seqs": 256}
    assert pool.engine.version == "0.31"


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("    model: llama-3.1-8b\n", "", "fleet.yaml:5: pools 1: has no `model`; add `model: ...`"),
        ("replicas: 2", "replicas: two", "fleet.yaml:12: replicas: 'two' is not a number"),
        ("replicas: 2", "replicas: -2", "fleet.yaml:12: replicas: -2 is too small; write 1 or more"),
        ("replicas: 2", "replicas: 0", "fleet.yaml:12: replicas: 0 is too small; write 1 or more"),
        ("tp: 1", "tp: 1.5", "fleet.yaml:13: tp: 1.5 is not a whole number"),
        ("ep: false", "ep: maybe", "fleet.yaml:13: ep: 'maybe' is not one of true, false"),
        ("split: {tp: 1, pp: 1, dp: 1, ep: false}", "split: tp1", "fleet.yaml:13: split: must have keys"),
        ("routes:\n", f"{SECOND}routes:\n", "fleet.yaml:18: pools 2: 'one' is listed twice; keep one"),
        (
            "weights: {one: 1}",
            "weights: {two: 1}",
            "fleet.yaml:19: routes 1: no pool is called 'two'; the pools are one",
        ),
        (
            "weights: {one: 1}",
            "weights: {one: 0.9}",
            "fleet.yaml:19: routes 1: the weights of a route must add up to 100%, not 90.0%",
        ),
        ("role: both", "role: prefill", "fleet.yaml:5: pools 1: llama-3.1-8b has prefill pools"),
        ("role: both", "roles: both", "`roles` is not a key of pools 1; did you mean `role`?"),
        ("    kv: bf16\n", "    kv: bf16\n    colour: red\n", "fleet.yaml:9: `colour` is not a key of pools 1"),
        ("    site: main\n", "    site: main\n    endpoint: a:1\n", "did you mean `endpoints`?"),
        (
            "settings: {max_num_seqs: 256}",
            "settings: {a: [1]}",
            "fleet.yaml:14: a: must be a number, true, false or a word",
        ),
        ("ttft_s: 1,", "ttft: 1,", "fleet.yaml:22: `ttft` is not a key of slo; did you mean `ttft_s`?"),
        ("ttft_s: 1, tpot_s: 0.05, ", "", "fleet.yaml:22: slo: an SLO must limit at least one of"),
        ("[10.0.0.1:8000]", "[a:1, b:1, c:1]", "fleet.yaml:5: pools 1: the pool has 3 endpoints but only 2 replicas"),
        (
            "[10.0.0.1:8000]",
            "\n      - 10.0.0.1:8000\n      - 10.0.0.2:99999",
            "fleet.yaml:19: endpoints 2: '10.0.0.2:99999' has an invalid port; write a port from 1 to 65535",
        ),
        ("10.0.0.1:8000", "10.0.0.1:0", "'10.0.0.1:0' has an invalid port; write a port from 1 to 65535"),
        ("version: 1", "version: 9", "fleet.yaml:1: version: this penstock reads version 1"),
        (
            "nodes: 1, spare_nodes: 0",
            "nodes: 1, spare_nodes: 2",
            "fleet.yaml:3: nodes 1: spare_nodes is 2; write 0 to 1",
        ),
    ],
)
def test_a_mistake_is_one_line_with_its_number_and_the_fix(old: str, new: str, complaint: str) -> None:
    assert FILE.count(old) >= 1
    with pytest.raises(UsageError) as refused:
        read_fleet(FILE.replace(old, new, 1), "fleet.yaml")
    assert complaint in str(refused.value)
    assert "\n" not in str(refused.value)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, len(FILE)), st.text(max_size=12))
def test_any_damage_is_a_fleet_or_one_line(cut: int, junk: str) -> None:
    complaint = ""
    try:
        read_fleet(FILE[:cut] + junk + FILE[cut + len(junk) :], "fleet.yaml")
    except UsageError as error:
        complaint = str(error)
    assert "\n" not in complaint
