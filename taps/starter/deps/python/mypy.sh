#!/bin/sh
# dep: python/mypy
# type: dep
# description: Static type checker for Python code, installed with uv
# check: mypy --version || "${UV_TOOL_BIN_DIR:-${XDG_BIN_HOME:-$HOME/.local/bin}}/mypy" --version
# https://mypy.readthedocs.io/
#
# Any working mypy will do, so the check does not ask for the version below.

set -eu

bin_dir="${UV_TOOL_BIN_DIR:-${XDG_BIN_HOME:-$HOME/.local/bin}}"

if mypy --version >/dev/null 2>&1 || "$bin_dir/mypy" --version >/dev/null 2>&1; then
	exit 0
fi

if ! command -v uv >/dev/null 2>&1; then
	echo "mypy: needs uv, which is not on the PATH; install uv first" >&2
	exit 1
fi

# --force replaces a half-finished or broken earlier install.
uv tool install --quiet --force mypy==2.4.1

"$bin_dir/mypy" --version

case ":$PATH:" in
*":$bin_dir:"*) ;;
*) echo "mypy: installed in $bin_dir, which is not on the PATH" >&2 ;;
esac
