#!/bin/sh
# dep: astral-sh/ruff
# type: dep
# description: Linter and formatter for Python code, installed with uv
# check: ruff --version || "${UV_TOOL_BIN_DIR:-${XDG_BIN_HOME:-$HOME/.local/bin}}/ruff" --version
# https://docs.astral.sh/ruff/
#
# Any working ruff will do, so the check does not ask for the version below.

set -eu

bin_dir="${UV_TOOL_BIN_DIR:-${XDG_BIN_HOME:-$HOME/.local/bin}}"

if ruff --version >/dev/null 2>&1 || "$bin_dir/ruff" --version >/dev/null 2>&1; then
	exit 0
fi

if ! command -v uv >/dev/null 2>&1; then
	echo "ruff: needs uv, which is not on the PATH; install uv first" >&2
	exit 1
fi

# --force replaces a half-finished or broken earlier install.
uv tool install --quiet --force ruff==0.17.6

"$bin_dir/ruff" --version

case ":$PATH:" in
*":$bin_dir:"*) ;;
*) echo "ruff: installed in $bin_dir, which is not on the PATH" >&2 ;;
esac
