"""The editor's end of the socket: MCP on stdin and stdout, relayed to capd.

    main                the arguments and the environment
    bridged             the same on the far side of a bridge
    link                the session: what the host and the daemon send, and what is sent again
    replay              the rules for a lost connection, which the agent library uses as well
    handshakes          saved answers to handshakes, for a daemon that starts slowly
    starting            where the socket is, and starting the daemon
    login_environment   the environment of a daemon that the shim starts
    json_lines          lines of JSON-RPC, read as far as the shim needs
    client_facts        constants generated from `clients.toml`

An editor waits for the shim, so it starts within 10 ms: these modules import C modules of the
standard library and each other, and neither `os`, `socket`, `json` nor `typing` at run time.
A test checks that.
"""
