"""Draws a chart of a run over time: queue, batch, KV cache and tokens per pool."""

from collections.abc import Sequence

from penstock.errors import MissingExtra
from penstock.report.drawing.chart_files import draw_chart
from penstock.report.simulate.terminal import pool_label
from penstock.simulation.scenario import Scenario

_SERIES = {
    "waiting": "waiting requests",
    "running": "running requests",
    "kv_used_fraction": "KV used",
    "output_tokens_per_s": "output tok/s",
    "prefill_tokens_per_s": "prompt tok/s",
}


def timeline(scenarios: Sequence[Scenario], suffix: str) -> str | bytes:
    """Draw every simulated pool in the format that the file suffix gives."""
    try:
        import altair as alt  # noqa: PLC0415 - optional extra
    except ImportError:
        raise MissingExtra("charts need an extra: pip install 'penstock[report]'") from None
    rows = [
        {"pool": pool_label(scenario, name), "time_s": column * line.width_s, "series": label, "value": float(value)}
        for scenario in scenarios
        if scenario.outcome is not None
        for name, line in scenario.outcome.timelines.items()
        for field, label in _SERIES.items()
        for column, value in enumerate(getattr(line, field))
    ]
    workload = scenarios[0].question.workload
    data = alt.Data(values=rows)  # type: ignore[no-untyped-call] # altair leaves this one untyped
    base = alt.Chart(data).mark_line(interpolate="step-after", strokeWidth=1.3)
    encoded = base.encode(
        x=alt.X("time_s:Q", title="seconds since the first arrival"),
        y=alt.Y("value:Q", title=None, axis=alt.Axis(tickCount=4)),
        color=alt.Color("pool:N", title=None, legend=alt.Legend(orient="top")),
    ).properties(width=760, height=90)
    chart = encoded.facet(
        row=alt.Row(
            "series:N", title=None, sort=list(_SERIES.values()), header=alt.Header(labelAngle=0, labelAlign="left")
        )
    ).resolve_scale(y="independent")
    titled = chart.properties(
        title=alt.TitleParams(
            f"{scenarios[0].placement.deployment.model.name}: {workload.name}", subtitle=f"Workload: {workload.source}"
        )
    )
    return draw_chart(titled.to_dict(), suffix, workload.name)
