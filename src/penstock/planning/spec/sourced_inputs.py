"""Defines inputs with their range and source, and the default of each input."""

from dataclasses import dataclass, replace
from typing import Final

from penstock.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """One number of the plan: the value used, its possible range, and its source."""

    value: float
    low: float
    high: float
    unit: str
    source: str
    given: bool = False
    """Whether the plan file states it; otherwise it is a default."""

    def __post_init__(self) -> None:
        if not self.low <= self.value <= self.high:
            said = f"low {self.low:g}, value {self.value:g}, high {self.high:g} {self.unit}: not in order"
            raise UsageError(f"{said}; write low <= value <= high")

    def at(self, value: float) -> "Input":
        """Return the input with another value; the range is extended to include it."""
        return replace(self, value=value, low=min(self.low, value), high=max(self.high, value))

    @property
    def uncertain(self) -> bool:
        """Return whether it has a range."""
        return self.low < self.high


def given(value: float, unit: str, *, source: str | None = None, span: tuple[float, float] | None = None) -> Input:
    """Return an input for a number in the plan file; without a range it is exact."""
    low, high = span or (value, value)
    return Input(value=value, low=low, high=high, unit=unit, source=source or "plan file", given=True)


_EIA = "EIA, US industrial average, 12 months to January 2026 (via ycharts.com); range of US regions"
_UPTIME = "between 1.25 (built after 2020, sigmatechconsult.com) and the Uptime Institute 2024 survey's 1.56"
_CLUSTER = "H100 cluster bill of August 2024: switches, optics and cables over devices, 512 and 1,024 GPUs"
_HOST = "8x H100 server quoted at $317,000 (Thinkmate, August 2024) less eight devices; low: SemiAnalysis bill of parts"
_FAILURES = "Llama 3 report: 148 faulty GPUs of 16,384 in 54 days is 6.1% a year at most; 0 is full warranty"
_SCORECARD = '"AMD\'s private inference stack" scorecard: a claim, not a measurement'
_PER_CLUSTER = (
    '"two additional full-time engineers per 800-accelerator cluster" is 2.5 per 1,000 ("AMD\'s private inference '
    'stack" scorecard: a claim, not a measurement, and of no smaller fleet); range: none to three times as many'
)
_CBRE = "CBRE, asking rent for 250-500 kW: $194.95 at the end of 2025, $184.06 a year before, $217.30 worldwide"
_RESALE = (
    "not counted on; high: H100 at 62, 42 and 30% of new after one, two and three years (GLRI, January 2026, low "
    "confidence) is about the book value over four"
)
_PRICES = (
    "prices as today; range: an H100-hour on demand fell by 26% a year (RunPod, January 2024 to November 2025) and on "
    "contract rose by 56% in eight months (SemiAnalysis, $1.70 in October 2025, $2.65 in June 2026)"
)
_GAIN = (
    "engines as they are today; the same cell of InferenceX moved by 15 to 21% within months: give a range to draw it"
)
_IDLE = "assumption of this tool; low: NVIDIA's DPS registry has a GB200 node at 15% of its maximum when idle"
_OURS = "assumption of this tool, without a source; set it"


def _default(value: float, low: float, high: float, unit: str, source: str) -> Input:
    return Input(value=value, low=low, high=high, unit=unit, source=source)


DEFAULTS: Final = {
    "finance.discount_rate": _default(0.08, 0.05, 0.12, "per year", _OURS),
    "finance.depreciation_years": _default(4.0, 3.0, 6.0, "years", _OURS),
    "finance.salvage": _default(0.0, 0.0, 0.15, "of price", _OURS),
    "finance.resale": _default(0.0, 0.0, 1.0, "of book value", _RESALE),
    "finance.price_change_per_year": _default(0.0, -0.26, 0.56, "per year", _PRICES),
    "site.usd_per_kwh": _default(0.087, 0.06, 0.13, "USD/kWh", _EIA),
    "site.pue": _default(1.3, 1.2, 1.56, "", _UPTIME),
    "site.hosting_usd_per_kw_month": _default(195.0, 184.0, 217.0, "USD/kW/month", _CBRE),
    "node.host_usd": _default(70_000.0, 32_000.0, 87_000.0, "USD/8 devices", _HOST),
    "node.network_usd_per_device": _default(1_900.0, 1_900.0, 4_250.0, "USD/device", _CLUSTER),
    "node.idle_power": _default(0.35, 0.15, 0.5, "of maximum", _IDLE),
    "node.annual_failures": _default(0.04, 0.0, 0.061, "of devices/year", _FAILURES),
    "engineer_usd_per_year": _default(280_000.0, 180_000.0, 400_000.0, "USD/year", _SCORECARD),
    "stack.engineers": _default(0.0, 0.0, 0.0, "engineers", "none that do not grow with the fleet"),
    "stack.amd.engineers_per_1000_devices": _default(2.5, 0.0, 7.5, "engineers/1,000 devices", _PER_CLUSTER),
    "stack.engineers_per_1000_devices": _default(0.0, 0.0, 0.0, "engineers/1,000 devices", "none by size"),
    "stack.support_usd_per_device_year": _default(0.0, 0.0, 0.0, "USD/device/year", "no support contract"),
    "stack.licence_usd_per_device_year": _default(0.0, 0.0, 0.0, "USD/device/year", "no licence"),
    "stack.software_gain_per_year": _default(0.0, 0.0, 0.0, "per year", _GAIN),
    "workload.mean_load": _default(0.5, 0.3, 0.8, "of peak", _OURS),
    "workload.growth_per_year": _default(0.0, 0.0, 0.0, "per year", "no growth"),
    "constraints.utilisation": _default(0.9, 0.9, 0.9, "of capacity", "headroom for imbalance between replicas"),
}


def default(key: str) -> Input:
    """Return the default of an input."""
    return DEFAULTS[key]
