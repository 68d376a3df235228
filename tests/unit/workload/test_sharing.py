from math import sqrt

import numpy as np
import pytest

from penstock.errors import UsageError
from penstock.workload import ClosedLoop, Conversations, Fixed, Poisson, Requests, SystemPrompts, Workload
from penstock.workload.synthetic.turns import Turns
from workloads import CHAT, assert_prefixes_are_a_causal_tree, joined, paths

TEN_AND_FIVE = Fixed(input_tokens=10, output_tokens=5)


def talk(sharing: Conversations, requests: int, *, rate_per_s: float = 1.0, seed: int = 1) -> Requests:
    workload = Workload(name="talk", arrivals=Poisson(rate_per_s=rate_per_s), lengths=TEN_AND_FIVE, sharing=sharing)
    return joined(workload.blocks(seed=seed, requests=requests))


def test_popularity_of_system_prompts_is_zipfian() -> None:
    prompts = SystemPrompts(prompts=3, tokens=100, zipf_exponent=1.0)
    workload = Workload(name="shared", arrivals=Poisson(rate_per_s=1), lengths=TEN_AND_FIVE, sharing=prompts)
    requests = joined(workload.blocks(seed=1, requests=60_000))
    assert requests.prefixes is not None
    counts = np.bincount(requests.prefixes.path)
    # Weights 1, 1/2, 1/3 sum to 11/6.
    expected = 60_000 * np.array([6 / 11, 3 / 11, 2 / 11])
    assert counts == pytest.approx(expected, abs=4 * sqrt(60_000 / 4))
    assert set(requests.input_tokens.tolist()) == {100 + 10}


def test_a_turn_begins_with_the_prompt_and_the_answer_before_it() -> None:
    # One conversation at a time, which nobody ever leaves: 10 tokens brought and 5 answered per turn.
    requests = talk(Conversations(mean_turns=1e12, turn_gap_s=1.0, max_history_tokens=10**6), 5)
    assert paths(requests) == [[], [0], [0, 1], [0, 1, 2], [0, 1, 2, 3]]
    assert requests.input_tokens.tolist() == [10, 25, 40, 55, 70]
    assert_prefixes_are_a_causal_tree(requests)


def test_a_conversation_ends_when_its_history_is_full() -> None:
    # 15 tokens a turn: after the third turn 45 >= 40, so the fourth opens another conversation.
    requests = talk(Conversations(mean_turns=1e12, turn_gap_s=1.0, max_history_tokens=40), 7)
    assert requests.input_tokens.tolist() == [10, 25, 40] * 2 + [10]
    assert requests.prefixes is not None
    assert (requests.prefixes.own >= 0).tolist() == [True, True, False] * 2 + [True]


def test_a_conversation_ends_after_its_last_turn_wherever_blocks_are_cut() -> None:
    sharing = Conversations(mean_turns=1e12, turn_gap_s=1.0, max_history_tokens=10**6, max_turns=7)
    requests = talk(sharing, 65536 + 14)
    assert requests.input_tokens.tolist() == [10 + 15 * (row % 7) for row in range(65536 + 14)]


def test_a_conversation_begins_with_its_system_prompt_and_keeps_it() -> None:
    system = SystemPrompts(prompts=2, tokens=100)
    requests = talk(Conversations(mean_turns=1e12, turn_gap_s=1.0, max_history_tokens=131, system=system), 300)
    assert requests.input_tokens.tolist() == [110, 125, 140] * 100
    firsts = [path[0] for path in paths(requests)]
    assert set(firsts) == {0, 1}
    assert firsts == [first for first in firsts[::3] for _ in range(3)]
    assert_prefixes_are_a_causal_tree(requests)


def test_a_prompt_longer_than_the_history_allowed_makes_single_turns() -> None:
    system = SystemPrompts(prompts=1, tokens=100)
    requests = talk(Conversations(mean_turns=1e12, turn_gap_s=3.0, max_history_tokens=50, system=system), 20)
    assert set(requests.input_tokens.tolist()) == {110}
    assert {tuple(path) for path in paths(requests)} == {(0,)}


def test_turns_have_the_mean_asked_for() -> None:
    requests = talk(Conversations(mean_turns=4.0, turn_gap_s=20.0, max_history_tokens=10**6), 100_000)
    assert requests.prefixes is not None
    ended = int((requests.prefixes.own < 0).sum())
    # Each turn is the last with probability 1/4.
    assert ended == pytest.approx(100_000 / 4, abs=4 * sqrt(100_000 * 3 / 16))


def test_an_answer_can_be_read_before_it_is_replied_to() -> None:
    gap_s, rate = 30.0, 10.0
    requests = talk(Conversations(mean_turns=1e12, turn_gap_s=gap_s, max_history_tokens=10**6), 20_000, rate_per_s=rate)
    assert requests.prefixes is not None
    written_at = dict(zip(requests.prefixes.own.tolist(), requests.arrival_s.tolist(), strict=True))
    waits = np.array(
        [at - written_at[path[-1]] for at, path in zip(requests.arrival_s, paths(requests), strict=True) if path]
    )
    assert waits.mean() == pytest.approx(gap_s, rel=0.02)
    # Half a round is at least 150 requests, which at this rate vary by a few per cent of their 15 s.
    assert waits.min() > 0.5 * gap_s * (1 - 4 / sqrt(150))
    assert waits.max() < 1.5 * gap_s * (1 + 4 / sqrt(450))
    assert waits.std() > 0.1 * gap_s


def test_users_of_a_closed_loop_each_hold_one_conversation() -> None:
    sharing = Conversations(mean_turns=1e12, turn_gap_s=1.0, max_history_tokens=10**6)
    workload = Workload(name="loop", arrivals=ClosedLoop(users=3), lengths=TEN_AND_FIVE, sharing=sharing)
    requests = joined(workload.blocks(seed=1, requests=9))
    assert paths(requests) == [[]] * 3 + [[0], [1], [2]] + [[0, 3], [1, 4], [2, 5]]


def test_conversations_go_on_across_blocks_and_only_open_ones_are_remembered() -> None:
    sharing = Conversations(
        mean_turns=6.0, turn_gap_s=1.0, max_history_tokens=4000, system=SystemPrompts(prompts=5, tokens=50)
    )
    turns = Turns(sharing, seed=1, slots=1000, shuffled=True)
    rng = np.random.default_rng(1)
    nodes = []
    for block in range(12):
        brought, answered = CHAT.draw(rng, 65536)
        turns.extend(block, brought, answered)
        nodes.append(len(turns._nodes))  # noqa: SLF001 - what is held is the point
    # 1000 open conversations of a few turns: the past is dropped before it exceeds some blocks' worth.
    assert max(nodes) < 6 * 65536
    assert len(turns._table) > 8 * 65536  # noqa: SLF001 - only lengths of segments are kept for good


def test_conversations_form_a_causal_tree_across_blocks() -> None:
    sharing = Conversations(
        mean_turns=5.0, turn_gap_s=700.0, max_history_tokens=8000, system=SystemPrompts(prompts=3, tokens=64)
    )
    workload = Workload(name="talk", arrivals=Poisson(rate_per_s=100), lengths=CHAT, sharing=sharing)
    assert_prefixes_are_a_causal_tree(joined(workload.blocks(seed=5, requests=70_000)))


@pytest.mark.parametrize(
    "make",
    [
        lambda: SystemPrompts(prompts=0, tokens=1),
        lambda: SystemPrompts(prompts=1, tokens=0),
        lambda: SystemPrompts(prompts=1, tokens=1, zipf_exponent=-1.0),
        lambda: Conversations(mean_turns=0.5, turn_gap_s=1.0, max_history_tokens=1),
        lambda: Conversations(mean_turns=2, turn_gap_s=0.0, max_history_tokens=1),
        lambda: Conversations(mean_turns=2, turn_gap_s=1.0, max_history_tokens=0),
        lambda: Conversations(mean_turns=2, turn_gap_s=1.0, max_history_tokens=10, max_turns=0),
        lambda: Conversations(mean_turns=2, turn_gap_s=1.0, max_history_tokens=10, max_turns=1001),
        lambda: talk(Conversations(mean_turns=2, turn_gap_s=1e9, max_history_tokens=10), 1),
    ],
)
def test_sharing_that_cannot_be_meant_is_refused(make: object) -> None:
    with pytest.raises(UsageError):
        make()  # type: ignore[operator]
