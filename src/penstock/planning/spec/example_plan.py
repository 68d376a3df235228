"""Holds the commented example plan that `penstock plan --init` writes."""

EXAMPLE_PLAN = """\
# A plan for `penstock plan FILE`. Delete what you do not need: everything marked (default) may be left out.
# Any number may be a table instead: {value: 0.09, low: 0.07, high: 0.12, source: "our contract"}.
# The range is what the tornado and the Monte Carlo move it through. 25k and $25,000 are read as well.
# For editors that know schemas: penstock plan --schema > plan.schema.json, and as first line here
# yaml-language-server: $schema=plan.schema.json

name: 70B chat
start: 2026-12-01               # (default: today)
horizon_years: 3                # (default)
# step_months: 12               # how often the fleet may change (default: once; yearly where demand grows)

workloads:
  - name: chat
    model: llama-3.1-70b        # a name from `penstock catalog models`, a config.json or a checkpoint directory
    weights: [checkpoint, fp8]  # formats to consider (default: the checkpoint's own)
    # kv: auto                  # auto, bf16, fp16 or fp8 (default: auto)
    # engine: vllm              # or [vllm, sglang]; here or for the whole plan (default: the fastest measured there)
    # mtp: true                 # whether a checkpoint's own multi-token-prediction layers may draft (default: true)
    # disaggregated: false      # whether prompts and answers may have replicas of their own (default: false)
    slo: ttft=2s,tpot=60ms,attain=95%
    users: 512                  # requests in flight at the peak; or  requests_per_s: {value: 20, low: 10, high: 40}
    # think: 10s                # pause of a user between two requests (default: none)
    growth_per_year: 0%         # (default)
    mean_load: 50%              # mean demand over peak demand (default)
    lengths:                    # or  trace: my_requests.csv, and  columns: {arrival: ts, input: prompt, output: answer}
      - {input: 1k, output: 256, share: 50%}
      - {input: 3k, output: 512, share: 35%}
      - {input: 4k, output: 1k,  share: 15%}

accelerators: all verified      # (default) every verified part with a price in the catalog; or a list:
# accelerators:
#   - mi300x
#   - id: mi325x
#     buy_usd: {value: 22000, low: 17000, high: 24000, source: "quote of 2026-11-02"}
#     node_usd: 250k            # or the price of a whole server, instead of buy_usd
#     rent_usd_per_hour: 1.95
#     contracts: [{years: 1, usd_per_hour: 1.80}, {years: 3, usd_per_hour: 1.60}]
#     lead_weeks: 12            # from order to service; the report says when to order
#     discounts: [{devices: 64, off: 8%}, {devices: 512, off: 14%}]   # of all that is bought: agree on a frame order
#     available: 2027-03-01     # first day a node of it can serve
#     max_nodes: 40
#     node_kw: 11.5
#     tp: [1, 2, 8]             # tensor-parallel splits and no others (default: every split people run there)

# owned:                        # nodes that stand there already: kept while they pay, else sold
#   - {id: 64xh100, age_years: 2, book_usd: 130k, resale_usd: 90k, until: 2029-06-30}

acquire: [buy, rent, contract]  # (default) rent is by the hour; a part without a price of a kind is not offered so

sites:                          # (default: one, without a cap)
  - name: main
    usd_per_kwh: 0.087
    pue: 1.3
    hosting_usd_per_kw_month: 195
    # power_cap_kw: 400         # owned nodes at their maximum, cooling apart
    # deny: [intel]             # vendors or accelerators that may not stand here (export, policy)

stacks:                         # extra engineers; support of what is owned, licences of all devices (defaults shown)
  # `engineers: 1` instead is one engineer, however large the fleet is.
  amd:
    engineers_per_1000_devices: {value: 2.5, low: 0, high: 7.5}
    support_usd_per_device_year: 0
    licence_usd_per_device_year: 0
  # nvidia: {software_gain_per_year: {value: 0%, low: 0%, high: 20%}}   # newer engines; off by default
  nvidia: {engineers: 0}
engineer_usd_per_year: 280000

# resale: of the book value above salvage, what a sale at the end is counted on to bring
# price_change_per_year: of what is bought or rented later, renewed contracts too
finance: {discount_rate: 8%, depreciation_years: 4, salvage: 0%, resale: 0%, price_change_per_year: 0%}
node: {host_usd: 70000, network_usd_per_device: 1900, idle_power: 35%, annual_failures: 4%}

constraints:
  spare_nodes: 1                # N+1: whole nodes each pool keeps beyond what the peak needs
  utilisation: 90%              # of capacity within the SLO
  min_vendors: 1                # 2: at least two vendors
  # min_vendor_share: 30%       # what each of them carries at least (default: 10%)
  # max_vendor_share: 70%       # no more than this with one vendor
  # share_of: load              # of load, or of the devices the load takes
"""
