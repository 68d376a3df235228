"""Defines the default of each plan input, with its range, unit and source."""

from typing import Final

from penstock.planning.spec.sourced_inputs import Input

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
_NO_FLOOR = (
    "no floor: the only source counts engineers of 800 accelerators, and none of a small fleet; state your own team"
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


DISCOUNT_RATE: Final = _default(0.08, 0.05, 0.12, "per year", _OURS)
DEPRECIATION_YEARS: Final = _default(4.0, 3.0, 6.0, "years", _OURS)
SALVAGE: Final = _default(0.0, 0.0, 0.15, "of price", _OURS)
RESALE: Final = _default(0.0, 0.0, 1.0, "of book value", _RESALE)
PRICE_CHANGE: Final = _default(0.0, -0.26, 0.56, "per year", _PRICES)
USD_PER_KWH: Final = _default(0.087, 0.06, 0.13, "USD/kWh", _EIA)
PUE: Final = _default(1.3, 1.2, 1.56, "", _UPTIME)
HOSTING_USD: Final = _default(195.0, 184.0, 217.0, "USD/kW/month", _CBRE)
HOST_USD: Final = _default(70_000.0, 32_000.0, 87_000.0, "USD/8 devices", _HOST)
NETWORK_USD: Final = _default(1_900.0, 1_900.0, 4_250.0, "USD/device", _CLUSTER)
IDLE_POWER: Final = _default(0.35, 0.15, 0.5, "of maximum", _IDLE)
ANNUAL_FAILURES: Final = _default(0.04, 0.0, 0.061, "of devices/year", _FAILURES)
ENGINEER_USD: Final = _default(280_000.0, 180_000.0, 400_000.0, "USD/year", _SCORECARD)
ENGINEERS: Final = _default(0.0, 0.0, 0.0, "engineers", _NO_FLOOR)
AMD_ENGINEERS_BY_SIZE: Final = _default(2.5, 0.0, 7.5, "engineers/1,000 devices", _PER_CLUSTER)
ENGINEERS_BY_SIZE: Final = _default(0.0, 0.0, 0.0, "engineers/1,000 devices", "none by size")
SUPPORT_USD: Final = _default(0.0, 0.0, 0.0, "USD/device/year", "no support contract")
LICENCE_USD: Final = _default(0.0, 0.0, 0.0, "USD/device/year", "no licence")
SOFTWARE_GAIN: Final = _default(0.0, 0.0, 0.0, "per year", _GAIN)
MEAN_LOAD: Final = _default(0.5, 0.3, 0.8, "of peak", _OURS)
GROWTH: Final = _default(0.0, 0.0, 0.0, "per year", "no growth")
UTILISATION: Final = _default(0.9, 0.9, 0.9, "of capacity", "headroom for imbalance between replicas")
