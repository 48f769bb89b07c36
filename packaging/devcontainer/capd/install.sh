#!/bin/sh
# Puts the command `capd-shim` into a dev container. It runs as root while the image is built.
# Nothing of capd and no secret is in the image: `capd bridge container` brings both, for as long
# as the bridge is open.
set -eu

folder="${DESTDIR:-}/usr/local/bin"
bridge="${BRIDGE:-}"

case "$bridge" in
    *[!A-Za-z0-9_.-]*) echo "capd: the option bridge is the name of a bridge" >&2; exit 1 ;;
esac

if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2>/dev/null; then
    if command -v apt-get >/dev/null; then
        apt-get update && apt-get install -y --no-install-recommends python3
    elif command -v apk >/dev/null; then
        apk add --no-cache python3
    elif command -v dnf >/dev/null; then
        dnf install -y python3
    else
        echo "capd: install Python 3.8 or newer in the image, as python3" >&2
        exit 1
    fi
fi

mkdir -p "$folder"
cat > "$folder/capd-shim" <<END
#!/bin/sh
# Starts the shim of the bridge that is open into this container.
for shim in "\$HOME"/.local/share/capd-bridge/${bridge:-*}/capd.pyz; do
    [ -f "\$shim" ] && exec python3 "\$shim" "\$@"
done
echo "capd: no bridge is open into this container: outside, run capd bridge container ID" >&2
exit 1
END
chmod 755 "$folder/capd-shim"
