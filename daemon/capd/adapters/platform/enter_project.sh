#!/bin/sh
# The script shell of npm for a server in a project that is not trusted (core/servers/launchers.py).
# npm itself ran in an empty folder; from here on the server runs where it usually would.
cd -- "$CAPD_SERVER_FOLDER" || exit 126
unset CAPD_SERVER_FOLDER npm_config_script_shell
INIT_CWD=$PWD
npm_config_local_prefix=$PWD
export INIT_CWD npm_config_local_prefix
exec /bin/sh "$@"
