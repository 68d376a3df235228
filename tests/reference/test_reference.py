"""The yardstick is checked by hand: tiny cases whose every step is written out."""

import math

import pytest

from reference.engine import ReferenceCost, ReferenceRequest, ReferenceResult, ReferenceSettings, simulate, step_seconds
from reference.kv_blocks import BlockPool, ContentHashes

STEP_S, DECODE_S, TOKEN_S = 0.010, 0.001, 0.0001
COST = ReferenceCost(step_s=STEP_S, decode_s=DECODE_S, prefill_token_s=TOKEN_S)


def settings(
    *, budget: int = 1000, seats: int = 8, block: int = 16, blocks: int = 100, caching: bool = True
) -> ReferenceSettings:
    return ReferenceSettings(
        max_num_batched_tokens=budget,
        max_num_seqs=seats,
        block_tokens=block,
        num_blocks=blocks,
        prefix_caching=caching,
    )


def request(
    inputs: int, outputs: int, *, at_s: float = 0.0, path: tuple[tuple[int, int], ...] = (), own: int = -1
) -> ReferenceRequest:
    return ReferenceRequest(arrival_s=at_s, input_tokens=inputs, output_tokens=outputs, path=path, own=own)


def work(result: ReferenceResult) -> list[tuple[tuple[int, ...], tuple[tuple[int, int], ...]]]:
    """Contexts of the decodes and chunks of the prefills, step by step."""
    return [(step.contexts, step.chunks) for step in result.steps]


def test_one_request_prefills_once_and_then_decodes_a_token_a_step() -> None:
    result = simulate([request(20, 3, at_s=5.0)], settings(), COST)
    assert work(result) == [((), ((0, 20),)), ((20,), ()), ((21,), ())]
    (seen,) = result.outcomes
    assert seen.ttft_s == pytest.approx(STEP_S + 20 * TOKEN_S)
    assert seen.e2e_s == pytest.approx(STEP_S + 20 * TOKEN_S + 2 * (STEP_S + DECODE_S))
    assert seen.tpot_s == pytest.approx(STEP_S + DECODE_S)
    assert result.computed_tokens == 20 + 3 - 1  # the last token is sampled, never computed
    assert result.peak_used_blocks == math.ceil((20 + 3 - 1) / 16)


def test_one_output_token_has_no_time_per_output_token() -> None:
    (seen,) = simulate([request(20, 1)], settings(), COST).outcomes
    assert seen.tpot_s is None
    assert seen.ttft_s == seen.e2e_s


def test_a_long_prompt_is_computed_in_chunks_of_the_budget() -> None:
    result = simulate([request(20, 2)], settings(budget=8), COST)
    assert work(result) == [((), ((0, 8),)), ((), ((8, 16),)), ((), ((16, 20),)), ((20,), ())]
    assert result.outcomes[0].ttft_s == pytest.approx(3 * STEP_S + 20 * TOKEN_S)


def test_what_the_first_prompts_leave_of_the_budget_goes_to_the_next_one() -> None:
    result = simulate([request(6, 1), request(5, 1)], settings(budget=8), COST)
    assert work(result) == [((), ((0, 6), (0, 2))), ((), ((2, 5),))]


def test_a_prompt_that_arrives_during_a_step_is_computed_beside_the_decodes_of_the_next_one() -> None:
    first_step_s = STEP_S + 20 * TOKEN_S
    late = request(30, 2, at_s=first_step_s / 2)
    result = simulate([request(20, 3), late], settings(), COST)
    assert work(result) == [((), ((0, 20),)), ((20,), ((0, 30),)), ((21, 30), ())]
    fused_step_s = STEP_S + DECODE_S + 30 * TOKEN_S
    assert result.outcomes[1].ttft_s == pytest.approx(first_step_s / 2 + fused_step_s)
    assert result.outcomes[0].tpot_s == pytest.approx((fused_step_s + STEP_S + 2 * DECODE_S) / 2)


def test_running_requests_are_served_before_waiting_ones() -> None:
    result = simulate([request(4, 3), request(9, 1, at_s=1e-6)], settings(budget=4, seats=4), COST)
    # The decode takes 1 of the budget of 4 twice; then the first request is gone.
    assert work(result) == [((), ((0, 4),)), ((4,), ((0, 3),)), ((5,), ((3, 6),)), ((), ((6, 9),))]


def test_seats_limit_how_many_run() -> None:
    result = simulate([request(4, 2), request(4, 1), request(4, 1)], settings(seats=2), COST)
    assert work(result) == [((), ((0, 4), (0, 4))), ((4,), ((0, 4),))]


def test_an_idle_engine_waits_for_the_next_arrival() -> None:
    result = simulate([request(4, 1), request(4, 1, at_s=60.0)], settings(), COST)
    assert result.steps[1].start_s == 60.0
    assert result.outcomes[1].ttft_s == pytest.approx(STEP_S + 4 * TOKEN_S)


def test_a_step_is_the_sum_of_its_terms() -> None:
    cost = ReferenceCost(
        step_s=1.0,
        decode_s=0.5,
        prefill_token_s=0.25,
        expert_s=8.0,
        expert_miss=0.5,
        limits=(math.inf, 4.0),
        context_s=(0.01, 0.1),
        pair_s=(0.001, 0.02),
    )
    seconds = step_seconds(cost, [3, 10], [(2, 6)])
    everything = 0.01 * (3 + 10) + 0.001 * (6**2 / 2 - 2**2 / 2)
    window = 0.1 * (3 + 4) + 0.02 * ((4**2 / 2 + 4 * (6 - 4)) - 2**2 / 2)
    assert seconds == pytest.approx(1 + 2 * 0.5 + 4 * 0.25 + 8 * (1 - 0.5 ** (2 + 4)) + everything + window)


def test_chunks_of_a_prompt_pay_for_the_same_pairs_as_the_whole() -> None:
    cost = ReferenceCost(step_s=0.0, limits=(7.0,), context_s=(0.0,), pair_s=(1e-3,))
    whole = simulate([request(20, 1)], settings(), cost).outcomes[0].e2e_s
    chunked = simulate([request(20, 1)], settings(budget=3, seats=3), cost).outcomes[0].e2e_s
    assert whole == pytest.approx(1e-3 * (7**2 / 2 + 7 * (20 - 7)))
    assert chunked == pytest.approx(whole)


def test_a_growing_request_preempts_the_last_one_which_resumes_from_its_own_blocks() -> None:
    # 4 blocks of 4: step 1 fills them with 8 + 7 tokens. Step 2: the first needs a 9th position, so the second goes;
    # its half block is taken, its full block stays findable. Step 3: the second needs ceil(8/4) = 2 blocks, 1 is free.
    # Step 4: the first has left; the second has 7 + 1 tokens, hits 4, computes 4 and samples its second token.
    result = simulate([request(8, 3), request(7, 3)], settings(block=4, blocks=4), COST)
    assert work(result) == [
        ((), ((0, 8), (0, 7))),
        ((8,), ()),
        ((9,), ()),
        ((), ((4, 8),)),
        ((8,), ()),
    ]
    first, second = result.outcomes
    assert (first.preemptions, second.preemptions, result.preemptions) == (0, 1, 1)
    assert (second.prefix_hit_tokens, result.hit_tokens) == (0, 4)
    assert result.computed_tokens == (8 + 2) + 7 + (8 - 4) + 1
    assert second.ttft_s == pytest.approx(STEP_S + 15 * TOKEN_S)
    assert second.e2e_s == pytest.approx(
        second.ttft_s + 2 * (STEP_S + DECODE_S) + STEP_S + 4 * TOKEN_S + STEP_S + DECODE_S
    )


def test_the_last_request_preempts_itself_when_it_is_the_one_that_does_not_fit() -> None:
    result = simulate([request(7, 3), request(8, 3)], settings(block=4, blocks=4), COST)
    # Step 2: the first still fits its second block (8 positions); the second would need a third block.
    assert work(result)[1] == ((7,), ())
    assert [seen.preemptions for seen in result.outcomes] == [0, 1]


def test_without_prefix_caching_a_resumed_request_computes_everything_again() -> None:
    result = simulate([request(8, 3), request(7, 3)], settings(block=4, blocks=4, caching=False), COST)
    assert work(result)[3] == ((), ((0, 8),))
    assert result.hit_tokens == 0


def test_nobody_is_admitted_in_a_step_that_preempts_nor_before_the_preempted_one() -> None:
    small = request(1, 1, at_s=1e-6)
    result = simulate([request(8, 3), request(7, 3), small], settings(block=4, blocks=4), COST)
    # One block is free in steps 2 and 3 and the small one needs one, but it is not its turn.
    assert work(result)[1:4] == [((8,), ()), ((9,), ()), ((), ((4, 8), (0, 1)))]


def test_several_preempted_in_one_step_resume_in_their_order_of_admission() -> None:
    # 7 blocks of 1 token, all used by 2 + 2 + 2 + 1 prompt tokens. Step 2: the first needs a block, the fourth goes;
    # the second needs one, the third goes. Both finish. Step 3 resumes the third (2 + 1 tokens), then the fourth.
    requests = [request(2, 2), request(2, 2), request(2, 2), request(1, 2)]
    result = simulate(requests, settings(block=1, blocks=7, caching=False), COST)
    assert work(result) == [((), ((0, 2), (0, 2), (0, 2), (0, 1))), ((2, 2), ()), ((), ((0, 3), (0, 2)))]
    assert [seen.preemptions for seen in result.outcomes] == [0, 0, 1, 1]


def test_a_request_is_admitted_only_when_its_whole_input_fits() -> None:
    # 5 blocks of 4, budget 4: in steps 2 and 3 the first holds 2 of them. A first chunk of the second would fit into
    # the other 3, its 13 tokens would not.
    result = simulate([request(4, 3), request(13, 1, at_s=1e-6)], settings(budget=4, seats=4, block=4, blocks=5), COST)
    assert work(result)[:4] == [((), ((0, 4),)), ((4,), ()), ((5,), ()), ((), ((0, 4),))]


def test_a_shared_prompt_is_hit_by_full_blocks_once_it_was_computed() -> None:
    system = ((0, 40),)
    result = simulate([request(50, 1, path=system), request(60, 1, at_s=1.0, path=system)], settings(), COST)
    assert work(result) == [((), ((0, 50),)), ((), ((32, 60),))]
    assert [seen.prefix_hit_tokens for seen in result.outcomes] == [0, 40 // 16 * 16]
    assert result.peak_used_blocks == math.ceil(60 / 16)


def test_a_request_hits_what_was_scheduled_before_it_in_the_same_step() -> None:
    system = ((0, 40),)
    result = simulate([request(50, 1, path=system), request(60, 1, path=system)], settings(), COST)
    assert work(result) == [((), ((0, 50), (32, 60)))]
    assert result.peak_used_blocks == math.ceil(50 / 16) + math.ceil(60 / 16) - 2


def test_at_least_the_last_token_of_a_cached_prompt_is_computed() -> None:
    same = ((0, 32),)
    result = simulate([request(32, 1, path=same), request(32, 1, at_s=1.0, path=same)], settings(), COST)
    assert work(result)[1] == ((), ((16, 32),))


def test_segments_hit_only_behind_the_same_parent() -> None:
    requests = [
        request(40, 1, path=((0, 16), (1, 16))),
        request(40, 1, at_s=1.0, path=((2, 16), (1, 16))),
        request(40, 1, at_s=2.0, path=((0, 16), (1, 16))),
    ]
    assert [seen.prefix_hit_tokens for seen in simulate(requests, settings(), COST).outcomes] == [0, 0, 32]


def test_the_next_turn_hits_the_prompt_and_the_answer_of_the_last_one() -> None:
    # The first turn leaves 20 + 30 - 1 = 49 positions in the cache, 3 full blocks; the second turn continues it.
    first = request(20, 30, own=7)
    second = request(60, 1, at_s=10.0, path=((7, 50),))
    result = simulate([first, second], settings(), COST)
    assert result.outcomes[1].prefix_hit_tokens == 48


def test_the_least_recently_used_content_is_evicted_tail_first() -> None:
    # 6 blocks of 4. A and B leave 2 blocks each; A is used again. 13 tokens take 2 unused blocks and then B, not A.
    a, b = ((0, 8),), ((1, 8),)
    requests = [
        request(8, 1, at_s=0.0, path=a),
        request(8, 1, at_s=1.0, path=b),
        request(9, 1, at_s=2.0, path=a),
        request(13, 1, at_s=3.0),
        request(9, 1, at_s=4.0, path=a),
        request(9, 1, at_s=5.0, path=b),
    ]
    result = simulate(requests, settings(block=4, blocks=6), COST)
    assert [seen.prefix_hit_tokens for seen in result.outcomes] == [0, 0, 8, 0, 8, 0]


def test_a_hit_in_the_queue_counts_against_the_free_blocks() -> None:
    # 4 blocks of 4. The prompt of A stays in the queue (2 blocks). C runs on 2 blocks (5 tokens). A2 needs 3 blocks of
    # which 2 are hit, but they are the only free ones: it waits until C is gone.
    requests = [request(8, 1, path=((0, 8),)), request(5, 3, at_s=1.0), request(9, 1, at_s=1.001, path=((0, 8),))]
    result = simulate(requests, settings(block=4, blocks=4), COST)
    assert work(result) == [((), ((0, 8),)), ((), ((0, 5),)), ((5,), ()), ((6,), ()), ((), ((8, 9),))]


def test_users_of_a_closed_loop_send_the_next_request_when_theirs_is_done() -> None:
    result = simulate([request(4, 2), request(4, 3), request(6, 1)], settings(), COST, users=2)
    assert work(result) == [((), ((0, 4), (0, 4))), ((4, 4), ()), ((5,), ((0, 6),))]
    third = result.outcomes[2]
    assert third.arrival_s == pytest.approx(STEP_S + 8 * TOKEN_S + STEP_S + 2 * DECODE_S)
    assert third.ttft_s == pytest.approx(STEP_S + DECODE_S + 6 * TOKEN_S)


def test_what_can_never_run_is_refused() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        simulate([request(16, 2)], settings(block=4, blocks=4), COST)
    assert simulate([request(16, 1)], settings(block=4, blocks=4), COST).peak_used_blocks == 4
    with pytest.raises(ValueError, match="path"):
        simulate([request(4, 1, path=((0, 5),))], settings(), COST)
    with pytest.raises(ValueError, match="ordered"):
        simulate([request(4, 1, at_s=1.0), request(4, 1)], settings(), COST)
    with pytest.raises(ValueError, match="max_num_seqs"):
        settings(budget=4, seats=8)


def test_freed_blocks_that_cannot_be_found_are_taken_first_and_found_ones_last_tail_first() -> None:
    pool, hashes = BlockPool(6), ContentHashes()
    table = pool.take_new(4)
    head = hashes.of(None, ((0, 0),))
    pool.register(table[0], head)
    pool.register(table[1], hashes.of(head, ((0, 1),)))
    pool.release(table)
    assert pool.free_order() == [3, 2, 4, 5, 1, 0]
    pool.check([])


def test_equal_content_in_two_blocks_is_found_until_both_are_taken() -> None:
    pool, hashes = BlockPool(2), ContentHashes()
    content = hashes.of(None, ((0, 0),))
    first, second = pool.take_new(2)
    pool.register(first, content)
    pool.register(second, content)
    assert pool.longest_hit([content]) == [first]
    pool.release([first])
    pool.take_new(1)
    assert pool.longest_hit([content]) == [second]
    pool.release([second])
    pool.take_new(1)
    assert pool.longest_hit([content]) == []
    assert pool.evictions == 2


def test_a_lost_or_doubled_block_is_noticed() -> None:
    pool = BlockPool(3)
    table = pool.take_new(2)
    pool.check([table])
    with pytest.raises(AssertionError, match="free and held, or neither"):
        pool.check([])
    with pytest.raises(AssertionError, match="references"):
        pool.check([table, table[:1]])
