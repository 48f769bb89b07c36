# A formula for a tap of one's own: brew install --build-from-source ./packaging/homebrew/capd.rb
#
# Before a release the three values between @ are filled in (packaging/README.md).
class Capd < Formula
  include Language::Python::Virtualenv

  desc "Per-user capability daemon: editors and agents get the MCP tools they need"
  homepage "@homepage@"
  url "@url@"
  sha256 "@sha256@"
  license "Apache-2.0"

  depends_on "python@3.13"
  depends_on "uv"

  def install
    # numpy and onnxruntime come as wheels: building them takes an hour and proves nothing more.
    system "uv", "venv", "--python", Formula["python@3.13"].opt_bin/"python3.13", libexec
    ENV["VIRTUAL_ENV"] = libexec
    system "uv", "pip", "install", buildpath
    bin.install_symlink libexec/"bin/capd"
  end

  service do
    run [opt_bin/"capd", "daemon", "run"]
    keep_alive successful_exit: false
  end

  test do
    ENV["CAPD_HOME"] = testpath/"capd"
    assert_match version.to_s, shell_output("#{bin}/capd --version")
    assert_match "ok", shell_output("#{bin}/capd check", 0)
  end
end
