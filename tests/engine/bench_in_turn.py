"""Run `vllm bench serve` several times in one process of the engine's environment.

Importing vLLM takes longer than a short run. Each line of standard input is the JSON list of one run's arguments.
"""

import argparse
import asyncio
import json
import sys

from vllm.benchmarks.serve import add_cli_args, main_async  # type: ignore[import-not-found]

for line in sys.stdin:
    parser = argparse.ArgumentParser()
    add_cli_args(parser)
    asyncio.run(main_async(parser.parse_args(json.loads(line))))
    sys.stdout.write("run ended\n")
    sys.stdout.flush()
