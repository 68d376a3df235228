"""Wheels of made-up engine releases, for tests of what learns a release."""

import zipfile
from collections.abc import Mapping
from pathlib import Path

FLAGS = tuple(f"setting-{number}" for number in range(60))


def vllm_files(*flags: str) -> dict[str, str]:
    """Return the files of a small vLLM: its parser, registries, variables and defaults."""
    added = "\n".join(f'        group.add_argument("--{flag}", type=int)' for flag in (*FLAGS, *flags))
    return {
        "vllm/engine/arg_utils.py": f"import argparse\nclass EngineArgs:\n    def add_cli_args(group):\n{added}\n"
        "        action = argparse.BooleanOptionalAction\n",
        "vllm/entrypoints/openai/cli_args.py": "class FrontendArgs:\n    host: str\n    tool_call_parser: str\n",
        "vllm/utils/argparse_utils.py": "class FlexibleArgumentParser: ...\n",
        "vllm/envs.py": 'environment_variables = {\n    "VLLM_FAST": lambda: 1,\n}\n',
        "vllm/config/cache.py": 'from typing import Literal\nCacheDType = Literal["auto", "fp8"]\n'
        "class CacheConfig:\n    gpu_memory_utilization: float = Field(default=0.92, gt=0)\n",
        "vllm/config/model.py": 'TokenizerMode = Literal["auto", "slow"]\n',
        "vllm/model_executor/models/registry.py": '_MODELS = {\n    "LlamaForCausalLM": ("llama", "Llama"),\n}\n',
        "vllm/v1/attention/backends/registry.py": 'class AttentionBackendEnum:\n    FLASH_ATTN = "a"\n    MINE = "b"\n',
        "vllm/tool_parsers/__init__.py": '_PARSERS = {\n    "hermes": (\n        "a",\n    ),\n}\n',
    }


def sglang_files(*flags: str) -> dict[str, str]:
    """Return the files of a small SGLang."""
    fields = "\n".join(f'    {name.replace("-", "_")}: A[int, "help"] = 1' for name in (*FLAGS, *flags))
    return {
        "sglang/srt/server_args.py": "import argparse\nCHOICES = ['triton'] + ['aiter']\nclass ServerArgs:\n"
        f"{fields}\n"
        "    attention_backend: A[Optional[str], Arg(help='', choices=CHOICES)] = None\n"
        "    tp_size: A[int, Arg(help='', aliases=['--tensor-parallel-size'])] = 1\n"
        "    strict_loading: A[bool, Arg(action=argparse.BooleanOptionalAction)] = True\n"
        "    renamed: A[str, Arg(cli_name='--new-name')] = ''\n"
        "    hidden: A[bool, Arg(no_cli=True)] = False\n"
        "    handler: A[Optional[Callable], NS('device')] = None\n",
        "sglang/srt/environ.py": "class Envs:\n    SGLANG_FAST = EnvBool(False)\n",
        "sglang/srt/function_call/function_call_parser.py": "class P:\n    ToolCallParserEnum: Dict = {'qwen': 1}\n",
        "sglang/srt/models/llama.py": "class LlamaForCausalLM: ...\nEntryClass = [LlamaForCausalLM]\n",
    }


def write_wheel(path: Path, files: Mapping[str, str]) -> Path:
    """Write a wheel with these files."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
    return path
