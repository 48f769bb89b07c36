-- What a user of Neovim does with capd, headless: `nvim --clean --headless -l THIS PLUGIN SHIM...`.
-- CodeCompanion is played: its chat has the methods and messages that the extension uses.
-- Prints one JSON document of what was seen.

local plugin, shim = arg[1], { unpack(arg, 2) }
vim.opt.rtp:prepend(plugin)
vim.cmd.runtime("plugin/capd.lua")
local capd = require("capd")
local seen = { notes = {} }

vim.notify = function(text)
  table.insert(seen.notes, text)
end

local function wait_for(look)
  assert(vim.wait(60000, look, 10), "waited in vain: " .. vim.inspect(seen))
end

local function until_note(count)
  wait_for(function()
    return #seen.notes >= count
  end)
end

-- The chat, as CodeCompanion makes it.
local chat = { messages = {}, callbacks = {} }
function chat:add_callback(event, callback)
  self.callbacks[event] = callback
end
function chat:add_message(data, opts)
  table.insert(self.messages, { role = data.role, content = data.content, opts = opts, _meta = {} })
end
function chat:submit(text)
  self:add_message({ role = "user", content = text }, { visible = true })
  seen.answer = self.callbacks.on_before_submit(self, { adapter = {} })
end
package.loaded["codecompanion"] = {
  buf_get_chat = function()
    return chat
  end,
}

-- Its MCP client: the shim, started as `mcp.servers.capd` says.
capd.setup({ command = shim })
local server = capd.server()
local lines = {}
local process = vim.system(server.cmd, {
  env = server.env,
  stdin = true,
  stdout = function(_, text)
    table.insert(lines, text or "")
  end,
})
local client = { name = "CodeCompanion.nvim", version = "1" }
local params = { protocolVersion = "2025-11-25", capabilities = vim.empty_dict(), clientInfo = client }
local hello = { jsonrpc = "2.0", id = 1, method = "initialize", params = params }
if vim.env.CAPD_TEST_ALONE ~= "1" then
  process:write(vim.json.encode(hello) .. "\n")
  process:write('{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
  wait_for(function()
    return table.concat(lines):find("\n", 1, true) ~= nil
  end)
end

-- What is proved is what happens, not how fast this machine is at the moment.
require("codecompanion._extensions.capd").setup({ budget = 20000 })
vim.api.nvim_exec_autocmds("User", { pattern = "CodeCompanionChatCreated", data = { bufnr = 1 } })

vim.cmd("Capd enable talk")
until_note(1)
vim.cmd("Capd tools")
until_note(2)
seen.completed = require("capd.command").complete("ta", "Capd enable ta")
seen.verbs = require("capd.command").complete("s", "Capd s")
capd.ask_session("call", { name = "talk__echo", arguments = { text = "from nvim" } }, function(err, result)
  seen.called = { err = err, result = result and result.result }
end)
wait_for(function()
  return seen.called ~= nil
end)
vim.cmd("Capd disable talk")
until_note(3)
if vim.env.CAPD_TEST_ALONE ~= "1" then
  wait_for(function()
    local err, status = capd.ask_now("status", {}, 5000)
    return not err and status.embedder.state == "ready"
  end)
end
chat:submit("please run talk")
chat:submit("please run talk")
chat.callbacks.on_before_submit(chat, {})
seen.messages = vim.tbl_map(function(message)
  return message.content
end, chat.messages)
vim.cmd("Capd dance")
vim.cmd("Capd status")
until_note(5)
process:write(nil)
process:wait(5000)
io.stdout:write(vim.json.encode(seen) .. "\n")
