"""Which of three machines holds a model, how fast is it there, and does it keep a promise? Run: python compare.py"""

import penstock

MODEL, ON = "llama-3.1-70b", "mi300x:1,h100:2,h200:2"


def main() -> None:
    """Ask three questions about the same machines and print a row for each."""
    fits = penstock.fit(MODEL, ON, context="32k")
    fast = penstock.predict(MODEL, ON, input_tokens="1k", output_tokens=256, concurrency=16)
    kept = penstock.simulate(MODEL, ON, rate=0.5, requests=200, slo="ttft=2s,tpot=60ms")
    for room, speed, run in zip(fits.rows(), fast.rows(), kept.rows(), strict=True):
        tokens, output = room["kv_tokens"], speed["output_tokens_per_s"]
        print(f"{room['accelerator']} x{room['devices']}: {tokens} KV tokens, {output} tok/s, {run['verdict']}")


if __name__ == "__main__":
    main()
