-- capd in Neovim: the user's messages go to the session that this Neovim has with capd.
--
-- A turn never holds a chat longer than `budget` milliseconds and never fails: without a daemon the
-- chat goes on as if capd were not there.

local socket = require("capd.socket")

local M = {}

local uv = vim.uv
local RELIST = 60 -- milliseconds that a client which was told of new tools needs to list them
local SAYING = 30 -- milliseconds of the budget that are kept for putting the answer into the chat
local LEAST = 50 -- with fewer milliseconds left, the daemon is told that its answer is not read

M.options = {
  budget = 300,
  socket = nil, -- the path of a daemon's socket; else that of the user's daemon
  session = nil, -- the key of this Neovim's session; else one is made
  command = nil, -- what starts capd's shim; else the launcher of `capd install`, else `capd mcp`
}

---Set options; nothing else has to be called.
function M.setup(options)
  M.options = vim.tbl_extend("force", M.options, options or {})
end

---The key of the session that `server` opens: one for this Neovim.
function M.key()
  return M.options.session or ("nvim-" .. uv.os_getpid())
end

local function shim()
  if M.options.command then
    return M.options.command
  end
  local home = vim.env.CAPD_HOME
  local share = vim.env.XDG_DATA_HOME or ""
  if not vim.startswith(share, "/") then
    share = vim.fs.joinpath(uv.os_homedir(), ".local", "share")
  end
  local data = home and home ~= "" and vim.fs.joinpath(home, "data") or vim.fs.joinpath(share, "capd")
  local launcher = vim.fs.joinpath(data, "bin", "capd-mcp")
  return uv.fs_access(launcher, "X") and { launcher } or { "capd", "mcp" }
end

---Return the value for `mcp.servers.capd` of CodeCompanion, or for another MCP client in Lua.
function M.server()
  return { cmd = shim(), env = { CAPD_SESSION = M.key(), CAPD_CLIENT = "nvim" } }
end

local connection

---Send a request for a control method; `callback(err, result)` gets the answer.
function M.ask(method, params, callback)
  if connection and connection.is_open then
    return connection.ask(method, params, callback)
  end
  socket.open(M.options.socket or socket.path(), function(err, opened)
    if err then
      return callback(err)
    end
    connection = opened
    connection.ask(method, params, callback)
  end)
end

---Send a request and wait for the answer, at most `timeout` milliseconds; return `err, result`.
function M.ask_now(method, params, timeout)
  local answer
  M.ask(method, params, function(err, result)
    answer = { err, result }
  end)
  vim.wait(timeout, function()
    return answer ~= nil
  end, 2)
  if not answer then
    return { code = 0, message = ("capd has not answered within %d ms"):format(timeout) }
  end
  return answer[1], answer[2]
end

---Find the session of this Neovim: the one with its key, else the only one whose client is this
---process, else the only one in its folder. `callback(key, err)` gets it; `key` is nil if none fits.
function M.session(callback)
  M.ask("sessions", {}, function(err, result)
    if err then
      return callback(nil, err)
    end
    local folder = uv.fs_realpath(uv.cwd())
    local ours, here = {}, {}
    for _, each in ipairs(result.sessions) do
      if each.key == M.key() then
        return callback(each.key)
      end
      if each.pid == uv.os_getpid() then
        table.insert(ours, each.key)
      elseif each.project == folder then
        table.insert(here, each.key)
      end
    end
    local found = #ours > 0 and ours or here
    if #found == 1 then
      return callback(found[1])
    end
    local why = #found == 0 and "no session of capd is this Neovim's" or "several sessions of capd may be meant"
    callback(nil, { code = 4004, message = why .. "; name one: require('capd').setup({ session = … })" })
  end)
end

---Send a request for a method in this Neovim's session; `callback(err, result)` gets the answer.
function M.ask_session(method, params, callback)
  M.session(function(key, err)
    if not key then
      return callback(err)
    end
    M.ask(method, vim.tbl_extend("force", params, { session = key }), callback)
  end)
end

---Send the user's message to capd; return the text for the model, empty if none came in time. A turn
---that takes longer than the budget goes on, and its tools are there one request later.
function M.turn(text)
  local until_ms = uv.now() + M.options.budget
  local is_done, turn = false, nil
  local function answered(_, result)
    is_done, turn = true, result
  end
  M.session(function(key, err)
    if not key then
      return answered(err)
    end
    uv.update_time()
    local left = until_ms - uv.now() - SAYING
    local params = { text = text, session = key, mute = left < LEAST, patience = math.max(left, LEAST) / 1000 }
    M.ask("turn", params, answered)
  end)
  vim.wait(M.options.budget, function()
    return is_done
  end, 2)
  if not turn then
    return ""
  end
  if turn.changed and #(turn.changed.added or {}) > 0 then
    uv.update_time()
    vim.wait(math.max(0, math.min(RELIST, until_ms - uv.now())), function()
      return false
    end, 10)
  end
  return turn.context or ""
end

return M
