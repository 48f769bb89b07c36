{
  # nix run ./packaging -- --version
  #
  # The packages of PyPI that nixpkgs does not have come as wheels through uv, into a folder of the
  # user; Nix itself brings Python, uv, Node.js and bubblewrap.
  description = "capd, a per-user capability daemon";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs =
    { self, nixpkgs }:
    let
      systems = [
        "x86_64-linux"
        "aarch64-linux"
        "aarch64-darwin"
      ];
      each = f: nixpkgs.lib.genAttrs systems (system: f nixpkgs.legacyPackages.${system});
      source = ./..;
    in
    {
      packages = each (pkgs: {
        default = pkgs.writeShellApplication {
          name = "capd";
          runtimeInputs = [
            pkgs.nodejs
            pkgs.python313
            pkgs.uv
          ] ++ pkgs.lib.optional pkgs.stdenv.isLinux pkgs.bubblewrap;
          text = ''
            # Wheels of numpy and onnxruntime are linked against the system's C++ library.
            export LD_LIBRARY_PATH="${pkgs.stdenv.cc.cc.lib}/lib''${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
            exec uv tool run --python ${pkgs.python313}/bin/python --from ${source} capd "$@"
          '';
        };
      });

      devShells = each (pkgs: {
        default = pkgs.mkShell {
          packages = [
            pkgs.bubblewrap
            pkgs.gnumake
            pkgs.nodejs
            pkgs.python311
            pkgs.uv
          ];
        };
      });
    };
}
