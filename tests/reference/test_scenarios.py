"""Random work is only a test if it holds what it is meant to hold."""

from collections import Counter

from reference.engine import simulate
from reference.scenarios import BLOCK_TOKENS, KINDS, random_scenario

ROUND = len(KINDS) * len(BLOCK_TOKENS)


def test_the_same_seed_gives_the_same_scenario() -> None:
    assert random_scenario(11) == random_scenario(11)
    assert random_scenario(11) != random_scenario(11 + ROUND)


def test_one_round_of_seeds_has_every_kind_with_every_block_size() -> None:
    scenarios = [random_scenario(seed) for seed in range(ROUND)]
    assert {(one.kind, one.settings.block_tokens) for one in scenarios} == {(a, b) for a in KINDS for b in BLOCK_TOKENS}
    assert all(50 <= len(one.requests) <= 400 for one in scenarios)


def test_paths_are_a_tree_of_whole_segments_that_more_than_one_request_sees() -> None:
    for seed in range(ROUND):
        scenario = random_scenario(seed)
        parents: dict[int, int | None] = {}
        seen: Counter[int] = Counter()
        for request in scenario.requests:
            parent = None
            for segment, tokens in request.path:
                assert tokens == scenario.segment_tokens[segment]
                assert parents.setdefault(segment, parent) == parent
                parent = segment
            if request.own >= 0:
                assert parents.setdefault(request.own, parent) == parent
                rest = request.input_tokens - sum(tokens for _, tokens in request.path)
                assert scenario.segment_tokens[request.own] == rest + request.output_tokens
            seen.update({segment for segment, _ in request.path} | ({request.own} - {-1}))
        assert all(requests > 1 for requests in seen.values())


def test_one_round_of_seeds_meets_preemption_hits_eviction_chunks_windows_experts_and_backlog() -> None:
    met: Counter[str] = Counter()
    for seed in range(ROUND):
        scenario = random_scenario(seed)
        result = simulate(scenario.requests, scenario.settings, scenario.cost, users=scenario.users)
        last_arrival_s = scenario.requests[-1].arrival_s
        first_hits = sum(outcome.prefix_hit_tokens for outcome in result.outcomes)
        met["preemption"] += result.preemptions > 0
        met["hits"] += first_hits > 0
        met["resumed hits"] += result.hit_tokens > first_hits
        met["eviction"] += result.evictions > 0
        met["chunks"] += any(start > 0 for step in result.steps for start, _ in step.chunks) and first_hits == 0
        met["windows"] += any(context > min(scenario.cost.limits) for step in result.steps for context in step.contexts)
        met["experts"] += scenario.cost.expert_s > 0
        met["backlog"] += scenario.users is None and result.steps[-1].end_s > 1.25 * last_arrival_s
    assert min(met.values()) >= 4, met
