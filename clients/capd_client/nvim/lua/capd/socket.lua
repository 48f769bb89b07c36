-- A connection of role control to capd's daemon (docs/protocol.md).
-- Nothing blocks: results are passed to callbacks, on the main loop.

local M = {}

local uv = vim.uv
local LONGEST_LINE = 257 * 1024 * 1024

---The socket's path, as docs/protocol.md has it.
function M.path(env)
  env = env or vim.env
  if env.CAPD_SOCKET and env.CAPD_SOCKET ~= "" then
    return vim.fn.fnamemodify(env.CAPD_SOCKET, ":p")
  end
  if env.CAPD_HOME and env.CAPD_HOME ~= "" then
    return vim.fs.joinpath(vim.fn.fnamemodify(env.CAPD_HOME, ":p"), "run", "capd.sock")
  end
  if vim.startswith(env.XDG_RUNTIME_DIR or "", "/") then
    return vim.fs.joinpath(env.XDG_RUNTIME_DIR, "capd", "capd.sock")
  end
  local run = "/run/user/" .. uv.getuid()
  if uv.fs_stat(run) then
    return vim.fs.joinpath(run, "capd", "capd.sock")
  end
  return vim.fs.joinpath(env.HOME or uv.os_homedir(), ".local", "state", "capd", "run", "capd.sock")
end

---Return the error for a daemon that cannot be reached.
local function down(path, why)
  return { code = 0, message = ("no daemon at %s (%s); start it with: capd daemon start"):format(path, why) }
end

---Open a connection; `done(err, connection)` is called once.
function M.open(path, done)
  local stat = uv.fs_stat(path)
  if not stat then
    return done(down(path, "there is no such socket"))
  end
  if stat.uid ~= uv.getuid() then
    -- Another user's program must not get the user's text.
    return done(down(path, "it is another user's"))
  end
  local pipe = assert(uv.new_pipe(false))
  local connection = { waiting = {}, last = 0, begun = {}, size = 0, is_open = true }

  local function close(err)
    if not connection.is_open then
      return
    end
    connection.is_open = false
    if not pipe:is_closing() then
      pipe:close()
    end
    local waiting = connection.waiting
    connection.waiting = {}
    for _, callback in pairs(waiting) do
      callback(err)
    end
    if done then
      local first = done
      done = nil
      first(err)
    end
  end

  function connection.close()
    close(down(path, "the connection was closed"))
  end

  ---Send a request for a method. `callback(err, result)` gets the answer; `err` has `code` and
  ---`message`.
  function connection.ask(method, params, callback)
    if not connection.is_open then
      return callback(down(path, "the connection was closed"))
    end
    connection.last = connection.last + 1
    connection.waiting[connection.last] = callback
    if next(params) == nil then
      params = vim.empty_dict()
    end
    local message = { jsonrpc = "2.0", id = connection.last, method = method, params = params }
    pipe:write(vim.json.encode(message) .. "\n")
  end

  local function take(message)
    if message.capd == "welcome" and done then
      local first = done
      done = nil
      return first(nil, connection)
    end
    if message.capd == "refused" then
      return close({ code = 0, message = message.message or message.code })
    end
    local callback = connection.waiting[message.id]
    if callback then
      connection.waiting[message.id] = nil
      callback(message.error, message.result)
    end
  end

  local function read(text)
    connection.size = connection.size + #text
    if connection.size > LONGEST_LINE then
      return close(down(path, "a line of it has no end"))
    end
    local from = 1
    while connection.is_open do
      local stop = text:find("\n", from, true)
      if not stop then
        break
      end
      table.insert(connection.begun, text:sub(from, stop - 1))
      local line = table.concat(connection.begun)
      connection.begun, connection.size, from = {}, #text - stop, stop + 1
      local is_json, message =
        pcall(vim.json.decode, line, { luanil = { object = true, array = true } })
      if not is_json or type(message) ~= "table" then
        return close(down(path, "what listens there is not capd"))
      end
      take(message)
    end
    table.insert(connection.begun, text:sub(from))
  end

  pipe:connect(path, function(failed)
    vim.schedule(function()
      if failed then
        return close(down(path, failed))
      end
      pipe:read_start(function(err, text)
        vim.schedule(function()
          if err or not text then
            return close(down(path, err or "it closed the connection"))
          end
          read(text)
        end)
      end)
      local client = { name = "nvim", pid = uv.os_getpid() }
      -- The daemon recognises a link frame by its first bytes, so `capd` is written before the rest.
      local rest = vim.json.encode({ protocol = 1, role = "control", client = client })
      pipe:write('{"capd":"hello",' .. rest:sub(2) .. "\n")
    end)
  end)
end

return M
