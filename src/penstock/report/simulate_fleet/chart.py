"""Draws a chart that compares policies by SLO attainment, goodput and the destinations of requests."""

from collections.abc import Sequence

from penstock.errors import MissingExtra
from penstock.fleet.pools import Fleet
from penstock.report.drawing.chart_files import draw_chart
from penstock.simulation.compare_policies import PolicyRun
from penstock.simulation.replica import ReplicaPool
from penstock.workload import Workload


def policies_chart(
    fleet: Fleet, pools: Sequence[ReplicaPool], workload: Workload, runs: Sequence[PolicyRun], suffix: str
) -> str | bytes:
    """Draw the goodput and SLO attainment of each policy, and the destinations of requests by prompt length."""
    try:
        import altair as alt  # noqa: PLC0415 - optional extra
    except ImportError:
        raise MissingExtra("charts need an extra: pip install 'penstock[report]'") from None
    names = [run.policy.name for run in runs]
    figures = [
        {
            "policy": run.policy.name,
            "goodput": run.outcome.goodput_tokens_per_s,
            "met": run.worst_met_fraction,
        }
        for run in runs
    ]
    went = [
        {
            "policy": run.policy.name,
            "prompt": f"from {row.from_tokens:,}",
            "order": row.from_tokens,
            "pool": pool.name,
            "share": share,
        }
        for run in runs
        for row in run.destinations
        for pool, share in zip(pools, row.shares, strict=True)
    ]
    data = alt.Data(values=figures)  # type: ignore[no-untyped-call] # altair leaves this one untyped
    policy = alt.Y("policy:N", title=None, sort=names)
    bars = [
        alt.Chart(data).mark_bar().encode(y=policy, x=alt.X("goodput:Q", title="goodput, tok/s")),
        alt.Chart(data)
        .mark_bar()
        .encode(y=policy, x=alt.X("met:Q", title="SLO met, worst class", axis=alt.Axis(format="%"))),
    ]
    where = (
        alt.Chart(alt.Data(values=went))  # type: ignore[no-untyped-call] # same
        .mark_bar()
        .encode(
            x=alt.X("mean(share):Q", title="share of requests", stack="normalize", axis=alt.Axis(format="%")),
            y=alt.Y("prompt:N", title="prompt tokens", sort=alt.SortField("order")),
            color=alt.Color("pool:N", title=None, legend=alt.Legend(orient="top")),
        )
        .properties(width=180, height=90)
        .facet(facet=alt.Facet("policy:N", title=None, sort=names), columns=4)
    )
    sized = [bar.properties(width=340, height=22 * len(runs)) for bar in bars]
    chart = alt.vconcat(alt.hconcat(*sized), where).properties(
        title=alt.TitleParams(f"{fleet.name}: {workload.name}", subtitle=f"Workload: {workload.source}")
    )
    return draw_chart(chart.to_dict(), suffix, fleet.name)
