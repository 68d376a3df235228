"""Holds the commented example plan that `penstock plan --init` writes."""

EXAMPLE_PLAN = """\
# A plan for `penstock plan FILE`. Delete what you do not need: everything marked (default) may be left out.
# Any number may be a table instead: {value: 0.09, low: 0.07, high: 0.12, source: "our contract"}.
# The tornado and the Monte Carlo draws vary the number over this range. 25k and $25,000 are accepted as numbers.
# For editors that use schemas: run `penstock plan --schema > plan.schema.json` and make this the first line:
# yaml-language-server: $schema=plan.schema.json

name: 70B chat and an agent, rented
start: 2026-12-01               # (default: today)
horizon_years: 1                # (default: 3)
# step_months: 3                # months between changes of the fleet (default: no changes; 3 to 12 if demand grows)

workloads:
  - name: chat
    model: llama-3.3-70b        # a name from `penstock catalog models`, a config.json or a checkpoint directory
    weights: [checkpoint, fp8]  # formats to consider (default: the checkpoint's own)
    # kv: auto                  # auto, bf16, fp16 or fp8 (default: auto)
    # engine: vllm              # or [vllm, sglang]; here or for the whole plan (default: the fastest measured there)
    # mtp: true                 # whether a checkpoint's own multi-token-prediction layers may draft (default: true)
    # disaggregated: false      # whether separate replicas may prefill and decode (default: false)
    slo: ttft=1s,tpot=50ms,attain=95%
    users: 200                  # requests in flight at the peak; or  requests_per_s: {value: 20, low: 10, high: 40}
    # think: 10s                # pause of a user between two requests (default: none)
    growth_per_year: 0%         # (default)
    mean_load: 40%              # mean demand over peak demand (default: 50%)
    # api: {input_usd_per_mtok: 0.6, output_usd_per_mtok: 0.6}   # the same model on an API, to compare with
    # trace: my_requests.csv    # instead of lengths; with  columns: {arrival: ts, input: prompt, output: answer}
    lengths: [{input: 2k, output: 400}]   # or several: {input: 1k, output: 256, share: 70%}, ...
  - name: agent
    model: deepseek-r1
    slo: ttft=5s,tpot=50ms,attain=95%
    users: 64
    mean_load: 40%
    lengths: [{input: 16k, output: 1k}]

accelerators: [h200, mi325x, mi355x]      # (default: all verified, which is every one with a catalog price)
# accelerators:                 # the same list with your own prices
#   - mi300x
#   - id: mi325x
#     buy_usd: {value: 22000, low: 17000, high: 24000, source: "quote of 2026-11-02"}
#     node_usd: 250k            # or the price of a whole server, instead of buy_usd
#     rent_usd_per_hour: 1.95
#     contracts: [{years: 1, usd_per_hour: 1.80}, {years: 3, usd_per_hour: 1.60}]
#     instances: [1, 2, 4, 8]   # devices per rented instance (default: sizes of recorded SKUs; [] for whole servers)
#     lead_weeks: 12            # from order to service; the report says when to order
#     discounts: [{devices: 64, off: 8%}, {devices: 512, off: 14%}]   # by total volume: agree on a frame order
#     available: 2027-03-01     # first day on which a node can serve
#     max_nodes: 40
#     node_kw: 11.5
#     tp: [1, 2, 8]             # the only tensor-parallel splits to consider (default: all in common use)

# owned:                        # nodes owned already: kept while that is cheaper, else sold; 4xh100 counts devices
#   - {id: 64xh100, age_years: 2, book_usd: 130k, resale_usd: 90k, until: 2029-06-30}

acquire: [rent, contract]       # (default: buy too) rent is by the hour; each way needs a price of the accelerator

sites:                          # (default: one, without a cap)
  - name: main
    usd_per_kwh: 0.087
    pue: 1.3
    hosting_usd_per_kw_month: 195
    # power_cap_kw: 400         # limit on owned nodes at their maximum power, without cooling
    # deny: [intel]             # vendors or accelerators not allowed at this site (export, policy)

stacks:                         # extra engineers; support for owned devices, licences for all devices (defaults shown)
  # `engineers` is the floor, which even the smallest fleet of the vendor needs: 0 by default. Those by size are added.
  # `engineers: 1` alone is one engineer for a fleet of any size.
  amd:
    # engineers: {value: 0, low: 0, high: 2}
    engineers_per_1000_devices: {value: 2.5, low: 0, high: 7.5}
    support_usd_per_device_year: 0
    licence_usd_per_device_year: 0
  # nvidia: {software_gain_per_year: {value: 0%, low: 0%, high: 20%}}   # newer engines; off by default
  nvidia: {engineers: 0}
engineer_usd_per_year: 280000

# resale: fraction of the book value above salvage that a sale at the end brings
# price_change_per_year: yearly change in the prices of later purchases, rents and renewed contracts
finance: {discount_rate: 8%, depreciation_years: 4, salvage: 0%, resale: 0%, price_change_per_year: 0%}
node: {host_usd: 70000, network_usd_per_device: 1900, idle_power: 35%, annual_failures: 4%}

constraints:
  spare_nodes: 1                # N+1: spare nodes of each pool beyond those that the peak needs
  utilisation: 90%              # of capacity within the SLO
  confidence: 80%               # share of cases, over uncertain speed and demand, in which the fleet is enough
  min_vendors: 1                # 2: at least two vendors
  # min_vendor_share: 30%       # minimum share of each of these vendors (default: 10%)
  # max_vendor_share: 70%       # maximum share of any vendor
  # share_of: load              # whether shares are of the load, or of the `devices` that the load needs
"""
